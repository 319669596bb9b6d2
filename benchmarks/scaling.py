# SPDX-License-Identifier: Apache-2.0
"""Measures how a whole job scales with the number of trainers: word2vec from workspace_template on local nodes.

    python -m benchmarks.scaling [--json FILE] [--quick] [--only 1,2,3,sample] [--turns N] [--peers_python PYTHON]

There are as many nodes as trainers, each with a pserver and a trainer, all on this machine, so they share its cores.
Samples per second are those of all trainers together, from the batch after the warm-up to the last. `sample`: three
trainers with the settings of the README's job, in steps per second, compared with one process without a server and with
PyTorch, which has the same net with all tensors dense: alone, and three processes by DistributedDataParallel over gloo.
`sample_one_server` is the same job with a pserver on only one node.
Two sides limit what any exchange can reach: `sample_apart` is three processes that exchange nothing. Those of
`sample_barrier` only wait for each other after every step.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import machine
from benchmarks.arguments import add_peers_python, parser
from benchmarks.machine import ONE_THREAD
from benchmarks.report import Report, tell
from benchmarks.timing import Contender, interleave

ROOT = Path(__file__).resolve().parents[1]
COUNTS = ("1", "2", "3")
SAMPLE = (
    "sample_job",
    "sample_one_server",
    "sample_alone",
    "sample_ddp",
    "sample_torch",
    "sample_apart",
    "sample_barrier",
)
SAMPLE_BATCH = 64
WORDS, BATCH, BATCHES, QUICK_BATCHES, WARM_UP = 2000, 32, 400, 40, 20
MANUAL = ("--manual_settings",)  # as slow as in PaddlePaddle's manual
_JOB_S = 300.0
_ENTRY = """
import json, os, time
import paddle.v2 as paddle
import train

rank, count = int(os.environ.get("PADDLE_TRAINER_ID", "0")), int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
if train.cluster:
    paddle.init()
else:
    paddle.init(use_gpu=False, trainer_count=1)
cost = train.network(%d)
adagrad = paddle.optimizer.AdaGrad(
    learning_rate=train.settings.learning_rate,
    regularization=paddle.optimizer.L2Regularization(train.settings.l2_rate),
)
trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), adagrad, is_local=not train.cluster)
warm_up, times, cpu = %d, [], []
pipes = json.loads(os.environ.get("BENCHMARK_PIPES", "null"))  # own reading end, others' writing ends

def of_servers():
    job, ticks = os.environ.get("PADDLE_JOB_ID", "").encode(), 0
    for pid in filter(str.isdigit, os.listdir("/proc")) if job and not rank else ():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line, open(f"/proc/{pid}/environ", "rb") as env:
                if b"pserver" in line.read().split(bytes(1)) and job in env.read():
                    with open(f"/proc/{pid}/stat") as stat:
                        ticks += sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")

def note(event):
    if isinstance(event, paddle.event.EndIteration):
        if pipes:
            for other in pipes[1]:
                os.write(other, b"-")
            waited = len(pipes[1])
            while waited:
                waited -= len(os.read(pipes[0], waited))
        times.append(time.monotonic())
        if len(times) == 1:
            os.write(1, f"first {times[0]}\\n".encode())  # whole, also where trainers share a pipe
        if len(times) == warm_up + 1:
            cpu[:] = time.process_time(), of_servers()
    if isinstance(event, paddle.event.EndPass):
        cpu[:] = time.process_time() - cpu[0], of_servers() - cpu[1]

lines = paddle.reader.shuffle(train.reader(train.own_files("./train.txt", rank, count)), 10000)
feeding = {name: column for column, name in enumerate(train.WORDS)}
trainer.train(reader=paddle.batch(lines, train.settings.batch_size), num_passes=1, event_handler=note, feeding=feeding)
done = (len(times) - warm_up - 1) * train.settings.batch_size
print("times", json.dumps([times[warm_up], times[-1], done, *cpu]), flush=True)
"""


class Times(NamedTuple):
    """A trainer's report: its start and end, its number of samples, and the CPU time of it and of all servers."""

    begin: float
    end: float
    samples: int
    cpu_s: float
    servers_cpu_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    arguments = parser("benchmarks.scaling", __doc__, (*COUNTS, *SAMPLE))
    arguments.add_argument("--turns", type=int, default=3, metavar="N", help="of each number of trainers (3)")
    add_peers_python(arguments, "PyTorch")
    given = arguments.parse_args(argv)
    counts = [name for name in given.only if name in COUNTS]
    batches = QUICK_BATCHES if given.quick else BATCHES
    report = Report(tell=tell)
    with tempfile.TemporaryDirectory(prefix="paddle-scaling-") as folder:
        turns = 1 if given.quick else given.turns
        contenders = [_contender(Path(folder), int(count), batches) for count in counts]
        found, failed = interleave(contenders, turns)
        report.add_all(found, failed, "samples/s")
        sample = [name for name in given.only if name in SAMPLE]
        _measure_sample(report, sample, Path(folder), 2 * batches, given.peers_python, turns)
    for count in counts[1:]:
        first = counts[0]
        report.compare(f"trainers_{count}_vs_{first}", f"trainers_{count}", f"trainers_{first}")
    report.show(machine.describe(("numpy", "pyzmq")), given.json, given.plot)
    return 0


def _measure_sample(
    report: Report, names: Sequence[str], folder: Path, batches: int, peers_python: str, turns: int
) -> None:
    """Measure steps per second, and the CPU time per step, of a trainer and of a server."""
    cpu_ms: dict[str, list[float]] = {}
    sides: dict[str, Callable[[], list[Times]]] = {
        "sample_job": lambda: job_times(folder, 3, batches, ()),
        "sample_one_server": lambda: job_times(folder, 3, batches, (), pservers=(0,)),
        "sample_alone": lambda: alone_times(folder, batches, ()),
        "sample_ddp": lambda: torch_times(folder, 3, batches // 2, peers_python),
        "sample_torch": lambda: torch_times(folder, 1, batches // 2, peers_python),
        "sample_apart": lambda: apart_times(folder, 3, batches, waits=False),
        "sample_barrier": lambda: apart_times(folder, 3, batches, waits=True),
    }

    def measure(name: str, turn: int) -> float:
        seen = sides[name]()
        steps = sum(each.samples for each in seen) / SAMPLE_BATCH
        for who, seconds in (("", [each.cpu_s for each in seen]), ("_server", [seen[0].servers_cpu_s])):
            cpu_ms.setdefault(f"{name}{who}_cpu", []).append(sum(seconds) / steps * 1e3)
        return rate(seen) / SAMPLE_BATCH

    found, failed = interleave([Contender(name, partial(measure, name)) for name in names], turns)
    report.add_all(found, failed, "steps/s")
    for name, values in cpu_ms.items():
        if min(values):
            report.add(name, min(values), "ms/step", "least, of each")
    pairs = [(side, other) for side in ("job", "one_server") for other in ("alone", "ddp", "barrier")]
    pairs.append(("one_server", "job"))
    for ours, theirs in [*pairs, ("apart", "alone"), ("barrier", "alone")]:
        if {f"sample_{ours}", f"sample_{theirs}"} <= {*names}:
            report.compare(f"sample_{ours}_vs_{theirs}", f"sample_{ours}", f"sample_{theirs}")


def job(folder: Path, trainers: int, batches: int, settings: Sequence[str] = MANUAL) -> float:
    """Run one job; return samples per second of all its trainers; see `job_times`."""
    return rate(job_times(folder, trainers, batches, settings))


def alone(folder: Path, batches: int, settings: Sequence[str] = MANUAL) -> float:
    """Train in one process, without a server; return samples per second; see `alone_times`."""
    return rate(alone_times(folder, batches, settings))


def rate(seen: Sequence[Times]) -> float:
    """Return samples per second of all trainers."""
    return sum(each.samples for each in seen) / (
        max(each.end for each in seen) - min(each.begin for each in seen)
    )


def job_times(
    folder: Path, trainers: int, batches: int, settings: Sequence[str], pservers: Sequence[int] | None = None
) -> list[Times]:
    """Run one job; return the reports of its trainers.

    Args:
        batches: batches of 32 for each trainer.
        settings: arguments of the script.
        pservers: indices of the nodes that run a pserver; None means all.

    Raises:
        RuntimeError: it failed; the message contains its last output.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        workspace = Path(scratch, "ws")
        prepare(workspace, trainers, batches)
        conf = Path(scratch, "conf.py")
        chosen = [*range(trainers)] if pservers is None else [*pservers]
        lines = f"HOSTS = {['local'] * trainers!r}\nPSERVERS = {chosen!r}\n"
        conf.write_text(f"{lines}ROOT_DIR = {str(Path(scratch, 'nodes'))!r}\n")
        argv = ["paddle.py", f"--conf={conf}", f"--job_dispatch_package={workspace}", "--entry=measured.py"]
        argv += settings
        _run([sys.executable, *argv], ROOT, {"PADDLE_STATE_DIR": scratch})
        logs = [path.read_text() for path in workspace.glob("log/node_*/train.log")]
    return _reports_in("\n".join(logs), trainers)


def alone_times(folder: Path, batches: int, settings: Sequence[str]) -> list[Times]:
    """Train in one process, without a server; return its report.

    Raises:
        RuntimeError: it failed; the message contains its last output.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        workspace = Path(scratch, "ws")
        prepare(workspace, 1, batches)
        (workspace / "train.txt-00000").rename(workspace / "train.txt")
        argv = [sys.executable, "-u", "measured.py", *settings]
        printed = _run(argv, workspace, {**ONE_THREAD, "PYTHONPATH": str(ROOT / "runtime")})
    return _reports_in(printed, 1)


def apart_times(folder: Path, count: int, batches: int, *, waits: bool) -> list[Times]:
    """Train in several processes at a time, without servers; return their reports.

    Args:
        waits: whether every process waits for the others after each step.

    Raises:
        RuntimeError: one failed; the message contains its last output.
    """
    ends = [os.pipe() for _ in range(count)]
    try:
        with tempfile.TemporaryDirectory(dir=folder) as scratch, ThreadPoolExecutor(count) as pool:

            def train(rank: int) -> str:
                workspace = Path(scratch, f"ws{rank}")
                prepare(workspace, 1, batches)
                (workspace / "train.txt-00000").rename(workspace / "train.txt")
                others = [writing for number, (_, writing) in enumerate(ends) if number != rank]
                pipes = {"BENCHMARK_PIPES": json.dumps([ends[rank][0], others])} if waits else {}
                env = {**ONE_THREAD, "PYTHONPATH": str(ROOT / "runtime"), **pipes}
                return _run([sys.executable, "-u", "measured.py"], workspace, env, (ends[rank][0], *others))

            return _reports_in("".join(pool.map(train, range(count))), count)
    finally:
        for end in (end for pair in ends for end in pair):
            os.close(end)


def torch_times(folder: Path, ranks: int, batches: int, python: str) -> list[Times]:
    """Have PyTorch train the same net.

    Args:
        batches: batches of `SAMPLE_BATCH` for each rank.

    Raises:
        RuntimeError: it failed; the message contains its last output.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        words = map(str, (ranks, batches, min(WARM_UP, batches // 2 - 2), Path(scratch, "meeting")))
        argv = [python, "-W", "ignore", "-m", "benchmarks.learning.torch_together", *words]
        printed = _run(argv, ROOT, {**ONE_THREAD, "PYTHONPATH": str(ROOT)})
    return _reports_in(printed, ranks)


def _run(argv: Sequence[str], cwd: Path, env: Mapping[str, str], descriptors: Sequence[int] = ()) -> str:
    """Run a command and return what it printed. Raises RuntimeError: it failed, with its last output."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=_JOB_S,
        check=False,
        pass_fds=descriptors,
    )
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout)[-500:])
    return done.stdout


def _reports_in(text: str, trainers: int) -> list[Times]:
    lines = [line for line in text.splitlines() if line.startswith("times ")]
    if len(lines) != trainers:
        raise RuntimeError(f"{len(lines)} of {trainers} trainers printed their times")
    return sorted((Times(*json.loads(line[6:])) for line in lines), key=lambda each: -each.servers_cpu_s)


def _contender(folder: Path, trainers: int, batches: int) -> Contender:
    return Contender(f"trainers_{trainers}", lambda turn: job(folder, trainers, batches))


def prepare(workspace: Path, trainers: int, batches: int) -> None:
    """Create the workspace: `measured.py` prints "first" and the clock after a batch, "times" at the end."""
    (workspace / "output").mkdir(parents=True)
    shutil.copy(ROOT / "workspace_template" / "train.py", workspace)
    warm_up = min(WARM_UP, batches // 2 - 2)
    (workspace / "measured.py").write_text(_ENTRY % (WORDS, warm_up))
    (workspace / "word_dict.pickle").write_bytes(pickle.dumps({str(i): i for i in range(WORDS)}))
    rng = random.Random(1)
    for piece in range(trainers):
        lines = (",".join(str(rng.randrange(WORDS)) for _ in range(5)) for _ in range(BATCH * batches))
        (workspace / f"train.txt-{piece:05d}").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
