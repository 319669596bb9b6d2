# SPDX-License-Identifier: Apache-2.0
"""The command as users run it: help, dry run, exit codes; `import paddle` from the repository root."""

from __future__ import annotations

import ast
import os
import re
import resource
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.cli import commands, main
from paddle_cluster.cli.commands import COMMANDS
from paddle_cluster.cli.commands.run import VERSION
from paddle_cluster.config.options import CONF_NAMES, OPTIONS, REQUIRED
from paddle_cluster.errors import ExitCode, UsageError

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]

# Says on stderr what a command touched that only a job may touch.
WATCH = """
import sys
seen = set()
def hook(event, args):
    if event in {"socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork"}:
        seen.add(event)
sys.addaudithook(hook)
sys.path.insert(0, ROOT)
from paddle_cluster.cli.main import main
code = main()
heavy = {"fabric", "paramiko", "rich", "numpy", "zmq", "cryptography"} & set(sys.modules)
print(sorted(seen | heavy), file=sys.stderr)
sys.exit(code)
""".replace("ROOT", repr(str(ROOT)))

WITHOUT_FABRIC = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "paddle_cluster.job.job":
            raise ModuleNotFoundError("No module named 'fabric'", name="fabric")
sys.meta_path.insert(0, Finder())
sys.path.insert(0, ROOT)
from paddle_cluster.cli.main import main
sys.exit(main())
""".replace("ROOT", repr(str(ROOT)))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that can run, in a directory with a conf.py of two machines that do not exist."""
    package = tmp_path / "ws"
    package.mkdir()
    (package / "train.py").write_text("pass\n")
    (tmp_path / "conf.py").write_text('HOSTS = ["root@192.0.2.1", "root@192.0.2.2"]\n')
    return package


@pytest.fixture
def run(package: Path) -> Run:
    """Run paddle.py in the package's parent."""

    def run_command(
        *argv: str | bytes, code: str = "", **kwargs: object
    ) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, *(["-c", code] if code else [str(ROOT / "paddle.py")]), *argv]
        options: dict[str, object] = {
            "cwd": package.parent,
            "capture_output": True,
            "timeout": LIMIT_S,
            **kwargs,
        }
        return subprocess.run(command, check=False, **options)  # type: ignore[call-overload, no-any-return]

    return run_command


def test_help_fits_a_screen_and_leads_to_the_pages(run: Run) -> None:
    done = run("--help")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for topic in re.findall(r"help ([a-z]+-?[a-z]+)(?=[ ,]|$)", done.stdout.decode()):
        assert (ROOT / "docs" / f"{topic}.md").is_file(), topic
    for command in COMMANDS:
        assert command in lines[1] + lines[2]


def test_help_names_no_option_that_there_is_not(run: Run) -> None:
    named = set(re.findall(r"--([a-z_]+)", run("--help").stdout.decode()))
    assert named - {"flag"} <= {option.name for option in OPTIONS}
    assert {"job_dispatch_package", "job_workspace", "env", "nproc_per_node"} <= named


def test_version_is_that_of_the_project(run: Run) -> None:
    assert run("--version").stdout.decode() == f"paddle.py {VERSION}\n"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["version"]
    assert f"This is version {VERSION}:" in (ROOT / "README.md").read_text()
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{VERSION}] - " in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("argv", [["--help"], ["-p", "ws", "--conf=conf.py", "--dry_run"], ["--dryrun"]])
def test_help_dry_run_and_usage_errors_touch_no_network_and_load_nothing_heavy(
    run: Run, argv: list[str]
) -> None:
    done = run(*argv, code=WATCH)
    assert done.stderr.decode().splitlines()[-1] == "[]"


def test_a_job_of_this_machine_alone_does_without_the_ssh_library(run: Run, package: Path) -> None:
    place = package.parent
    (place / "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {str(place / 'nodes')!r}\n")
    environ = {**os.environ, "PADDLE_STATE_DIR": str(place / "state"), "XDG_RUNTIME_DIR": str(place)}
    done = run("-p", "ws", "--conf=conf.py", "--mode=collective", code=WATCH, env=environ)
    assert done.returncode == 0, done.stderr.decode()
    touched = done.stderr.decode().splitlines()[-1]
    assert "subprocess.Popen" in touched
    assert not [name for name in ("fabric", "paramiko", "cryptography") if name in touched]


def test_a_dry_run_shows_the_plan_and_writes_nothing(run: Run, package: Path) -> None:
    before = sorted(package.parent.rglob("*"))
    done = run("-p", "ws", "--conf=conf.py", "--dry_run", "--", "--title=a b")
    assert done.returncode == 0
    assert b"trainer-1 on node 1 (root@192.0.2.2)" in done.stdout
    assert b"-u train.py '--title=a b'" in done.stdout
    assert sorted(package.parent.rglob("*")) == before


def test_a_dry_run_shows_bytes_that_are_no_text(run: Run) -> None:
    done = run(b"-p", b"ws", b"--conf=conf.py", b"--dry_run", b"--", b"--x=\xff")
    assert done.returncode == 0
    assert b"'--x=\\udcff'" in done.stdout


def test_conf_py_beside_paddle_py_is_the_default(run: Run) -> None:
    assert b"pserver-2 on node 2 (local-2)" in run("-p", "ws", "--dry_run").stdout


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "nothing to run"),
        (["doctor", "--config=x.py"], "doctor does not take '--config=x.py'"),
        (["doctor", "-p", "ws"], "doctor does not take '-p'"),
        (["-p", "ws", "--keep_as=a", "--collect=/etc/passwd"], "--keep_as, such as *.pt, got '/etc/passwd'"),
        (["-p", "ws", "--conf=ws"], "--conf=FILE"),
        (["-p", "ws", "-j", "ws"], "cannot be combined"),
        (["-p", "none"], "none does not exist"),
        (["-p", "conf.py"], "is not a directory"),
        (["-p", "ws/train.py", "--conf=missing.py"], "is not a directory"),
        (["-p", "ws", "--entry=go.py"], "no file go.py"),
        (["-p", "ws", "--entry=go"], "no file go"),
        (["-p", "ws", "--entry=-m"], "expected -m with a module, such as --entry=-mpackage.train"),
        (["-p", "ws", "--env=RANK=3"], "RANK cannot be set"),
        (["-p", "ws", "--nproc_per_node=0"], "--nproc_per_node: expected a whole number from 1"),
        (["-p", "ws", "--nproc_per_node=5000"], "at most 4096 trainers per machine, got 15000"),
        (["-p", "ws", "--conf=missing.py"], "missing.py: no such file"),
        (["-p", "ws", "--dryrun"], "did you mean --dry_run?"),
        (["-p", "ws", "--port=70000"], "--port: expected an integer from 1 to 65535, got 70000"),
        (["-p", "ws", "--trainer_count=x"], "--trainer_count: expected a whole number, got 'x'"),
        (["-p", "ws", "--dryrun", "--nprocpernode=2"], "did you mean --nproc_per_node?"),
        (["ws/train.py"], "'ws/train.py' is: -p ws"),
        (["checkpoints", "ws"], "--checkpoint_dir=ws"),
        (["-p", "ws", "--use_gpu=maybe"], "--use_gpu: expected True or False"),
        (["-p", "w\ns"], "does not exist"),
    ],
)
def test_a_wrong_command_ends_with_2_and_the_fix_and_no_traceback(
    run: Run, argv: list[str], words: str
) -> None:
    done = run(*argv)
    assert done.returncode == ExitCode.USAGE
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert all(line.startswith("paddle.py: ") for line in done.stderr.decode().splitlines())
    assert done.stdout == b""


def test_every_wrong_line_of_conf_is_told(run: Run, package: Path) -> None:
    (package.parent / "conf.py").write_text('HOSTS = "a"\nPADDLE_PORT = 0\nPADDEL_PORT = 1\n')
    done = run("-p", "ws", "--conf=conf.py")
    assert sorted(line.removeprefix("paddle.py: conf.py:") for line in done.stderr.decode().splitlines()) == [
        "1: HOSTS: expected a list of hosts, such as ['root@10.1.9.7'], got the string 'a'; write ['a']",
        "2: PADDLE_PORT: expected an integer from 1 to 65535, got 0",
        "3: unknown name PADDEL_PORT; did you mean PADDLE_PORT?",
    ]


def test_a_conf_py_that_does_not_end_is_named_with_its_line(run: Run, package: Path) -> None:
    soon = "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.pause()\nHOSTS = ['a']\n"
    (package.parent / "conf.py").write_text(soon)  # its own timer takes the place of the launcher's 10 s
    assert run("-p", "ws", "--conf=conf.py", "--dry_run").stderr.startswith(b"paddle.py: conf.py:3: ")


def test_ctrl_c_while_conf_runs_ends_with_130(run: Run, package: Path) -> None:
    (package.parent / "conf.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nHOSTS = ['a']\n"
    )
    done = run(
        "-p",
        "ws",
        "--conf=conf.py",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == ExitCode.INTERRUPTED
    assert b"Traceback" not in done.stderr


def test_a_reader_that_leaves_early_is_no_error(run: Run) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = run("-p", "ws", "--dry_run", capture_output=False, stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("argv", [["-p", "../ws", "--conf=../conf.py"], ["doctor", "--conf=../conf.py"]])
def test_a_removed_current_directory_is_named(run: Run, package: Path, argv: list[str]) -> None:
    gone = package.parent / "gone"
    gone.mkdir()
    done = run(*argv, cwd=gone, preexec_fn=gone.rmdir)
    assert (done.returncode, done.stdout) == (2, b"")
    assert re.fullmatch(rb"paddle.py: .*current directory .*cd .*\n", done.stderr)


@pytest.mark.parametrize("argv", [["-p", "ws", "--dry_run"], ["doctor"], ["status"]])
def test_closed_standard_streams_are_no_error(run: Run, package: Path, argv: list[str]) -> None:
    def close_all() -> None:
        os.closerange(0, 3)

    (package.parent / "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {str(package.parent)!r}\n")
    argv = [*argv, "--conf=conf.py"] if argv != ["status"] else argv
    done = run(*argv, capture_output=False, preexec_fn=close_all)
    assert done.returncode == 0


def test_a_width_that_is_none_is_no_error(run: Run, package: Path) -> None:
    (package.parent / "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {str(package.parent)!r}\n")
    done = run("doctor", "--conf=conf.py", env={**os.environ, "COLUMNS": "wide"})
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_conf_raises_cannot_act_on_the_terminal(run: Run, package: Path) -> None:
    (package.parent / "conf.py").write_text("raise RuntimeError('no \\x1b[2Jway')\n")
    done = run("-p", "ws", "--conf=conf.py")
    assert done.stderr == b"paddle.py: conf.py:1: running it raised RuntimeError: no way\n"


def test_a_python_without_the_packages_is_told_what_to_do(run: Run) -> None:
    done = run("-p", "ws", code=WITHOUT_FABRIC)
    assert done.returncode == ExitCode.USAGE
    assert b"cannot import fabric; run `sh run.sh` to set up .venv" in done.stderr


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_STACK)[1] != resource.RLIM_INFINITY,
    reason="the stack's hard limit is low",
)
@pytest.mark.parametrize("threads", [0, 3, 4, 5])
def test_a_machine_that_refuses_a_thread_is_told_with_its_limit(
    run: Run, package: Path, threads: int
) -> None:
    def allow_threads() -> None:
        space = 2_048_000_000
        resource.setrlimit(resource.RLIMIT_STACK, (int(space * 0.7 / (threads + 1)), resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (space, space))

    (package.parent / "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {str(package.parent)!r}\n")
    done = run("-p", "ws", "--conf=conf.py", "--mode=collective", preexec_fn=allow_threads)
    assert b"threads" in done.stderr + done.stdout
    assert b"`ulimit -v` is 2000000" in done.stderr + done.stdout
    assert (done.returncode, b"Traceback" in done.stderr) == (ExitCode.PREFLIGHT, False)


def test_main_returns_its_code_and_reads_the_arguments_it_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.main(["--help"]) == 0
    assert "usage:" in capsys.readouterr().out
    assert main.main(["--nothing"]) == 2
    assert "paddle.py: " in capsys.readouterr().err


def python(*argv: str, cwd: Path = ROOT) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_imported_from_the_repository_root_paddle_is_the_runtime() -> None:
    code = (
        "import paddle, paddle.errors as e; print(paddle.__file__, paddle.__path__[0], e.__file__, sep='\\n')"
    )
    folder = ROOT / "runtime" / "paddle"
    assert python("-c", code).splitlines() == [
        str(folder / "__init__.py"),
        str(folder),
        str(folder / "errors.py"),
    ]


def test_a_second_import_gives_the_same_package() -> None:
    code = (
        "import sys, importlib, paddle as one; import paddle as two; three = importlib.import_module('paddle');"
        "print(one is two is three is sys.modules['paddle'])"
    )
    assert python("-c", code) == "True"


def test_run_with_m_from_the_repository_root_paddle_is_the_runtime() -> None:
    assert python("-m", "paddle", "version").startswith("PaddlePaddle ")


def test_safe_path_and_other_directories_are_fine(tmp_path: Path) -> None:
    assert python("-P", str(ROOT / "paddle.py"), "--version", cwd=tmp_path).startswith("paddle.py ")


@pytest.mark.parametrize("name", CONF_NAMES)
def test_every_conf_name_is_documented_with_its_default(name: str) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    row = next(
        line for line in page.splitlines() if line.startswith(f"| `{name}` |") and line.count("|") == 4
    )
    said, option = row.split("|")[2].strip(), CONF_NAMES[name]
    if said in ("required", "every node"):
        assert option.default is {"required": REQUIRED, "every node": None}[said]
    else:
        assert option.read(ast.literal_eval(said.strip("`"))) == option.absent_value


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    for code in ExitCode:
        assert f"| {int(code)} |" in page


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_a_known_first_word_is_a_command(name: str) -> None:
    assert main.named([name, "--json"]) == name


@pytest.mark.parametrize(
    "argv", [[], ["-p", "ws", "status"], ["--help"], ["--", "status"], ["train", "-p", "ws"], ["x", "-j=a"]]
)
def test_options_and_words_beside_a_job_are_the_jobs(argv: list[str]) -> None:
    assert main.named(argv) is None


@pytest.mark.parametrize(
    ("word", "near"),
    [("stauts", "status"), ("resume J", "run.*--resume=l"), ("job stop", "stop"), ("version", "--version")],
)
def test_a_misspelt_command_is_told_the_right_one(word: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"'{word.split()[0]}': did you mean {near}"):
        main.named(word.split())


@pytest.mark.parametrize(
    "pair", ["runn:run", "rnu:run", "statsu:status", "log:logs", "Stop:stop", "submit:run"]
)
def test_a_misspelt_command_before_a_job_is_not_passed_to_the_script(pair: str) -> None:
    word, near = pair.split(":")
    with pytest.raises(UsageError, match=f"did you mean {near}[?]$"):
        main.named([word, "-p", "ws"])
    assert main.named(["-p", "ws", "--", word]) is None


def test_a_command_after_options_is_told_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--conf=x", "status"], ["--conf", "a b", "--json", "status", "JOB1"]):
        assert main.main(argv) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "paddle.py: the command must come first: paddle.py status --conf=x"
    assert second == "paddle.py: the command must come first: paddle.py status --conf 'a b' --json JOB1"


def test_a_word_like_none_of_them_is_told_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["zebra", "--", "-p", "ws"]) == 2
    assert "status, attach, logs, stop" in capsys.readouterr().err
