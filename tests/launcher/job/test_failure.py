# SPDX-License-Identifier: Apache-2.0
"""The first cause: what is told when several things fail at once, on the screen and in failure.json."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paddle_cluster.errors import ExitCode
from paddle_cluster.job import failure_report
from paddle_cluster.job.causes import first_cause, hidden_errors, judge, last_error
from paddle_cluster.job.failure_report import report
from paddle_cluster.nodes.failure import RESTART, Failure, FailureKind, Incident


def trainer(rank: int, what: str = "exit code 1", *tail: str, late: bool = False) -> Failure:
    return Failure(
        FailureKind.EXIT, f"node-{'abc'[rank % 3]}", f"trainer-{rank}", what, tail, f"ws/log/node_{rank}/train.log",
        node_id=rank % 3, code=1, addresses=frozenset({f"10.0.0.{rank % 3 + 5}"}), late=late,
    )  # fmt: skip


NODE = Failure(
    FailureKind.NODE_LOST, "node-b", "", "no message for 10 s", node_id=1, addresses=frozenset({"10.0.0.6"})
)
PSERVER = Failure(
    FailureKind.EXIT, "node-c", "pserver-2", "signal 9 (SIGKILL)", ("bye",), node_id=2, signal=9,
    addresses=frozenset({"10.0.0.7"}),
)  # fmt: skip
FROZEN = replace(
    PSERVER, kind=FailureKind.FROZEN, what="frozen: state T", signal=None, stacks="pid 7: state T"
)
STALLED = replace(FROZEN, kind=FailureKind.STALLED)
ERROR = trainer(0, "exit code 1", "Traceback (most recent call last):", '  File "x"', "ValueError: no")
LATER = trainer(1, "exit code 3", "last words")
ECHO = trainer(
    1, "exit code 1", "Traceback (most recent call last):", "PserverLost: 10.0.0.7:7164 did not answer"
)
RESET = trainer(0, "exit code 1", "ConnectionResetError: [Errno 104] Connection reset by peer")
HUNG = replace(trainer(1, "hung: no step for 600 s"), kind=FailureKind.HUNG, code=None)

WAITING = """\
Current thread 0x00007f0c (most recent call first):
  File "/r/paddle/pserver/client/exchange.py", line 88 in answers
  File "/r/paddle/v2/training/remote.py", line 12 in push_pull
  File "/root/JOB1/train.py", line 9 in <module>
Thread 0x00007f0b (most recent call first):
  File "/r/paddle/report.py", line 9 in _live
"""
BUSY = """\
Thread 0x00007f0b (most recent call first):
  File "/r/paddle/pserver/client/reachability.py", line 9 in probe
Current thread 0x00007f0c (most recent call first):
  File "/root/JOB1/train.py", line 7 in wait_for_the_other_lock
  File "/r/paddle/v2/training/trainer.py", line 12 in train
"""
VICTIM = replace(trainer(0, "hung: no step for 600 s"), kind=FailureKind.HUNG, code=None, stacks=WAITING)
CULPRIT = replace(HUNG, stacks=BUSY)
PATH = replace(
    NODE, kind=FailureKind.CUT_OFF, what="it cannot reach node-c at 10.0.0.7: no answer within 2 s"
)
NO_VALUES = trainer(
    1,
    "exit code 1",
    "paddle.errors.PserverError: trainer 0 left before it initialized the parameters; see its log",
)

# (what failed, in order of arrival; the cause; the exit code)
HISTORIES = [
    ([ERROR], ERROR, ExitCode.PROCESS_FAILED),
    ([ERROR, LATER], ERROR, ExitCode.PROCESS_FAILED),
    ([LATER, ERROR], LATER, ExitCode.PROCESS_FAILED),
    ([ERROR, PSERVER], PSERVER, ExitCode.LOST),
    ([ERROR, PSERVER, LATER, NODE], NODE, ExitCode.LOST),
    ([RESET, LATER], LATER, ExitCode.PROCESS_FAILED),  # the echo arrived first
    ([ECHO, STALLED], STALLED, ExitCode.LOST),  # it did not even exit
    ([LATER, STALLED], LATER, ExitCode.PROCESS_FAILED),  # these are no words of somebody's victim
    ([ERROR, FROZEN], FROZEN, ExitCode.LOST),
    ([HUNG], HUNG, ExitCode.PROCESS_FAILED),
    ([VICTIM, CULPRIT], CULPRIT, ExitCode.PROCESS_FAILED),  # whose timer fires first is chance
    ([VICTIM], VICTIM, ExitCode.PROCESS_FAILED),
    ([VICTIM, HUNG], HUNG, ExitCode.PROCESS_FAILED),  # of which nobody knows where it is
    ([VICTIM, PATH], PATH, ExitCode.LOST),
    ([PATH, ERROR], ERROR, ExitCode.PROCESS_FAILED),  # which has a traceback of its own
    ([NO_VALUES, ERROR], ERROR, ExitCode.PROCESS_FAILED),
    ([replace(PSERVER, late=True), ERROR], ERROR, ExitCode.PROCESS_FAILED),  # we ended that one
]


@pytest.mark.parametrize(("failures", "cause", "code"), HISTORIES)
def test_the_cause_is_what_explains_the_others(
    failures: list[Failure], cause: Failure, code: ExitCode
) -> None:
    assert first_cause(failures) is cause
    assert judge(failures).cause is cause
    assert cause.exit_code is code


def test_the_report_begins_with_the_cause_and_names_echoes_as_such() -> None:
    ended = trainer(2, "signal 15 (SIGTERM)", late=True)
    assert report(judge([ECHO, PSERVER, LATER, replace(ended, signal=15)])) == [
        "FIRST ERROR: pserver 2 on node-c: signal 9 (SIGKILL)",
        "  the end of its log:",
        "    bye",
        "  try: a program outside the job killed it, such as kill -9 or the limits of a container or a batch system; "
        "see its log",
        "  also failed: trainer 1 on node-b: exit code 3",
        "  consequence: trainer 1 on node-b: exit code 1: connection to 10.0.0.7:7164 (pserver 2 on node-c) lost",
        "  stopped by the launcher: trainer 2 on node-c",
    ]


def test_who_waits_for_somebody_that_hangs_is_an_echo() -> None:
    (secondary,) = judge([VICTIM, CULPRIT]).secondary
    assert (secondary.failure, secondary.why) == (VICTIM, "it waits for its peers")


def test_who_finds_no_first_values_is_an_echo_of_whoever_should_have_given_them() -> None:
    (secondary,) = judge([NO_VALUES, ERROR]).secondary
    assert secondary.failure is NO_VALUES


def test_a_broken_connection_to_somebody_who_did_not_fail_is_no_echo() -> None:
    elsewhere = trainer(0, "exit code 1", "PserverLost: pserver 10.9.9.9:80 did not answer for 60 s")
    conclusion = judge([elsewhere, PSERVER])
    assert conclusion.secondary == ()
    assert conclusion.others == (elsewhere,)


@pytest.mark.parametrize(
    "words",
    [
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "TimeoutError: timed out",
        "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:4141",
        "paddle.errors.PserverLost: pserver 10.0.0.7:7164 did not answer for 60 s; the connection is broken",
        "torch.distributed.DistBackendError: NCCL error: unhandled system error",
    ],
)
def test_last_words_of_a_broken_connection_make_an_echo(words: str) -> None:
    assert [
        secondary.failure.process
        for secondary in judge([trainer(0, "exit code 1", words), PSERVER]).secondary
    ] == ["trainer-0"]


def test_what_ran_on_a_lost_node_is_its_echo() -> None:
    (secondary,) = judge([trainer(1, "signal 9"), NODE]).secondary
    assert secondary.why == "it ran on the lost node"


def test_64_times_the_same_traceback_is_told_once() -> None:
    tail = (
        "Traceback (most recent call last):",
        '  File "train.py"',
        "ModuleNotFoundError: No module named 'x'",
    )
    crowd = [trainer(rank, "exit code 1", *tail, late=rank > 5) for rank in range(64)]
    lines = report(judge(crowd))
    assert sum("ModuleNotFoundError" in line for line in lines) == 1
    assert any(
        line.startswith("  and 63 more with the same last line: trainer 1 on node-b") for line in lines
    )
    assert len(lines) < 10


def test_tracebacks_that_differ_by_numbers_alone_are_the_same() -> None:
    def missing(rank: int) -> Failure:
        last = f"FileNotFoundError: no piece train.txt-{rank:05d}"
        return trainer(rank, "exit code 1", "Traceback (most recent call last):", '  File "train.py"', last)

    crowd = [missing(rank) for rank in range(4)]
    assert judge(crowd).same == tuple(crowd[1:])


def test_the_report_is_one_screen_whatever_happened() -> None:
    tail = tuple(f"line {number} " + "x" * 5000 for number in range(40))
    crowd = [replace(trainer(rank, f"exit code {rank}", *tail), code=rank) for rank in range(500)]
    lines = report(judge(crowd), [f"restart {number}" for number in range(100)])
    assert len(lines) < 50
    assert max(map(len, lines)) < 500


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ([ERROR, LATER], "trainer 0 on node-a: exit code 1: ValueError: no"),
        ([LATER], "trainer 1 on node-b: exit code 3: last line: last words"),
        ([RESET, NODE], "node node-b: no message for 10 s"),
    ],
)
def test_the_last_line_of_a_job_names_who_failed_first_and_why(failures: list[Failure], said: str) -> None:
    assert failure_report.headline(judge(failures).cause) == said


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (
            "ModuleNotFoundError: No module named 'torch'",
            "the nodes' Python has no torch",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/a'",
            "data/a is not in the job's directory",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/a'",
            "/data/a must exist on every node",
        ),
        (
            "    role = sys.argv[1]\n           ~~~~~~~~^^^\nIndexError: list index out of range",
            "--entry=./run.sh",
        ),
        ("    row = rows[1]\nIndexError: list index out of range", ""),
        (
            "    main(sys.argv[1])\nFileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'",
            "if ffmpeg is a program",
        ),
        ("torch.distributed.DistStoreError: Timed out after 9 seconds waiting for clients.", "WORLD_SIZE"),
        (
            "torch.distributed.DistNetworkError: failed to listen, message: address already in use",
            "MASTER_PORT",
        ),
        ("OSError: [Errno 98] Address already in use", "MASTER_PORT"),
        (
            "    dist.init_process_group('gloo', rank=int(os.environ['LOCAL_RANK']), world_size=2)\n"
            "torch.distributed.DistNetworkError: failed to listen, message: address already in use",
            "LOCAL_RANK counts within a node",
        ),
        ("SyntaxError: Non-UTF-8 code starting with '\\xe9' in file a.py", "coding: latin-1"),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated", "__main__"),
        (
            "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:31139.",
            "different collective calls",
        ),
        (
            "RuntimeError: [enforce fail at pair.cc:446] op.preamble.length <= op.nbytes. 12 vs 8",
            "shapes or dtypes",
        ),
        ("EOFError: EOF when reading a line", "standard input is empty"),
        ("bdb.BdbQuit", "remove breakpoint()"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '.env'", ".env is not sent"),
        ("EOFError: Ran out of input", "empty or incomplete"),  # a truncated pickle
        ("MemoryError", "fewer processes per node"),
        ("OSError: [Errno 28] No space left on device", "free space on that node"),
        ("ValueError: no", ""),
    ],
)
def test_what_many_scripts_die_of_is_told_with_what_helps(error: str, helps: str) -> None:
    tail = ["Traceback (most recent call last):", '  File "x"', *error.splitlines()]
    lines = report(judge([trainer(0, "exit code 1", *tail)]))
    found = [line for line in lines if line.startswith("  try: ")]
    assert len(found) == bool(helps)
    assert helps in "".join(found)


def test_an_uncaught_exception_of_cpp_is_the_error_of_its_process() -> None:
    what = "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 300000 vs 299900."
    tail = ("terminate called after throwing an instance of 'gloo::EnforceNotMet'", f"  what():  {what}",
            "Fatal Python error: Aborted", "", '  File "train.py", line 4 in <module>')  # fmt: skip
    crashed = replace(trainer(1, "signal 6 (SIGABRT)", *tail), code=None, signal=6)
    assert failure_report.headline(crashed).endswith(what)
    assert "shapes or dtypes" in "".join(report(judge([crashed])))


def test_a_python_error_before_an_abort_gets_no_advice_on_compiled_code() -> None:
    tail = ("Traceback (most recent call last):", '  File "train.py", line 5, in <module>', "ValueError: bad sample",
            "terminate called without an active exception", "Fatal Python error: Aborted")  # fmt: skip
    crashed = replace(trainer(1, "signal 6 (SIGABRT)", *tail), code=None, signal=6)
    assert "  try: " not in "\n".join(report(judge([crashed])))
    assert "compiled code" in "".join(report(judge([replace(crashed, tail=tail[-1:])])))


@pytest.mark.parametrize(
    ("option", "helps"),
    [("--local_rank", "LOCAL_RANK"), ("--local-rank", "LOCAL_RANK"), ("--data", "paddle")],
)
def test_a_missing_argument_is_the_error_of_all_trainers(option: str, helps: str) -> None:
    error = f"train.py: error: the following arguments are required: {option}"
    lines = report(judge([trainer(rank, "exit code 2", "usage: train.py [-h]", error) for rank in range(3)]))
    assert helps in next(line for line in lines if line.startswith("  try: "))
    assert sum("trainer 1" in line for line in lines) == 1
    assert not [line for line in lines if "also failed" in line]


def test_a_program_that_a_node_lacks_may_be_the_interpreter_of_a_script() -> None:
    what = "could not be started: [Errno 2] No such file or directory: './run.sh'"
    assert "(#!)" in report(judge([trainer(0, what)]))[-1]


def test_a_lost_node_is_told_without_a_process() -> None:
    assert report(judge([NODE])) == ["FIRST ERROR: node node-b: no message for 10 s"]


def test_a_frozen_process_is_told_with_where_it_was() -> None:
    assert report(judge([FROZEN]))[:3] == [
        "FIRST ERROR: pserver 2 on node-c: frozen: state T",
        "  its stacks:",
        "    pid 7: state T",
    ]


def test_a_hang_names_the_limit_that_it_passed() -> None:
    assert "raise STEP_TIMEOUT_S in conf.py" in "".join(report(judge([HUNG])))


def test_the_error_of_a_log_is_the_last_line_of_its_last_traceback() -> None:
    tail = ("Traceback (most recent call last):", "  ...", "KeyError: 1", "", "During handling ...",
            "Traceback (most recent call last):", "  ...", "ValueError: 2", "trailing output")  # fmt: skip
    assert last_error(trainer(0, "exit code 1", *tail)) == "ValueError: 2"
    assert last_error(trainer(0, "exit code 1", "no traceback")) == ""
    aborted = "terminate called without an active exception"
    assert (
        last_error(trainer(0, "signal 6 (SIGABRT)", "end", aborted, "Fatal Python error: Aborted")) == aborted
    )
    assert (
        last_error(trainer(0, "exit code 1", '  File "train.py", line 1', "TabError: no")) == "TabError: no"
    )


def test_failure_json_holds_what_the_screen_says(tmp_path: Path) -> None:
    cause = replace(PSERVER, at=1_700_000_000.0, log="ws/log/node_2/server.log")
    problem = failure_report.write(
        tmp_path / "log",
        job_id="JOB1",
        code=ExitCode.LOST,
        conclusion=judge([ECHO, cause]),
        incidents=[Incident(RESTART, "trainer 0 is started again", at=1_600_000_000.0)],
        stacks={"trainer-1": "Thread 0x1"},
        advice="add memory",
    )
    assert problem == ""
    content = json.loads((tmp_path / "log" / "failure.json").read_text())
    assert (content["schema_version"], content["job_id"], content["exit_code"]) == (1, "JOB1", 5)
    first = content["first_cause"]
    assert (first["node"], first["role"], first["rank"], first["process"]) == (
        "node-c",
        "pserver",
        2,
        "pserver-2",
    )
    assert (first["what"], first["signal"], first["code"]) == ("signal 9 (SIGKILL)", 9, None)
    assert (first["time"], first["log_end"]) == ("2023-11-14T22:13:20.000+00:00", ["bye"])
    assert (first["log"], first["advice"]) == ("ws/log/node_2/server.log", "add memory")
    (secondary,) = content["echoes"]
    assert (secondary["process"], secondary["why"]) == (
        "trainer-1",
        "connection to 10.0.0.7:7164 (pserver 2 on node-c) lost",
    )
    assert secondary["error"] == "PserverLost: 10.0.0.7:7164 did not answer"
    assert (content["incidents"][0]["kind"], content["stacks"]) == ("restart", {"trainer-1": "Thread 0x1"})


def test_a_log_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    problem = failure_report.write(
        tmp_path / "log", job_id="J", code=ExitCode.LOST, conclusion=judge([NODE]), incidents=[], stacks={}
    )
    assert "failure.json" in problem


LEFT = replace(
    trainer(1, "exited early with code 0 while other ranks were waiting for it"),
    kind=FailureKind.LEFT,
    code=0,
    at=10.0,
)
GLOO = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.6]:41873"
OURS = "paddle.collective.errors.PeerDiffers: rank 1 (10.0.0.6:6170) has left after 3 operations, while this rank"
STORE = (
    "torch.distributed.DistNetworkError: recvValue failed on SocketImpl(fd=3, addr=[::ffff:10.0.0.5]:47372, "
    "remote=[::ffff:10.0.0.6]:29500): failed to recv, got 0 bytes"
)
TORCH = '  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 1, in barrier'


def test_errors_in_the_logs_of_processes_that_exited_with_code_0_are_reported_once() -> None:
    trace = (
        "Traceback (most recent call last):",
        '  File "train.py", line 2, in work',
        "ValueError: in thread",
        "done",
    )
    retried = (*trace, "epoch 1", "epoch 2")
    in_thread = ("Exception in thread Thread-1 (work):", *retried)
    ignored = ("Exception ignored in: <function Pool.__del__>", *trace)
    (line,) = hidden_errors(
        [("trainer-0", trace), ("trainer-1", trace), ("trainer-2", ("done",)), ("a", ignored)]
    )
    assert hidden_errors([("a", retried)]) == []
    assert len(hidden_errors([("a", in_thread)])) == 1
    assert line.startswith(
        "WARNING: trainer-0, trainer-1 exited with code 0, but its log ends with an error: ValueError"
    )
