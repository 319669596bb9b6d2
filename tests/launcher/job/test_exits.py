# SPDX-License-Identifier: Apache-2.0
"""How the end of a process is described, and the advice for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddle_cluster.job.causes import judge, last_error, left_early
from paddle_cluster.job.failure_report import remedy, report
from paddle_cluster.nodes.failure import Failure, FailureKind, describe_exit
from tests.launcher.job.test_failure import CULPRIT, ERROR, GLOO, LEFT, OURS, STORE, TORCH, VICTIM, trainer


@pytest.mark.parametrize(
    ("code", "number", "memory", "text"),
    [
        (3, None, "", "exit code 3"),
        (None, 11, "", "signal 11 (SIGSEGV)"),
        (None, 63, "", "signal 63"),
        (0, None, "", "exit code 0"),
        (
            137,
            None,
            "cgroup",
            "exit code 137 after one of its processes was killed by the kernel's out-of-memory killer",
        ),
        (
            1,
            None,
            "machine",
            "exit code 1 while the kernel of that machine was killing processes for lack of memory",
        ),
        (None, 9, "cgroup", "signal 9 (SIGKILL) from the kernel's out-of-memory killer"),
        (
            None,
            9,
            "machine",
            "signal 9 (SIGKILL) while the kernel of that machine was killing processes for lack of memory",
        ),
    ],
)
def test_an_exit_is_told_by_code_or_signal(
    code: int | None, number: int | None, memory: str, text: str
) -> None:
    assert describe_exit(code, number, memory) == text


def test_a_child_killed_for_lack_of_memory_is_advised_on_whatever_its_parent_raised() -> None:
    what = describe_exit(1, None, "machine")
    tail = ("Traceback (most recent call last):", '  File "a", line 1', "RuntimeError: worker 12 was killed")
    assert "--nproc_per_node" in remedy(Failure(FailureKind.EXIT, "node-a", "trainer-0", what, tail, code=1))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("ModuleNotFoundError: No module named 'torch.nn'; 'torch' is not a package", "torch.py"),
        ("ImportError: cannot import name 'nn' from 'torch' (/j/JOB1/torch.py)", "torch.py"),
        (
            "AttributeError: partially initialized module 'numpy' has no attribute 'a' (most likely",
            "numpy.py",
        ),
        ("ModuleNotFoundError: No module named 'torch'", "requirements.txt"),
        ("ModuleNotFoundError: No module named 'numpy.nope'", "has a numpy, rename"),
        ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "json.tool"),
        ("subprocess.CalledProcessError: Command '['false']' returned non-zero exit status 1.", "stderr"),
        ("RecursionError: maximum recursion depth exceeded", "ends the recursion"),
        ("SyntaxError: invalid syntax", "compileall"),
        ("[rank1]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:13207.", "another rank"),
        ("torch.distributed.DistNetworkError: Ping failed, invalid value", "MASTER_ADDR"),
        ("AssertionError: Unknown backend type glo", "gloo"),
        ("RuntimeError: Distributed package doesn't have MPI built in. MPI is", "gloo"),
        ("_tkinter.TclError: no display name and no $DISPLAY environment variable", "Agg"),
        (
            "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>",
            "copy what the script",
        ),
        ("OSError: [Errno 99] Cannot assign requested address", "POD_IP"),
        ("KeyError: 'SLURM_PROCID'", 'read os.environ["RANK"]'),
        ("KeyError: 'LEARNING_RATE'", "--env=LEARNING_RATE"),
        ("AttributeError: module 'paddle' has no attribute 'nn'", "2.0"),
        ("ImportError: cannot import name 'nn' from 'paddle' (/j/paddle/__init__.py)", "2.0"),
        ("ModuleNotFoundError: paddle.nn is not supported: use paddle.fluid or paddle.v2", "2.0"),
        ("torch.distributed.DistNetworkError: The address already in use", "mp.spawn"),
        (
            "paddle.errors.PortBusy: cannot listen on 10.0.0.1:7164: Address already in use: held by",
            "PADDLE_PORT",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: '../data/a.pt'", "outside"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '~/a'", "Python does not expand ~/a"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'output/a.pt'", "output/ is not sent"),
        (
            "E1128 07:28:38.582268 22302 __main__.py:91] --start_pass=2 needs output/pass-00001, which is missing or "
            "incomplete: choose a different --start_pass, or give --init_model_path",
            "copy output/pass-00001 to another directory",
        ),
        ("paddle.errors.ConfigError: pservers: endpoint '10.0.0.1': expected 'ip:port'", "PORT_LIST"),
        (
            "paddle.fluid.errors.FluidError: '10.0.0.2:1' is not one of the servers: 10.0.0.1:6174",
            "PORT_LIST",
        ),
        ("_pickle.UnpicklingError: invalid load key, 'v'.", "git lfs"),
        (
            "ValueError: DistributedDataParallel device_ids and output_device arguments only",
            "omit device_ids",
        ),
        ("RuntimeError: Error(s) in loading state_dict for Linear:", "model.module.state_dict()"),
        ("RuntimeError: [unbound_buffer.cc:129] Timed out waiting 5000ms for send", "timeout="),
        ("ValueError: Default process group has not been initialized, please make", "init_process_group("),
        (
            "ValueError: Error initializing torch.distributed using file:// rendezvous: rank parameter missing",
            "without init_method",
        ),
        ("FileExistsError: [Errno 17] File exists: 'output'", 'os.makedirs("output", exist_ok=True)'),
        ("EOFError: Ran out of input", "empty or incomplete"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'torchrun'", "--nproc_per_node=N"),
        ("RuntimeError: Parent directory /nodir does not exist.", 'makedirs("/nodir"'),
    ],
)
def test_a_hidden_package_a_syntax_error_and_a_lost_peer_are_advised_on(line: str, word: str) -> None:
    tail = ("Traceback (most recent call last):", '  File "a", line 1', line)
    assert word in remedy(Failure(FailureKind.EXIT, "node-a", "trainer-0", "exit code 1", tail, code=1))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("./run.sh: line 3: conda: command not found", "conda is defined only in login shells"),
        ("./run.sh: 3: module: not found", "module is defined only in login shells"),
        ("CondaError: Run 'conda init' before 'conda activate'", "PYTHON in conf.py"),
        ("./run.sh: line 2: /v/bin/activate: No such file or directory", "must exist on every node"),
        ("./run.sh: line 2: exec: uv: not found", "uv is not in PATH"),
        ("sh: uv: not found", "uv is not in PATH"),
        (
            "./a.sh: line 2: /v/torchrun: cannot execute: required file not found",
            "the first line of /v/torchrun",
        ),
        ("./a.sh: /v/pip: /w/python: bad interpreter: No such file or directory", "the first line of /v/pip"),
        ("RuntimeError: DataLoader worker (pid 42) is killed by signal: Killed. ", "lower num_workers"),
        ("./c.sh: 2: source: not found", "write `. ./FILE`"),
        ("./a.sh: line 3: python: command not found", "$PADDLE_PYTHON"),
        ("/usr/bin/env: ‘python’: No such file or directory", "$PADDLE_PYTHON"),
        ("./a.sh: line 3: python3.13: command not found", "python3.13 is not in PATH"),
        ("/usr/bin/env: ‘uv’: No such file or directory", "uv is not in PATH"),
        ("./run.sh: line 3: $'\\r': command not found", "sed -i 's/\\r$//' run.sh"),
        ("/j/run.sh: 2: \\r: not found", "sed -i 's/\\r$//' run.sh"),
        ("cat: 'a.txt'$'\\r': No such file or directory", "sed -i 's/\\r$//' FILE"),
        ("./run.sh: line 3: SLURM_PROCID: unbound variable", "no job has SLURM_PROCID: use RANK instead"),
        ("./run.sh: 3: SLURM_NTASKS: parameter not set", "use WORLD_SIZE instead"),
        ("./run.sh: line 3: SLURM_X: unbound variable", "--env=SLURM_X=VALUE"),
        ("/usr/bin/python: can't open file '/j/JOB1/trian.py': [Errno 2] No such file", "trian.py is not in"),
        ("./run.sh: line 2: cd: src: No such file or directory", "src is not in the job's directory"),
        ("train.py: error: unrecognized arguments: --gpus=2", "the script does not know --gpus=2"),
        ("srun: error: Unable to create step", "run the script without srun"),
        (
            "./run.sh: line 2: torchrun: command not found",
            "run the script without torchrun. --nproc_per_node=N",
        ),
        ("./run.sh: line 2: cd: /root/src: No such file or directory", "remove the `cd`"),
        ("./run.sh: line 2: ./prepare: Permission denied", "chmod +x"),
    ],
)
def test_an_error_of_a_shell_script_has_a_remedy(line: str, words: str) -> None:
    assert words in remedy(
        Failure(FailureKind.EXIT, "node-a", "trainer-0", "exit code 127", ("x", line), code=127)
    )


def test_successive_errors_of_a_shell_script_all_have_a_remedy() -> None:
    tail = (
        "./c.sh: 1: gone: not found",
        "loss 1",
        "./c.sh: 2: source: not found",
        "./c.sh: 3: python: not found",
    )
    text = remedy(Failure(FailureKind.EXIT, "node-a", "trainer-0", "exit code 127", tail, code=127))
    assert "gone" not in text  # the script continued after it
    assert text.index("write `. ./FILE`") < text.index("$PADDLE_PYTHON")


@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_a_long_traceback_shows_the_script_and_the_error_without_calls_of_libraries(prefix: str) -> None:
    calls = [
        line
        for n in range(12)
        for line in (f'  File "/r/.paddle/runtime/a/paddle/m{n}.py", line 1, in f', "    f()")
    ]
    script = ['  File "/r/JOB1/train.py", line 13, in train', "    exe.run(feed=feed)"]
    tail = [
        "epoch 1",
        "Traceback (most recent call last):",
        *script,
        *calls,
        "ValueError: a label",
        "it was 3",
    ]
    failure = Failure(
        FailureKind.EXIT, "a", "trainer-0", "exit code 1", tuple(prefix + line for line in tail), code=1
    )
    shown = "\n".join(report(judge([failure])))
    assert f'{prefix}  File "/r/JOB1/train.py", line 13' in shown
    assert "exe.run(feed=feed)" in shown
    assert "... 12 calls within libraries" in shown
    assert "m3.py" not in shown
    assert "epoch 1" in shown
    assert "it was 3" in shown


@pytest.mark.parametrize(
    "error",
    ["ValueError: vocab not found", "RuntimeError: dataset: mnist not found", "OSError: 404: file not found"],
)
def test_an_error_of_a_script_is_not_explained_as_one_of_a_shell(error: str) -> None:
    tail = ("Traceback (most recent call last):", '  File "train.py", line 1', error)
    assert remedy(Failure(FailureKind.EXIT, "node-a", "trainer-0", "exit code 1", tail, code=1)) == ""


def test_a_traceback_that_follows_a_prompt_is_found() -> None:
    tail = (
        "rate? Traceback (most recent call last):",
        '  File "a", line 1',
        "EOFError: EOF when reading a line",
    )
    assert "input" in remedy(Failure(FailureKind.EXIT, "node-a", "trainer-0", "exit code 1", tail, code=1))


def test_a_fluid_script_without_a_branch_for_pservers_is_advised_on() -> None:
    failure = Failure(FailureKind.NOT_READY, "a", "pserver-0", "did not answer on its ports within 30 s")
    assert "TRAINING_ROLE" in remedy(failure)


def test_a_crash_of_compiled_code_is_advised_on() -> None:
    what = describe_exit(None, 11, "")
    assert "numpy" in remedy(Failure(FailureKind.EXIT, "node-a", "trainer-0", what, (), signal=11))


def test_the_prefix_of_a_rank_hides_neither_the_error_nor_that_others_have_it() -> None:
    tail = [
        "Traceback (most recent call last):",
        '  File "x"',
        "FileNotFoundError: [Errno 2] No such file or directory: 'a.pt'",
    ]
    failures = [
        trainer(rank, "exit code 1", *(f"[rank{rank}]: {line}" for line in tail)) for rank in range(2)
    ]
    found = judge(failures)
    assert last_error(failures[1]) == tail[-1]
    assert found.same == (failures[1],)
    assert any("a.pt" in line for line in report(found) if line.startswith("  try: "))


@pytest.mark.parametrize(
    "tail",
    [
        (GLOO,),
        (GLOO.replace("[10.0.0.6]", "10.0.0.6"),),
        (OURS,),
        (STORE,),
        ("CollectiveError: rank 1 (10.0.0.6:6170) was lost: the connection was closed",),
        (TORCH, "RuntimeError: Connection reset by peer"),
    ],
)
def test_a_rank_that_ended_with_0_is_the_cause_where_others_waited_for_it(tail: tuple[str, ...]) -> None:
    failures = [
        replace(trainer(0, "exit code 1", *tail), at=12.0),
        replace(trainer(2, "exit code 1", *tail), at=12.1),
    ]
    assert left_early(failures, [LEFT]) == [LEFT]
    conclusion = judge([*failures, LEFT])
    assert (conclusion.cause, conclusion.others) == (LEFT, ())
    lines = report(conclusion)
    assert lines[0] == (
        "FIRST ERROR: trainer 1 on node-b: exited early with code 0 while other ranks were waiting for it"
    )
    if tail == (GLOO,):
        assert "connection to [10.0.0.6]:41873 (trainer 1 on node-b) lost" in "\n".join(lines)


def test_hung_ranks_waited_for_one_that_ended_with_0() -> None:
    assert left_early([replace(VICTIM, at=12.0)], [LEFT]) == [LEFT]
    assert left_early([replace(CULPRIT, at=12.0)], [LEFT]) == []


@pytest.mark.parametrize(
    "failures",
    [
        [replace(ERROR, at=12.0)],
        [replace(ERROR, at=12.0), replace(trainer(2, "exit code 1", GLOO), at=12.1)],
        [replace(trainer(0, "exit code 1", GLOO), at=8.0)],  # it ended after that
        [replace(trainer(0, "exit code 1", GLOO.replace("0.0.6", "0.0.7")), at=12.0)],
        [replace(trainer(0, "exit code 1", "OperationalError: connection to 192.168.7.7 refused"), at=12.0)],
        [replace(trainer(0, "exit code 1", "OperationalError: connection refused"), at=12.0)],
        [replace(trainer(0, "exit code 1", OURS.replace("rank 1", "rank 2")), at=12.0)],
    ],
)
def test_a_rank_that_was_done_is_not_blamed_for_what_others_failed_of(failures: list[Failure]) -> None:
    assert left_early(failures, [LEFT]) == []
