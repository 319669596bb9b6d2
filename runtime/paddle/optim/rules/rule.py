# SPDX-License-Identifier: Apache-2.0
"""The interface of update rules, and steps that several of them share, such as L1 and L2 decay.

A rule works in place on float32 arrays of equal shape: a flat slice of a dense parameter, or rows of a sparse one. It
is elementwise unless it declares that it needs whole parameters. It holds hyperparameters only; the caller keeps the
state arrays between batches. NumPy functions dispatch to cupy when the arrays are on a GPU.

Formulas use the letters of the papers: w value, g gradient, m momentum, η rate, λ L2 decay, μ momentum
factor, ρ and β decay of averages, ε, t the batch counted from 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from paddle_node.contract.classes import NamedTuple

Array: TypeAlias = npt.NDArray[np.float32]
State: TypeAlias = Mapping[str, Array]


class Step(NamedTuple):
    """The scalars of one update step.

    Attributes:
        eta: the learning rate η: the schedule's rate times the parameter's factor.
        l2: λ, or 0 where decay is applied after the rule.
        mu: the momentum factor μ.
        t: batches so far, counting this one.
        elapsed: for rows, (n, 1) float32: batches since the row was last touched, counting this one.
        first: whether this is the first update; for rows (n, 1) bool.
    """

    eta: float
    l2: float
    mu: float
    t: int
    elapsed: Any = 1.0
    first: Any = False


class Rule(ABC):
    """Base class of update rules; annotated names of subclasses are the hyperparameters with their defaults.

    Args:
        hyper: hyperparameters that differ from their defaults.
    """

    keeps: ClassVar[tuple[str, ...]] = ()
    """Names of the state arrays, all initially 0."""
    row_keeps: ClassVar[tuple[str, ...]] = ()
    """Names of arrays with one number for a whole row, (n, 1): only sparse parameters can use such a rule."""
    has_momentum: ClassVar[bool] = False
    """Whether parameters with a momentum also have the state array "m": see `descend`."""
    follows_schedule: ClassVar[bool] = True
    """Whether the rule uses the learning rate schedule; if not, it uses the optimizer's base rate."""
    handles_rows: ClassVar[bool] = False
    """Whether sparse parameters can use the rule."""
    penalizes_gradient: ClassVar[bool] = False
    """Whether L1 and L2 are terms of the gradient, as in Fluid, and not decay, as in v2."""
    needs_whole: ClassVar[bool] = False
    """Whether the rule computes norms, so that a parameter must be updated as a whole."""

    def __init__(self, **hyper: float) -> None:
        if unknown := hyper.keys() - self.defaults():
            raise TypeError(f"{type(self).__name__}: unknown hyperparameters {sorted(unknown)}")
        vars(self).update(hyper)

    @classmethod
    def defaults(cls) -> dict[str, float]:
        """Return the default of each hyperparameter by name."""
        bases = cls.__mro__[: cls.__mro__.index(Rule)]
        return {
            name: getattr(cls, name) for each in bases[::-1] for name in vars(each).get("__annotations__", ())
        }

    def states(self, mu: float) -> tuple[str, ...]:
        """Return the names of a parameter's state arrays for the given momentum."""
        return (*self.keeps, "m") if self.has_momentum and mu else self.keeps

    @abstractmethod
    def update(self, w: Array, g: Array, state: State, step: Step) -> Array | None:
        """Take one step, which changes `w` and `state` in place; return r, the factor on each rate, or None."""


def descend(w: Array, g: Array, r: Array | None, state: State, step: Step) -> None:
    """Take one step of gradient descent with momentum in place: m = μm − η r (g + λw); w += m."""
    d = g + step.l2 * w if step.l2 else g
    d = step.eta * d if r is None else step.eta * r * d
    if not step.mu:
        w -= d
        return
    m = state["m"]
    m *= step.mu
    m -= d
    w += m


def average(a: Array, sample: Array, rho: float) -> None:
    """Update a decayed average in place: a = ρa + (1 − ρ) sample."""
    a *= rho
    a += (1.0 - rho) * sample


def decayed_average(average: Array, sample: Array, rho: float, step: Step) -> None:
    """Update a decayed average of rows in place: average = ρ^k average + (1 − ρ) sample, after k elapsed batches.

    The first sample gets the weight 1.
    """
    if isinstance(step.elapsed, float):  # dense: one number for all elements
        average *= rho
        average += sample if step.first else (1.0 - rho) * sample
        return
    average *= np.power(np.float32(rho), step.elapsed)
    average += np.where(step.first, np.float32(1.0), np.float32(1.0 - rho)) * sample


def l2_norm(x: Array) -> float:
    """Return the L2 norm √Σx², summed in float64: squares of float32 overflow above about 2·10¹⁹."""
    return math.sqrt(float(np.sum(np.square(x, dtype=np.float64))))


def decay(w: Array, l1: Any, l2: Any) -> None:
    """Apply L1 and L2 decay in place: w = sign(w) max(|w| − l1, 0), then w *= 1/(1 + l2).

    Args:
        w: float32, changed in place.
        l1: η λ₁, times batches and element factors where they apply; a number, or broadcastable to w, or None
            to skip it.
    """
    if l1 is not None:
        np.copysign(np.maximum(np.abs(w) - l1, 0.0), w, out=w)
    if l2 is not None:
        w *= 1.0 / (1.0 + l2)


def penalized(g: Array, w: Array, l1: float, l2: float) -> Array:
    """Return the gradient with L1 and L2 terms, g + λ₁ sign(w) + λ₂w (g itself if both are 0). L2 has no factor ½."""
    if l1:
        signs: Any = np.sign(w)
        g = g + l1 * signs
    return g + l2 * w if l2 else g
