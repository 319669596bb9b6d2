# SPDX-License-Identifier: Apache-2.0
"""gru: a GRU over sequences whose rows have been projected to the gates; gru_unit: a single step.

Columns of the gates are update, reset, candidate. The weight is not stored as a (D, 3D) matrix but in the original's
layout: 2D² numbers of the matrix for update and reset, then D² of the matrix for the candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.lod import LoDArray, sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import TimeSteps
from paddle.ops.base.shapes import as_many_rows
from paddle.ops.recurrent import compiled
from paddle.ops.recurrent import gate_activation as gates_of
from paddle.ops.recurrent.gate_activation import Activation
from paddle_node.contract.classes import NamedTuple, dataclass

_ATTRS = {"activation": "tanh", "gate_activation": "sigmoid", "is_reverse": False, "origin_mode": False}


@dataclass(frozen=True)
class _Cell:
    """The constants of a `_step`.

    Attributes:
        weight: (D, 3D), whose memory holds a (D, 2D) matrix for update and reset, then a (D, D) one for the candidate.
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
        """The state size D."""
        return len(self.weight)

    @property
    def for_gates(self) -> Array:
        """The matrix (D, 2D) for update and reset."""
        return self.weight.reshape(-1)[: 2 * self.width**2].reshape(self.width, 2 * self.width)

    @property
    def for_candidate(self) -> Array:
        """The matrix (D, D) for the candidate."""
        return self.weight.reshape(-1)[2 * self.width**2 :].reshape(self.width, self.width)

    def joined(self, for_gates: Array, for_candidate: Array) -> Array:
        """Return the gradients of both matrices as one gradient of the weight."""
        whole: Array = array_module(for_gates).concatenate([for_gates.reshape(-1), for_candidate.reshape(-1)])
        return whole.reshape(self.weight.shape)


class _Back(NamedTuple):
    """The gradients of a step: of the gates before activation (k, 3D), and of the previous state (k, D)."""

    gates: Array
    before: Array


def _step(g: Array, before: Array, cell: _Cell) -> tuple[Array, Array]:
    """Return (reset state, new state), (k, D) each; `g` (k, 3D) holds the inputs and is activated in place."""
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


def _step_back(g: Array, before: Array, dafter: Array, cell: _Cell) -> _Back:
    """Return the gradients of a `_step`; `g` holds the activated gates."""
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
    return _Back(dg, dbefore)


@operator(
    "gru",
    "Input+ H0? Weight Bias? -> BatchGate~ BatchResetHiddenPrev~ BatchHidden~ Hidden+",
    attrs=_ATTRS,
    infer=(
        "Weight(D, D * 3), Input(N, D * 3), Bias(1, D * 3) -> Input(N, D * 3, lod=0), Input(N, D, "
        "lod=0), Input(N, D, lod=0), Input(N, D, lod=max(Input, 1))"
    ),
)
def gru(
    x: Any,
    h0: Array | None,
    weight: Array,
    bias: Array | None,
    *,
    attrs: Mapping[str, Any],
) -> tuple[Array, Array, Array, LoDArray]:
    """Run a GRU over sequences; return gates, reset states and hidden states. Outputs named Batch* are in time order.

    Columns of Input are update u, reset r, candidate. candidate = act(x + (r h') W), h = (1 - u) h' + u candidate.
    """
    data, offsets = sequences(x, "Input")
    steps, cell = TimeSteps.of(offsets, attrs["is_reverse"]), _cell(weight, attrs)
    gates = steps.by_time(data)
    if bias is not None:
        gates += bias
    state = steps.first(h0, cell.width, data)
    if _is_compiled(gates, state, cell):
        resets, hiddens = compiled.gru_forward(
            gates, state, cell.for_gates, cell.for_candidate, cell.origin_mode, steps
        )
    else:
        resets, hiddens = (array_module(data).empty((len(data), cell.width), data.dtype) for _ in range(2))
        for rows in steps:
            g = gates[rows]
            resets[rows], state = _step(g, state[: len(g)], cell)
            hiddens[rows] = state
    return gates, resets, hiddens, LoDArray(steps.by_sequence(hiddens), x.lod)


@gradient(
    "gru",
    "Input+ H0? Weight Bias? BatchGate BatchResetHiddenPrev BatchHidden Hidden@GRAD -> "
    "Input@GRAD H0@GRAD? Weight@GRAD Bias@GRAD?",
)
def gru_grad(
    x: Any,
    h0: Array | None,
    weight: Array,
    bias: Array | None,
    gates: Array,
    resets: Array,
    hiddens: Array,
    dhidden: Array,
    *,
    attrs: Mapping[str, Any],
) -> tuple[Array, Array | None, Array, Array | None]:
    """Return the gradients of the inputs and weights, by backpropagation through time."""
    data, offsets = sequences(x, "Input")
    steps, cell = TimeSteps.of(offsets, attrs["is_reverse"]), _cell(weight, attrs)
    d = cell.width
    first = steps.first(h0, d, data)
    before, dstates = steps.before(hiddens, first), steps.by_time(dhidden)
    if _is_compiled(gates, first, cell) and compiled.are_served(hiddens, dstates):
        dgates, dnext = compiled.gru_backward(
            gates, hiddens, first, cell.for_gates, cell.for_candidate, cell.origin_mode, dstates, steps
        )
    else:
        dgates, dnext = array_module(data).empty_like(gates), array_module(data).zeros_like(first)
        for rows in reversed(steps):
            count = rows.stop - rows.start
            back = _step_back(gates[rows], before[rows], dstates[rows] + dnext[:count], cell)
            dgates[rows], dnext[:count] = back.gates, back.before
    dweight = cell.joined(before.T @ dgates[:, : 2 * d], resets.T @ dgates[:, 2 * d :])
    return (
        steps.by_sequence(dgates),
        None if h0 is None else steps.restored(dnext),
        dweight,
        None if bias is None else dgates.sum(axis=0, keepdims=True),
    )


def _is_compiled(gates: Array, state: Array, cell: _Cell) -> bool:
    usual = gates_of.activation("sigmoid"), gates_of.activation("tanh")
    return (cell.gate, cell.candidate) == usual and compiled.are_served(gates, state, cell.weight)


def _cell(weight: Array, attrs: Mapping[str, Any]) -> _Cell:
    gate, candidate = (gates_of.activation(attrs[name]) for name in ("gate_activation", "activation"))
    return _Cell(weight, gate, candidate, attrs["origin_mode"])


@operator(
    "gru_unit",
    "Input HiddenPrev Weight Bias? -> Gate~ ResetHiddenPrev~ Hidden",
    attrs={"activation": 2, "gate_activation": 1, "origin_mode": False},
    infer="Weight(D, D * 3), Input(N, D * 3), HiddenPrev(N, D) -> Input, HiddenPrev, HiddenPrev",
)
def gru_unit(
    x: Array,
    before: Array,
    weight: Array,
    bias: Array | None,
    *,
    attrs: Mapping[str, Any],
) -> tuple[Array, Array, Array]:
    """Compute one GRU step; return the gates after activation (rows, 3D), the reset state and the new one (rows, D)."""
    as_many_rows(x, before, "Input and HiddenPrev")
    gates = x.copy() if bias is None else x + bias
    reset, after = _step(gates, before, _cell(weight, attrs))
    return gates, reset, after


@gradient(
    "gru_unit",
    "Input HiddenPrev Weight Bias? Gate ResetHiddenPrev Hidden@GRAD -> "
    "Input@GRAD HiddenPrev@GRAD Weight@GRAD Bias@GRAD?",
)
def gru_unit_grad(
    x: Array,
    before: Array,
    weight: Array,
    bias: Array | None,
    gates: Array,
    reset: Array,
    dafter: Array,
    *,
    attrs: Mapping[str, Any],
) -> tuple[Array, Array, Array, Array | None]:
    """Return the gradients of the input, previous state and weights, by backpropagation through the step."""
    cell = _cell(weight, attrs)
    d = cell.width
    back = _step_back(gates, before, dafter, cell)
    dweight = cell.joined(before.T @ back.gates[:, : 2 * d], reset.T @ back.gates[:, 2 * d :])
    return back.gates, back.before, dweight, None if bias is None else back.gates.sum(axis=0, keepdims=True)
