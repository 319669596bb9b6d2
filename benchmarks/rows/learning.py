# SPDX-License-Identifier: Apache-2.0
"""Training steps of one process compared with PyTorch, eager and compiled, with the same number of threads."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from benchmarks import scaling
from benchmarks.learning import clicks
from benchmarks.learning import work as networks
from benchmarks.rows.row import Lacking, Row, Sides, Versus, Work
from benchmarks.serving.sides import environment
from benchmarks.timing import Contender
from benchmarks.training import Child

_BATCHES, _IMPORT_S = 800, 60.0
_COMPILED = ("resnet20", "lenet")  # torch.compile takes minutes for more of them
_STEPS = {
    "lenet": 20,
    "resnet20": 5,
    "vgg16": 2,
    "lstm": 20,
    "recurrent": 20,
    "decoder": 20,
    "word2vec": 200,
    "ctc": 50,
}
_BATCH_OF = {
    **{name: batch for name, (batch, _) in networks.PICTURES.items()},
    **dict.fromkeys(networks.LENGTHS, networks.SENTENCES),
    "ctc": networks.SEQUENCES,
}
_IMPORTS_MS = {"paddle.v2": 280.0, "paddle.fluid": 320.0}


@contextmanager
def _steps(work: Work, name: str, batch: int, threads: int, compiled: bool) -> Iterator[Sides]:
    """Yield the sides that measure a network's training, in samples per second."""
    steps = 1 if work.is_quick else _STEPS[name]
    program = [name, *([str(batch)] if name == "word2vec" else [])]
    ours = ["v2_recurrent"] if name == "recurrent" else ["ours", *program]
    ways: Mapping[str, tuple[str, Sequence[str]]] = {
        "ours": (sys.executable, ours),
        "torch": (work.peers_python, ["torch_peer", *program]),
        **(
            {"torch_compiled": (work.peers_python, ["torch_peer", *program, "--compile"])} if compiled else {}
        ),
    }

    def measured(child: Child, turn: int) -> float:
        return batch * steps / float(child.steps(steps)["wall_s"])

    with ExitStack() as stack:
        sides: list[Contender | Lacking] = []
        for way, (python, argv) in ways.items():
            try:
                child = stack.enter_context(Child(python, argv, threads))
            except (RuntimeError, OSError) as error:
                sides.append(Lacking(way, str(error)))
            else:
                sides.append(Contender(way, partial(measured, child)))
        yield sides


@contextmanager
def _clicks(work: Work) -> Iterator[Sides]:
    """Yield the sides of click prediction, from text to updated parameters, with a reading and a training thread."""
    text = work.scratch / "clicks.txt"
    rows = clicks.BATCH if work.is_quick else clicks.ROWS
    clicks.write(text, rows)

    def measured(child: Child, turn: int) -> float:
        return rows / float(child.steps(1)["wall_s"])

    with ExitStack() as stack:
        sides: list[Contender | Lacking] = []
        for way, python in (("ours", sys.executable), ("torch", work.peers_python)):
            module = "fluid_clicks" if way == "ours" else "torch_clicks"
            try:
                child = stack.enter_context(Child(python, [module, str(text)], 1))
            except (RuntimeError, OSError) as error:
                sides.append(Lacking(way, str(error)))
            else:
                sides.append(Contender(way, partial(measured, child)))
        yield sides


@contextmanager
def _imports(work: Work) -> Iterator[Sides]:
    """Yield the sides that measure the CPU time of a Python process that imports a package."""

    def run(package: str, turn: int) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        argv = [sys.executable, "-P", "-c", f"import {package}"]
        subprocess.run(argv, env=environment(), check=True, timeout=_IMPORT_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    yield [Contender(package, partial(run, package)) for package in (*_IMPORTS_MS, "numpy")]


@contextmanager
def _job(work: Work) -> Iterator[Sides]:
    """Yield the sides of word2vec from workspace_template: a whole job, one process without a server, PyTorch."""
    batches = 40 if work.is_quick else _BATCHES
    yield [
        Contender("ours_3_trainers", lambda turn: scaling.job(work.scratch, 3, batches, ())),
        Contender("alone", lambda turn: scaling.alone(work.scratch, batches, ())),
        Contender(
            "torch_ddp",
            lambda turn: scaling.rate(scaling.torch_times(work.scratch, 3, batches // 2, work.peers_python)),
        ),
    ]


def _network(name: str, what: str, reach: float, threads: int, why: str = "") -> Row:
    compiled = name in _COMPILED
    of = f"{threads} threads" if threads > 1 else "one thread"
    return Row(
        name,
        f"{what}, {of}",
        "samples/s",
        partial(_steps, name=name, batch=_BATCH_OF[name], threads=threads, compiled=compiled),
        (Versus("ours", "torch", reach), *([Versus("ours", "torch_compiled")] if compiled else [])),
        turns=5,
        why=why,
    )


ROWS = (
    Row(
        "imports",
        "CPU time of a process that imports a package",
        "ms",
        _imports,
        (Versus("paddle.v2", "numpy"), Versus("paddle.fluid", "numpy")),
        _IMPORTS_MS,
        turns=9,
    ),
    Row(
        "job_3_trainers",
        "the job in README: 3 trainers and 3 servers on one machine",
        "samples/s",
        _job,
        (Versus("ours_3_trainers", "alone", 0.7), Versus("ours_3_trainers", "torch_ddp", 1.5)),
        turns=3,
        warm_up=False,
        why="three trainers and a server share the cores; see Limits",
    ),
    _network("resnet20", "training ResNet-20, batches of 128", 0.7, 2, "batch norm and sums on numpy"),
    _network(
        "vgg16", "training VGG-16, batches of 32", 0.7, 2, "convolutions with 512 channels on images of 4 x 4"
    ),
    _network("lenet", "training LeNet, batches of 128", 0.9, 2),
    _network(
        "lstm",
        "training an LSTM on 32 sentences (PyTorch pads them)",
        1.0,
        1,
        "fresh memory: 4,200 page faults per step",
    ),
    _network("recurrent", "training a plain recurrent_group (PyTorch: a loop) on 32 sentences", 1.0, 1),
    _network("ctc", "CTC costs and gradients of 16 sequences of up to 300 steps", 1.0, 1),
    _network("decoder", "training the book's decoder in a DynamicRNN", 1.0, 1),
    Row(
        "word2vec",
        "training word2vec with a sparse table, batches of 32, one thread",
        "samples/s",
        partial(_steps, name="word2vec", batch=32, threads=1, compiled=False),
        (Versus("ours", "torch", 1.0),),
        turns=5,
    ),
    Row(
        "clicks",
        "training on clicks with a dataset (PyTorch: a DataLoader), batches of 256, from text to parameters",
        "samples/s",
        _clicks,
        (Versus("ours", "torch", 1.5),),
        turns=5,
    ),
)
