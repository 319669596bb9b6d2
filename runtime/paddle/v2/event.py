# SPDX-License-Identifier: Apache-2.0
"""The events that ``trainer.train`` passes to its event handler, with costs and metrics.

Events are passed in this order: BeginPass; for each batch, BeginIteration, EndForwardBackward and EndIteration;
EndPass. ``batch_id`` starts at 0 in every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from paddle_node.contract.classes import dataclass, field, fields

if TYPE_CHECKING:
    from paddle.v2.training.gradient_machine import LayerOutputs


_SYNONYMS = {
    "loss": "cost",
    "epoch": "pass_id",
    "epoch_id": "pass_id",
    "batch": "batch_id",
    "step": "batch_id",
}


class _Metrics(dict[str, float]):
    """Metrics by name; the error for an unknown name lists the known names."""

    def __missing__(self, name: object) -> NoReturn:
        known = ", ".join(map(repr, self)) or "none: the network has no evaluator"
        hint = "; the cost is the attribute cost" if name in ("cost", "loss") else ""
        raise KeyError(
            f"no metric {name}; the metrics are {known}; paddle.evaluator.*(name=...) sets a name{hint}"
        )


class Event:
    """Base class of events, whose error for an unknown attribute names what has it."""

    def __getattr__(self, name: str) -> NoReturn:
        mine = type(self)
        known = [each for each in mine.__fields__ if each != "evaluator"]  # type: ignore[attr-defined]
        known += ["metrics"] if isinstance(self, WithMetric) else []
        asked = _SYNONYMS.get(name, name)
        owners = [
            each.__name__
            for each in (EndIteration, EndPass)
            if asked in {*(one.name for one in fields(each)), *dir(each)}
        ]
        hint = f"; it has {', '.join(known)}"
        if asked in known:
            hint += f": use {asked}"
        elif owners and not isinstance(self, WithMetric):
            hint = f": check its type first, `if isinstance(event, paddle.event.{owners[0]}):`"
        elif owners:
            hint += f". {owners[0]} has the {asked} of a batch, and trainer.test(reader) that of a reader's samples"
        raise AttributeError(f"event {mine.__name__} has no {name}{hint}", name=name, obj=None)


class WithMetric(Event):
    """Base class of events with metrics, which are computed when they are first accessed."""

    evaluator: Callable[[], dict[str, float]]

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics by name; the first call computes them."""
        return _Metrics(self.evaluator())


@dataclass(frozen=True)
class TestResult(WithMetric):
    """The result of ``trainer.test``: the cost per sample, and metrics; as a number, it is its cost."""

    evaluator: Callable[[], dict[str, float]] = field(repr=False)
    cost: float

    __test__ = False

    def __float__(self) -> float:
        return self.cost

    def __format__(self, spec: str) -> str:
        return format(self.cost, spec) if spec else str(self)


class WithoutMetric(Event):
    """Base class of events that are passed before a batch's or a pass's results exist."""


@dataclass(frozen=True)
class BeginPass(WithoutMetric):
    """Event at the beginning of a pass."""

    pass_id: int


@dataclass(frozen=True)
class EndPass(WithMetric):
    """Event at the end of a pass; its metrics cover the whole pass."""

    pass_id: int
    evaluator: Callable[[], dict[str, float]] = field(repr=False)
    gm: LayerOutputs = field(repr=False)


@dataclass(frozen=True)
class BeginIteration(WithoutMetric):
    """Event at the beginning of a batch."""

    pass_id: int
    batch_id: int


@dataclass(frozen=True)
class EndForwardBackward(WithoutMetric):
    """Event after a batch's backward pass: gradients are available, and the weights have not changed yet."""

    pass_id: int
    batch_id: int
    gm: LayerOutputs = field(repr=False)


@dataclass(frozen=True)
class EndIteration(WithMetric):
    """Event at the end of a batch, whose update has changed the weights; cost per sample, and metrics of this batch."""

    pass_id: int
    batch_id: int
    cost: float
    evaluator: Callable[[], dict[str, float]] = field(repr=False)
    gm: LayerOutputs = field(repr=False)


def __getattr__(name: str) -> NoReturn:
    events = [each for each in globals() if each.startswith(("Begin", "End", "Test"))]
    raise AttributeError(f"module {__name__!r} has no event {name!r}; its events are {', '.join(events)}")
