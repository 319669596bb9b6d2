# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddle_cluster.plan.environment import pack_pieces, split_long
from paddle_node.agent.processes.spawn import spawn
from tests.runtime.paddle_node.agent.driven_node import Node

ROOT = Path(__file__).parents[5]
MEMORY_GROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))  # versions 1 and 2
DUMP = (
    "import json, os, sys; json.dump({'argv': sys.argv[1:], 'env': dict(os.environ)}, open('dump.json', 'w'))"
)


def dumped(node: Node) -> dict[str, object]:
    return dict(json.loads((node.root / "job" / "dump.json").read_text()))


def test_output_reaches_the_log_file_and_the_screen(node: Node) -> None:
    node.python("import sys; print('to stdout'); print('to stderr', file=sys.stderr)")
    node.expect("exited", code=0)
    assert node.text() == b"to stdout\nto stderr\n"
    assert (node.root / "job/log/train.log").read_bytes() == b"to stdout\nto stderr\n"


@pytest.mark.parametrize(
    "argument",
    [
        "-0.1",
        "a b",
        "",
        "$(touch x)",
        "`id`",
        "a\nb",
        "--x=日本語",
        "\udcff\udc80",
        "'\"\\",
        "x" * 100_000,
        "--",
        "*",
    ],
    ids=[
        "minus",
        "space",
        "empty",
        "dollar",
        "tick",
        "line",
        "cjk",
        "bytes",
        "quotes",
        "long",
        "dashes",
        "star",
    ],
)
def test_an_argument_arrives_byte_for_byte(node: Node, argument: str) -> None:
    node.python(DUMP, argument)
    node.expect("exited", code=0)
    assert dumped(node)["argv"] == [argument]
    assert not (node.root / "job" / "x").exists()


def test_the_environment_is_a_small_base_plus_the_given_variables(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere")
    monkeypatch.setenv("SOME_LOGIN_VARIABLE", "1")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/node/lib")
    node = make_node()
    node.greet()
    node.adopt()
    node.python(DUMP, env={"GIVEN": "yes", "LD_LIBRARY_PATH": "/given/lib"}, secret_env={"KEY": "secret"})
    node.expect("exited", code=0)
    env = dumped(node)["env"]
    assert isinstance(env, dict)
    assert "SSH_AUTH_SOCK" not in env
    assert "SOME_LOGIN_VARIABLE" not in env
    assert env["LC_TIME"] == "C"
    assert env["PATH"] == os.environ["PATH"]
    assert env["LD_LIBRARY_PATH"] == "/given/lib:/node/lib"
    assert (env["GIVEN"], env["KEY"]) == ("yes", "secret")
    assert env["PADDLE_JOB_ID"] == node.job_id


def test_programs_beside_the_jobs_python_are_found(node: Node) -> None:
    home, own = "/opt/env/bin", os.environ["PATH"]
    for given, expected in (
        ({"PADDLE_PYTHON": f"{home}/python"}, f"{home}:{own}"),
        ({"PADDLE_PYTHON": f"{home}/python", "PATH": "/mine"}, "/mine"),
        ({"PADDLE_PYTHON": own.split(":")[-1] + "/python3"}, own),
        ({"PADDLE_PYTHON": "python3"}, own),
    ):
        node.python(DUMP, env=given)
        node.expect("exited", code=0)
        env = dumped(node)["env"]
        assert isinstance(env, dict)
        assert env["PATH"] == expected


def test_values_of_thousands_of_nodes_come_once_and_reach_each_process(node: Node) -> None:
    endpoints = [f"10.1.{n >> 8}.{n & 255}:7164" for n in range(24_000)]
    values = split_long({"PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints), "LONG": "x" * 100_000})
    code = """
import json, os
from paddle.env import JobEnvironment
with open(os.environ["PADDLE_PROC"], "w") as file:
    json.dump([JobEnvironment.read().trainer_endpoints, os.environ["LONG"]], file)
"""
    for proc, body in (("first", pack_pieces(values, set())), ("second", b"")):
        node.python(
            code,
            proc=proc,
            body=body,
            env={"PYTHONPATH": str(ROOT / "runtime")},
            env_pieces=values.pieces,
            env_files=values.in_files,
        )
        node.expect("exited", proc=proc, code=0)
        assert json.loads((node.root / "job" / proc).read_text()) == [endpoints, "x" * 100_000]


def test_a_process_has_default_signals_and_no_input(node: Node) -> None:
    code = """
import signal, sys
assert sys.stdin.read() == ""
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler), number
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
bits = int(status["SigIgn"], 16)
ignored = {one for one in signal.valid_signals() if bits >> one - 1 & 1}  # without those of glibc itself
assert ignored == {signal.SIGPIPE, signal.SIGXFSZ}, ignored  # by Python itself
assert int(status["SigBlk"], 16) == 0
"""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as after `sh script &`
    try:
        node.python(code)
    finally:
        signal.signal(signal.SIGINT, before)
    assert node.expect("exited").fields["code"] == 0, node.text()


def test_a_process_holds_no_descriptor_of_the_agent(node: Node) -> None:
    node.python(
        "import os; fds = sorted(map(int, os.listdir('/proc/self/fd')));"
        "report = int(os.environ['PADDLE_REPORT_FD']);"
        "open_fds = [fd for fd in fds if os.path.exists('/proc/self/fd/%d' % fd)];"
        "print('extra', [fd for fd in open_fds if fd not in (0, 1, 2, report)])"
    )
    node.expect("exited")
    assert node.text() == b"extra []\n"


def test_an_exit_code_comes_with_the_end_of_the_log(node: Node) -> None:
    node.python("print('\\n'.join('line %d' % i for i in range(200)))\nraise SystemExit(3)")
    fields = node.expect("exited").fields
    assert (fields["code"], fields["signal"]) == (3, None)
    assert fields["tail"].splitlines() == [f"line {i}" for i in range(80, 200)]


def test_a_tail_is_bounded_in_bytes(node: Node) -> None:
    node.python("print('x' * 1_000_000)")
    assert len(node.expect("exited").fields["tail"]) <= 16384


def test_a_signal_is_told_as_such(node: Node) -> None:
    node.python("import os; os.abort()", env={"PYTHONFAULTHANDLER": "1"})
    fields = node.expect("exited").fields
    assert (fields["code"], fields["signal"]) == (None, signal.SIGABRT)
    assert "Fatal Python error: Aborted" in fields["tail"]


@pytest.mark.parametrize(
    ("argv", "cwd", "why"),
    [
        (["/no/such/program"], None, "No such file"),
        (["sh"], "/no/such/dir", "No such file"),
        (["/etc/passwd"], None, "Permission denied"),
        (["a\0b"], None, "NUL"),
        ([], None, "argv is empty"),
        (["true", "x" * 10_000_000], None, "too long"),
    ],
)
def test_a_process_that_cannot_start_fails_with_the_reason(
    node: Node, argv: list[str], cwd: str | None, why: str
) -> None:
    node.link.send(
        "start", proc="p", role="trainer", rank=0, argv=argv, env={}, secret_env={}, log="log/train.log",
        cwd=cwd or str(node.root / "job"),
    )  # fmt: skip
    fields = node.expect("failed", request="start", proc="p").fields
    assert why in fields["detail"]


@pytest.mark.parametrize("log", ["/etc/x", "../x", "log/../../x", "", "log//x"])
def test_a_log_outside_the_job_directory_is_refused(node: Node, log: str) -> None:
    node.link.send("start", proc="p", argv=["true"], env={}, cwd=str(node.root / "job"), log=log)
    node.expect("failed", request="start")


def test_the_same_name_cannot_run_twice_at_a_time(node: Node) -> None:
    node.start(["sleep", "30"])
    node.link.send("start", proc="trainer-0", argv=["true"], env={}, cwd="/", log="log/train.log")
    assert "already running" in node.expect("failed", request="start").fields["detail"]


def test_an_orphan_of_a_process_does_not_delay_its_exit_and_is_still_heard(node: Node) -> None:
    (node.root / "job" / "go").unlink(missing_ok=True)
    node.start(["sh", "-c", "(while [ ! -e go ]; do sleep 0.05; done; echo late) & echo early"])
    node.expect("exited", code=0)
    (node.root / "job" / "go").touch()
    node.until(lambda _: b"late" in node.text(), 60, "the orphan's output")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to limit another user's processes")
def test_a_fork_bomb_under_a_limit_does_not_take_the_agent_along(node: Node) -> None:
    code = """
import os, resource, time
resource.setrlimit(resource.RLIMIT_NPROC, (200, 200))
os.setuid(65534)
children = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        children += 1
except BlockingIOError:
    print("forked", children, flush=True)
time.sleep(60)
"""
    node.python(code)
    node.until(lambda _: b"forked" in node.text(), 60, "the bomb went off")
    node.link.send("stop", procs=None, grace_s=0.5)
    assert node.expect("stopped").fields["left"] == []
    node.start(["true"], proc="after")


def test_a_log_file_that_is_removed_is_begun_anew(node: Node) -> None:
    log = Path(node.root / "job/log/train.log")
    node.start(["sh", "-c", "echo one; while [ -e log/train.log ]; do sleep 0.05; done; sleep 1.2; echo two"])
    node.until(lambda _: b"one" in node.text(), 60, "the first line")
    log.unlink()
    node.expect("exited", code=0)
    assert log.read_bytes() == b"two\n"
    assert any("removed or replaced" in event.fields["text"] for event in node.messages("notice"))


def test_a_variable_that_cannot_be_one_fails_the_start(node: Node) -> None:
    node.link.send(
        "start", proc="p", argv=["true"], env={"a=b": "c"}, cwd=str(node.root), log="log/x", secret_env={}
    )
    node.expect("failed", request="start", proc="p")


def test_a_named_pipe_in_place_of_a_log_does_not_hang_the_agent(node: Node) -> None:
    os.mkfifo(node.root / "job/log/pipe")
    node.start(["echo", "hello"], log="log/pipe")
    node.expect("exited", code=0)


def test_a_start_on_a_file_system_that_hangs_is_given_up_and_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "chdir", lambda _path: time.sleep(600))
    with pytest.raises(TimeoutError, match="file systems of /mnt/dead and of true"):
        spawn(["true"], {"PATH": os.environ["PATH"]}, "/mnt/dead", 1, limit_s=0.2)
    _, status = os.wait()
    assert os.WIFSIGNALED(status)


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group whose processes may have 64 MiB together."""
    base = next((base for base in MEMORY_GROUPS if (base / "cgroup.procs").is_file()), None)
    if base is None or not os.access(base, os.W_OK):
        pytest.skip("needs a writable control group for memory")
    group = base / f"paddle-test-{os.getpid()}"
    group.mkdir()
    try:
        limits = [group / name for name in ("memory.limit_in_bytes", "memory.max")]
        limit = next((limit for limit in limits if limit.exists()), None)
        if limit is None:
            pytest.skip("needs the memory controller")
        limit.write_text(str(64 << 20))
        yield group
    finally:
        group.rmdir()


def test_a_script_whose_child_was_killed_for_lack_of_memory_says_so(node: Node, small_group: Path) -> None:
    eat = "x = bytearray(1 << 30); [x.__setitem__(i, 1) for i in range(0, 1 << 30, 4096)]"
    child = f'echo $$ >"{small_group}/cgroup.procs"; exec "{sys.executable}" -c "{eat}"'
    node.start(["sh", "-c", f"sh -c '{child}'; exit $?"])
    exited = node.expect("exited").fields
    assert (exited["code"], exited["signal"]) == (128 + signal.SIGKILL, None)
    assert exited["out_of_memory"] in ("cgroup", "machine")
    node.python("raise SystemExit(0)")
    assert node.expect("exited").fields["out_of_memory"] == ""
