# SPDX-License-Identifier: Apache-2.0
"""The GRU cell, one step forward and back. Columns of the gates are update, reset, candidate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from paddle.backend import Array, array_module
from paddle.ops.recurrent.gate_activation import Activation


@dataclass(frozen=True)
class Cell:
    """What a step needs besides its state.

    Attributes:
        weight: (D, 3D) whose memory holds a (D, 2D) matrix for update and reset, then a (D, D) one for the
            candidate.
        gate: activation of update and reset.
        candidate: activation of the candidate.
        origin_mode: h = u h' + (1 - u) candidate; otherwise h = (1 - u) h' + u candidate.
    """

    weight: Array
    gate: Activation
    candidate: Activation
    origin_mode: bool

    @property
    def width(self) -> int:
        """D."""
        return len(self.weight)

    @property
    def for_gates(self) -> Array:
        """(D, 2D)."""
        return self.weight.reshape(-1)[: 2 * self.width**2].reshape(self.width, 2 * self.width)

    @property
    def for_candidate(self) -> Array:
        """(D, D)."""
        return self.weight.reshape(-1)[2 * self.width**2 :].reshape(self.width, self.width)

    def joined(self, for_gates: Array, for_candidate: Array) -> Array:
        """Return the gradients of both matrices as one of the weight."""
        whole: Array = array_module(for_gates).concatenate([for_gates.reshape(-1), for_candidate.reshape(-1)])
        return whole.reshape(self.weight.shape)


class Back(NamedTuple):
    """Gradients of the gates before activation (k, 3D), and of the state before (k, D)."""

    gates: Array
    before: Array


def step(g: Array, before: Array, cell: Cell) -> tuple[Array, Array]:
    """Return (reset state, state after), (k, D) each; `g` (k, 3D) comes with the inputs and leaves activated."""
    d = cell.width
    g[:, : 2 * d] += before @ cell.for_gates
    g[:, : 2 * d] = cell.gate.function(g[:, : 2 * d])
    reset = g[:, d : 2 * d] * before
    g[:, 2 * d :] += reset @ cell.for_candidate
    g[:, 2 * d :] = cell.candidate.function(g[:, 2 * d :])
    update, candidate = g[:, :d], g[:, 2 * d :]
    if cell.origin_mode:
        return reset, candidate + update * (before - candidate)
    return reset, before + update * (candidate - before)


def step_back(g: Array, before: Array, dafter: Array, cell: Cell) -> Back:
    """Return the gradients of a step; `g` is activated."""
    xp, d = array_module(g), cell.width
    update, candidate = g[:, :d], g[:, 2 * d :]
    if cell.origin_mode:
        dupdate, dcandidate, dbefore = dafter * (before - candidate), dafter * (1 - update), dafter * update
    else:
        dupdate, dcandidate, dbefore = dafter * (candidate - before), dafter * update, dafter * (1 - update)
    dg = xp.empty_like(g)
    dg[:, 2 * d :] = dcandidate * cell.candidate.slope(candidate)
    through = dg[:, 2 * d :] @ cell.for_candidate.T
    dg[:, :d], dg[:, d : 2 * d] = dupdate, through * before
    dg[:, : 2 * d] *= cell.gate.slope(g[:, : 2 * d])
    dbefore += through * g[:, d : 2 * d]
    dbefore += dg[:, : 2 * d] @ cell.for_gates.T
    return Back(dg, dbefore)
