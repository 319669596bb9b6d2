# SPDX-License-Identifier: Apache-2.0
"""Pushing gradients and pulling values, and summing over ranks, compared with plain sockets, gloo and Open MPI."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from benchmarks.collectives.sides import Ranks, installed
from benchmarks.rows.loopback import own_loopback
from benchmarks.rows.row import Lacking, Row, Sides, Versus, Work
from benchmarks.serving import memory
from benchmarks.serving.measuring import goodput_of, latency_of
from benchmarks.serving.sides import KEY, Processes, ours, peer, raw
from benchmarks.timing import Contender
from paddle.sealing import CALLER, LAST, OVERHEAD, PIECE, TOKEN_BYTES, Opener, Sealer

_MODEL = 400_000_000
_SIZES = {"4KB": 4 << 10, "1MB": 1 << 20, "40MB": 40_000_000}
_SMALL = 64 << 10
_TURN_BYTES, _MOST_STEPS = 400_000_000, 500
_PACKAGES = {"gloo": "torch", "mpi": "mpi4py", "ps_lite": "mxnet"}


def _steps(work: Work, size: int) -> int:
    return max(3, min(_MOST_STEPS, int(_TURN_BYTES * work.scale) // size))


@contextmanager
def _pushes(
    work: Work, name: str, trainers: int, ways: Sequence[str], is_pinned: bool = False
) -> Iterator[Sides]:
    """Yield the sides of a step of `trainers` trainers with one server: each pushes a gradient and pulls all values.

    Args:
        is_pinned: whether each process has a core of its own, as in a job that computes between its pushes.
    """
    size = _SIZES[name]
    starts: Mapping[str, Callable[[], Processes]] = {
        "sealed": partial(ours, [size], trainers, key=KEY, within_node=False),
        "plain": partial(ours, [size], trainers, within_node=False),
        "plain_1_trainer": partial(ours, [size], 1, within_node=False),
        "sealed_2_ports": partial(ours, [size], trainers, key=KEY, within_node=False, ports=2),
        "plain_2_ports": partial(ours, [size], trainers, within_node=False, ports=2),
        "node": partial(ours, [size], trainers, in_place=True),
        "sockets": partial(raw, size, trainers, work.congestion),
        "checked_sockets": partial(raw, size, trainers, work.congestion, "checked"),
        "gloo": partial(peer, "gloo", size, trainers, work.peers_python),
        "ps_lite": partial(peer, "ps_lite", size, trainers, work.ps_lite_python),
    }

    def measured(side: Processes, turn: int) -> float:
        count = _steps(work, size)
        return latency_of(side, count) if size < _SMALL else goodput_of(side, count, size)

    with own_loopback(work.congestion), ExitStack() as stack:
        sides: list[Contender | Lacking] = []
        for way in ways:
            if way == "cipher":
                sides.append(Contender(way, lambda turn: _cipher(size, _steps(work, size))))
                continue
            python = work.ps_lite_python if way == "ps_lite" else work.peers_python
            package = _PACKAGES.get(way)
            if package and not installed(python, package):
                sides.append(Lacking(way, f"{package} is not installed in {python}"))
                continue
            side = stack.enter_context(starts[way]())
            if is_pinned:
                side.part()
            sides.append(Contender(way, partial(measured, side)))
        yield sides


def _cipher(size: int, steps: int) -> float:
    """Return GB/s of one trainer and one server if AES-256-GCM were their only work and both always had some."""
    key, token = bytes(32), bytes(TOKEN_BYTES)
    sealer, opener = Sealer(key, CALLER, token), Opener(key, CALLER, token)
    plain, sealed = memoryview(bytearray(PIECE)), memoryview(bytearray(PIECE + OVERHEAD))
    pieces = max(1, size * steps // PIECE)
    begun = time.thread_time()
    for _ in range(pieces):
        sealer.seal(plain, LAST, sealed)
        opener.open(sealed, plain)
    return 2 * PIECE * pieces / (time.thread_time() - begun) / 1e9


@contextmanager
def _sums(work: Work, name: str, ranks: int, ways: Sequence[str]) -> Iterator[Sides]:
    """Yield the sides that measure a sum of one array over all ranks: the median step of the slowest rank."""
    size = _SIZES[name]

    def measured(side: Ranks, turn: int) -> float:
        return max(map(statistics.median, side.steps([size], _steps(work, size)))) * 1e6

    def ciphered(turn: int) -> float:
        passed = 4 * size * (ranks - 1) / ranks  # what a rank sends and receives
        return passed / _cipher(size, _steps(work, size)) / 1e3

    with own_loopback(work.congestion), ExitStack() as stack:
        sides: list[Contender | Lacking] = []
        for way in ways:
            if way == "cipher":
                sides.append(Contender(way, ciphered))
                continue
            python = work.peers_python if way in _PACKAGES else sys.executable
            if way in _PACKAGES and not installed(python, _PACKAGES[way]):
                sides.append(Lacking(way, f"{_PACKAGES[way]} is not installed in {python}"))
                continue
            side = stack.enter_context(Ranks(way, ranks, python))
            sides.append(Contender(way, partial(measured, side)))
        yield sides


_PYTHON = "several dozen Python calls per message at each end, compared with one in C"


def _push(
    name: str,
    trainers: int,
    versus: Sequence[Versus],
    why: str = "",
    suffix: str = "",
    detail: str = "",
    is_pinned: bool = False,
) -> Row:
    ways = tuple(dict.fromkeys(side for one in versus for side in (one.ours, one.theirs)))
    who = "1 trainer" if trainers == 1 else f"{trainers} trainers"
    return Row(
        f"push_{name}_w{trainers}{suffix}",
        f"push and pull {name[:-2]} {name[-2:]}, {who}, one server{detail}",
        "µs" if _SIZES[name] < _SMALL else "GB/s",
        partial(_pushes, name=name, trainers=trainers, ways=ways, is_pinned=is_pinned),
        tuple(versus),
        turns=5,
        why=why,
    )


@contextmanager
def _memory(work: Work) -> Iterator[Sides]:
    """Yield the sides that measure a trainer's memory beyond its values and gradients, over encrypted TCP."""

    def beyond(
        start: Callable[[int], Processes], sizes: tuple[int, int], model: Callable[[int], int], turn: int
    ) -> float:
        return max(0.001, memory.copies(start, sizes, model).steps)

    size = max(int(_MODEL * work.scale), 1 << 20) // 4096 * 4096
    width = memory.WIDTH // 4 if work.is_quick else memory.WIDTH
    client = partial(beyond, lambda size: ours([size], 1, key=KEY, within_node=False), (size, 4096), int)
    yield [Contender("client", client)] + [
        Contender(
            face,
            partial(beyond, partial(memory.trainer, face, KEY), (width, memory.TINY_WIDTH), memory.bytes_of),
        )
        for face in ("v2", "fluid")
    ]


def _sum(name: str, ranks: int, versus: Sequence[Versus], what: str, why: str = "") -> Row:
    ways = tuple(dict.fromkeys(side for one in versus for side in (one.ours, one.theirs)))
    return Row(
        f"sum_{name}_r{ranks}",
        what,
        "µs",
        partial(_sums, name=name, ranks=ranks, ways=ways),
        tuple(versus),
        turns=5,
        why=why,
    )


_LARGE = (
    Versus("sealed", "plain", 0.6),
    Versus("sealed", "cipher"),
    Versus("sealed", "gloo"),
    Versus("plain", "sockets"),
    Versus("plain", "gloo"),
    Versus("node", "sockets"),
)
_SOCKETS = (
    Versus("plain", "sockets", 0.8),
    Versus("plain", "checked_sockets"),
    Versus("sealed", "plain", 0.7),
    Versus("sealed", "cipher"),
)
_MIDDLE = (Versus("plain", "ps_lite", 1.0), *_SOCKETS)
_LITTLE = (
    Versus("sealed", "ps_lite", 1.0),
    Versus("plain", "ps_lite", 1.0),
    Versus("sealed", "sockets"),
    Versus("plain", "sockets"),
    Versus("node", "sockets"),
)
_SEALED = "AES-GCM at both ends, and 8 µs of Python per message"
ROWS = (
    _push("40MB", 1, _LARGE, _SEALED),
    _push("40MB", 2, _LARGE, _SEALED),
    _push(
        "40MB",
        8,
        (Versus("plain", "plain_1_trainer", 1.0), Versus("plain", "sockets"), Versus("node", "sockets")),
        "nine processes on these cores displace each other's data from the caches",
    ),
    *(_push("1MB", trainers, _MIDDLE, _PYTHON) for trainers in (1, 2)),
    *(_push("1MB", trainers, _SOCKETS, _PYTHON) for trainers in (4, 8)),
    _push(
        "1MB",
        2,
        (Versus("plain_2_ports", "plain", 1.0), Versus("sealed_2_ports", "sealed", 1.0)),
        "a model of this size uses one port, so that both do the same work",
        "_ports",
        " with two ports instead of one",
    ),
    _push("4KB", 1, _LITTLE, _PYTHON, detail=", each with a core of its own", is_pinned=True),
    _push("4KB", 1, _LITTLE, _PYTHON, "_free", ", on any core, as in jobs"),
    Row(
        "trainer_memory",
        "memory of a trainer beyond its values and gradients (400 MB), encrypted TCP, copies of the model",
        "copies",
        _memory,
        at_most={"client": 0.1, "v2": 0.1, "fluid": 0.1},
        turns=1,
        warm_up=False,
    ),
    _sum(
        "40MB",
        2,
        (Versus("sealed", "gloo", 0.8), Versus("sealed", "cipher"), Versus("tcp", "gloo", 1.5)),
        "all-reduce of 40 MB between 2 hosts, encrypted and plain",
        "gloo does not encrypt",
    ),
    _sum("4KB", 4, (Versus("node", "mpi", 0.5),), "all-reduce of 4 KB, 4 ranks on one node", _PYTHON),
    _sum(
        "1MB",
        4,
        (Versus("node", "mpi", 1.2),),
        "all-reduce of 1 MB, 4 ranks on one node",
        "4 ranks on these cores",
    ),
)
