# SPDX-License-Identifier: Apache-2.0
"""`from paddle_job import report`: what a script names goes down the pipe, and nothing that is wrong with it hurts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
IMPORT = "import sys; sys.path.insert(0, {path!r}); from paddle_job import report\n"


class Script:
    """A process with a pipe to read its reports from; any Python, no other package."""

    def __init__(self) -> None:
        self.ours, self._theirs = os.pipe()

    def run(self, code: str, channel: str | None = None) -> subprocess.CompletedProcess[str]:
        environ = {"PADDLE_REPORT_FD": str(self._theirs) if channel is None else channel}
        code = IMPORT.format(path=str(RUNTIME)) + code
        argv = [sys.executable, "-I", "-S", "-c", code]
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            pass_fds=[self._theirs],
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    def values(self) -> list[dict[str, float]]:
        os.set_blocking(self.ours, False)
        try:
            lines = os.read(self.ours, 1 << 20).splitlines()
        except BlockingIOError:
            return []
        found = [json.loads(line) for line in lines]
        assert all(line["event"] == "numbers" for line in found)
        return [line["values"] for line in found]

    def close(self) -> None:
        os.close(self.ours)
        os.close(self._theirs)


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    yield script
    script.close()


def test_numbers_of_any_name_are_reported_and_the_last_ones_at_the_end(script: Script) -> None:
    done = script.run(
        "for step in range(100): report(step=step, loss=1 / (step + 1), samples=8, **{'val/f1': 0.5})"
    )
    found = script.values()
    assert found[0] == {"step": 0.0, "loss": 1.0, "samples": 8.0, "val/f1": 0.5}
    assert found[-1] == {"step": 99.0, "loss": 0.01, "samples": 800.0, "val/f1": 0.5}
    assert len(found) < 50
    assert done.stderr == ""


def test_reports_that_follow_each_other_are_merged(script: Script) -> None:
    script.run("report(step=1)\nreport(step=2, loss=3)\nreport(accuracy=0.5)")
    assert script.values() == [{"step": 1.0}, {"step": 2.0, "loss": 3.0, "accuracy": 0.5}]


def test_nothing_is_reported_twice(script: Script) -> None:
    script.run("report(step=1, samples=8)")
    assert script.values() == [{"step": 1.0, "samples": 8.0}]


@pytest.mark.parametrize("channel", ["", "x", "987", "0"])
def test_nothing_happens_without_a_pipe_to_an_agent(script: Script, channel: str) -> None:
    done = script.run("report(step=1, loss='x')", channel)
    assert (done.stdout, done.stderr) == ("", "")


def test_nothing_happens_outside_of_a_job(script: Script) -> None:
    done = script.run("import os; assert 'X' not in os.environ; report(step=1)", channel="none")
    assert (done.stdout, done.stderr, script.values()) == ("", "", [])


def test_what_is_no_number_is_named_one_time_and_the_rest_is_reported(script: Script) -> None:
    done = script.run(
        "for _ in range(3): report(step=1, loss=float('nan'), name='abc', lists=[1], **{'n' * 101: 1})"
    )
    assert script.values()[-1] == {"step": 1.0}
    assert len(done.stderr.splitlines()) == 4
    assert "loss is left out: nan is not finite" in done.stderr
    assert "name is left out: expected a number, got 'abc'" in done.stderr


def test_nothing_that_cannot_be_shown_is_raised(script: Script) -> None:
    done = script.run(
        "class Freed:\n    __repr__ = None\n"
        "report(step=1, huge=10**5000, freed=Freed())\nsys.stderr = None\nreport(step=2, loss='x')"
    )
    assert script.values()[-1] == {"step": 2.0}
    assert "huge is left out: the number is too large for a float" in done.stderr
    assert "freed is left out: expected a number, got a value of type Freed" in done.stderr


def test_nothing_is_written_into_a_file_that_got_the_number_of_the_closed_pipe(
    script: Script, tmp_path: Path
) -> None:
    script.run(
        f"import os; fd = int(os.environ['PADDLE_REPORT_FD']); other = os.open({str(tmp_path / 'x')!r}, 65)\n"
        "report(step=1); os.dup2(other, fd)\nfor _ in range(2): report(step=2, loss=1)"
    )
    assert (tmp_path / "x").read_bytes() == b""
    assert script.values() == [{"step": 1.0}]


def test_another_pipe_at_the_number_in_a_program_that_the_script_starts_gets_no_report(
    script: Script,
) -> None:
    script.run(
        "import os, subprocess\n"
        "ours, theirs = os.pipe(); fd = int(os.environ['PADDLE_REPORT_FD'])\n"
        "os.environ['PADDLE_REPORT_PIPE'] = f'{os.fstat(fd).st_dev}:{os.fstat(fd).st_ino}'\n"
        f"code = {IMPORT.format(path=str(RUNTIME))!r} + 'report(step=1)'\n"
        "def started(): subprocess.run([sys.executable, '-I', '-S', '-c', code], pass_fds=[fd], check=True)\n"
        "os.set_inheritable(fd, True); started(); os.dup2(theirs, fd); os.close(theirs); started(); os.close(fd)\n"
        "assert os.read(ours, 1000) == b''"
    )
    assert script.values() == [{"step": 1.0}]


def test_a_handler_of_a_signal_may_report_too(script: Script) -> None:
    script.run(
        "import os, signal\n"
        "signal.signal(signal.SIGUSR1, lambda *_: report(asked=1))\n"
        "class Late:\n    def __float__(self): os.kill(os.getpid(), signal.SIGUSR1); return 1.0\n"
        "signal.alarm(20); report(step=Late())"
    )
    assert script.values()[-1].items() >= {"step": 1.0}.items()


def test_a_number_too_large_for_a_float_is_named_as_such(script: Script) -> None:
    done = script.run("report(step=1, big=10**400, bigger=10**5000)")
    assert script.values() == [{"step": 1.0}]
    assert [line.split(": ", 1)[1] for line in done.stderr.splitlines()] == [
        "big is left out: the number is too large for a float",
        "bigger is left out: the number is too large for a float",
    ]


def test_a_tensor_that_requires_a_gradient_is_reported_without_it(script: Script) -> None:
    done = script.run(
        "class Tensor:\n    def detach(self): return 2.5\n"
        "    def __float__(self): raise RuntimeError('requires a gradient')\nreport(step=1, loss=Tensor())"
    )
    assert (done.stderr, script.values()) == ("", [{"step": 1.0, "loss": 2.5}])


def test_a_value_without_a_text_of_its_own_is_named_by_its_type(script: Script) -> None:
    done = script.run("class Bad:\n    def __repr__(self): raise RuntimeError\nreport(step=1, bad=Bad())")
    assert "bad is left out: expected a number, got a value of type Bad" in done.stderr
    assert script.values() == [{"step": 1.0}]


@pytest.mark.parametrize("how", ["sys.stderr = None", "sys.stderr.close()"])
def test_a_script_without_standard_error_reports_the_rest(script: Script, how: str) -> None:
    script.run(f"import sys\n{how}\nreport(step=1, loss='x')")
    assert script.values() == [{"step": 1.0}]


def test_a_signal_handler_may_report_in_the_middle_of_a_report(script: Script) -> None:
    script.run(
        "import os, signal\n"
        "class Slow:\n    def __float__(self):\n        os.kill(os.getpid(), signal.SIGALRM); return 2.0\n"
        "signal.signal(signal.SIGALRM, lambda *_: report(inner=1))\n"
        "signal.alarm(20)  # a deadlock ends here\n"
        "report(outer=Slow())"
    )
    merged = {name: value for line in script.values() for name, value in line.items()}
    assert merged == {"inner": 1.0, "outer": 2.0}


def test_too_many_names_for_a_line_are_refused_in_words(script: Script) -> None:
    done = script.run("report(**{f'name{n}': n for n in range(1000)})")
    assert "1000 names" in done.stderr
    assert script.values() == []


def test_a_full_pipe_never_holds_up_training_and_loses_no_samples(script: Script) -> None:
    os.set_blocking(script._theirs, False)
    try:
        while True:
            os.write(script._theirs, b"x" * 4096)
    except BlockingIOError:
        pass
    began = time.monotonic()
    script.run("import time\nfor _ in range(20): report(step=1, samples=1); time.sleep(0.01)")
    assert time.monotonic() - began < 60
    os.read(script.ours, 1 << 20)
    script.run("report(samples=1)")
    assert script.values()[-1] == {"samples": 1.0}


def test_a_process_that_a_script_forked_reports_nothing(script: Script) -> None:
    script.run("import os\npid = os.fork()\nreport(step=7 if pid else 8)\nif pid: os.waitpid(pid, 0)")
    assert [line["step"] for line in script.values()] == [7.0]


def test_a_closed_pipe_ends_the_reports_and_not_the_script() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    code = IMPORT.format(path=str(RUNTIME)) + "for _ in range(3): report(step=1)\nprint('done')"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        pass_fds=[theirs],
        env={"PADDLE_REPORT_FD": str(theirs)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
