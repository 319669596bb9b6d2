# SPDX-License-Identifier: Apache-2.0
"""How a whole job gets faster with more trainers: word2vec from workspace_template, submitted to local nodes.

    python -m benchmarks.scaling [--json FILE] [--quick] [--only 1,2,3] [--turns N]

As many nodes as trainers, each with a pserver beside its trainer, all on this machine: what is shared is its cores.
Samples a second are those of all trainers together, from the batch after the warm-up to the last.
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
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.arguments import parser
from benchmarks.machine import ONE_THREAD
from benchmarks.report import Report, tell
from benchmarks.timing import Contender, interleave

ROOT = Path(__file__).resolve().parents[1]
COUNTS = ("1", "2", "3")
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
times = []

def note(event):
    if isinstance(event, paddle.event.EndIteration):
        times.append(time.monotonic())
        if len(times) == 1:
            print("first", times[0], flush=True)

lines = train.reader(train.own_files("./train.txt", rank, count))
feeding = {name: column for column, name in enumerate(train.WORDS)}
trainer.train(reader=paddle.batch(lines, train.settings.batch_size), num_passes=1, event_handler=note, feeding=feeding)
done = (len(times) - %d) * train.settings.batch_size
print("times", json.dumps([times[%d], times[-1], done]), flush=True)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    arguments = parser("benchmarks.scaling", __doc__, COUNTS)
    arguments.add_argument("--turns", type=int, default=3, metavar="N", help="of each number of trainers (3)")
    given = arguments.parse_args(argv)
    batches = QUICK_BATCHES if given.quick else BATCHES
    report = Report(tell=tell)
    with tempfile.TemporaryDirectory(prefix="paddle-scaling-") as folder:
        contenders = [_contender(Path(folder), int(count), batches) for count in given.only]
        found, failed = interleave(contenders, 1 if given.quick else given.turns)
    report.add_all(found, failed, "samples/s")
    for count in given.only[1:]:
        first = given.only[0]
        report.compare(f"trainers_{count}_vs_{first}", f"trainers_{count}", f"trainers_{first}")
    report.show(machine.describe(("numpy", "pyzmq", "numba")), given.json, given.plot)
    return 0


def job(folder: Path, trainers: int, batches: int, settings: Sequence[str] = MANUAL) -> float:
    """Run one job; return samples a second of all its trainers.

    Args:
        batches: of 32, for each trainer.
        settings: arguments of the script.

    Raises:
        RuntimeError: it failed; says what it printed last.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        workspace = Path(scratch, "ws")
        prepare(workspace, trainers, batches)
        conf = Path(scratch, "conf.py")
        conf.write_text(f"HOSTS = {['local'] * trainers!r}\nROOT_DIR = {str(Path(scratch, 'nodes'))!r}\n")
        argv = ["paddle.py", f"--conf={conf}", f"--job_dispatch_package={workspace}", "--entry=measured.py"]
        argv += settings
        done = subprocess.run(
            [sys.executable, *argv],
            cwd=ROOT,
            env={**os.environ, "PADDLE_STATE_DIR": scratch},
            capture_output=True,
            text=True,
            timeout=_JOB_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError((done.stderr or done.stdout)[-500:])
        logs = [path.read_text() for path in workspace.glob("log/node_*/train.log")]
        seen = [
            json.loads(line[6:]) for log in logs for line in log.splitlines() if line.startswith("times ")
        ]
    if len(seen) != trainers:
        raise RuntimeError(f"{len(seen)} of {trainers} trainers told their times")
    return _rate(seen)


def alone(folder: Path, batches: int, settings: Sequence[str] = MANUAL) -> float:
    """Run the same in one process, without a server; return samples a second.

    Raises:
        RuntimeError: it failed; says what it printed last.
    """
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        workspace = Path(scratch, "ws")
        prepare(workspace, 1, batches)
        (workspace / "train.txt-00000").rename(workspace / "train.txt")
        done = subprocess.run(
            [sys.executable, "-u", "measured.py", *settings],
            cwd=workspace,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT / "runtime")},
            capture_output=True,
            text=True,
            timeout=_JOB_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout)[-500:])
    return _rate([json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("times ")])


def _rate(seen: Sequence[tuple[float, float, int]]) -> float:
    took_s: float = max(end for _, end, _ in seen) - min(begin for begin, _, _ in seen)
    return sum(count for *_, count in seen) / took_s


def _contender(folder: Path, trainers: int, batches: int) -> Contender:
    return Contender(f"trainers_{trainers}", lambda turn: job(folder, trainers, batches))


def prepare(workspace: Path, trainers: int, batches: int) -> None:
    """Make the workspace: `measured.py` prints "first" and the clock after a batch, "times" at the end."""
    (workspace / "output").mkdir(parents=True)
    shutil.copy(ROOT / "workspace_template" / "train.py", workspace)
    warm_up = min(WARM_UP, batches // 2 - 2)
    (workspace / "measured.py").write_text(_ENTRY % (WORDS, warm_up + 1, warm_up))
    (workspace / "word_dict.pickle").write_bytes(pickle.dumps({str(i): i for i in range(WORDS)}))
    rng = random.Random(1)
    for piece in range(trainers):
        lines = (",".join(str(rng.randrange(WORDS)) for _ in range(5)) for _ in range(BATCH * batches))
        (workspace / f"train.txt-{piece:05d}").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
