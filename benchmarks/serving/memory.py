# SPDX-License-Identifier: Apache-2.0
"""The memory of a trainer beyond its own values and gradients, in copies of the model.

Resident memory is compared with that of the same program with a tiny model, so that interpreter and packages do not
count. The system records the peak: since the start of the process, and again during the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.serving.measuring import Plan
from benchmarks.serving.sides import KEY, Processes, ours, trained

STEPS = 5
_OWN = 2  # copies: values and gradients
_MODEL = 400_000_000
_TINY = 4096
WIDTH, TINY_WIDTH, _BATCH = 6900, 64, 32
_RESET_PEAK = "5"


class Peaks(NamedTuple):
    """The largest resident memory of a trainer, in bytes: until its first step has ended, and during `STEPS` steps."""

    start: int
    steps: int

    @classmethod
    def of(cls, side: Processes) -> Peaks:
        """Have the only trainer take steps, and return its peaks."""
        process = Path(f"/proc/{side.pids[-1]}")
        start = _peak(process)
        (process / "clear_refs").write_text(_RESET_PEAK)
        side.steps(STEPS)
        return cls(start, _peak(process))


class Copies(NamedTuple):
    """The same, as copies of the model beyond values and gradients."""

    start: float
    steps: float


def copies(
    start: Callable[[int], Processes], sizes: tuple[int, int], model_bytes: Callable[[int], int]
) -> Copies:
    """Return the trainer's peaks as copies of the model beyond its values and gradients.

    Args:
        start: starts a server and one trainer with a model of the given size.
        sizes: of the model, and of a tiny one.
        model_bytes: returns the bytes of a model of the given size.
    """
    found = []
    for size in sizes:
        with start(size) as side:
            found.append(Peaks.of(side))
    model = model_bytes(sizes[0]) - model_bytes(sizes[1])
    return Copies(*((big - tiny) / model - _OWN for big, tiny in zip(*found, strict=True)))


def measure(plan: Plan) -> None:
    """Add the figures of the client, with one array and with 20, and of whole trainers of v2 and Fluid."""

    def client(size: int, count: int, key: str | None, apart: bool) -> Processes:
        sizes = [max(size // count // _TINY, 1) * _TINY] * count
        return ours(sizes, 1, key=key, within_node=False, push_then_pull=apart)

    for name, key in (("plain", None), ("sealed", KEY)):
        for count in (1, 20):
            for call, apart in (("push_pull", False), ("push_then_pull", True)):
                start = partial(client, count=count, key=key, apart=apart)
                size = plan.size(_MODEL)
                _add(plan, f"{name}_{count}_arrays_{call}", start, (size, count * _TINY), int)
    width = WIDTH if plan.scale == 1.0 else WIDTH // 4
    for face in ("v2", "fluid"):
        for name, key in (("plain", None), ("sealed", KEY)):
            _add(plan, f"{name}_{face}", partial(trainer, face, key), (width, TINY_WIDTH), bytes_of)


def bytes_of(width: int) -> int:
    """Return the size of the model of `trainer`."""
    return 4 * width * (784 + 2 * width + 10)


def trainer(face: str, key: str | None, width: int) -> Processes:
    """Return a server and one trainer, of v2 or Fluid, whose model has three layers of this width."""
    return trained(face, 1, key=key, width=width, batch=_BATCH, apart=True)


def _add(
    plan: Plan,
    name: str,
    start: Callable[[int], Processes],
    sizes: tuple[int, int],
    model_bytes: Callable[[int], int],
) -> None:
    try:
        found = copies(start, sizes, model_bytes)
    except (RuntimeError, OSError) as error:
        plan.report.lack(f"memory_{name}", str(error))
        return
    for when, beyond in found._asdict().items():
        plan.report.add(f"memory_{name}_{when}", round(beyond, 3), "copies")


def _peak(process: Path) -> int:
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
