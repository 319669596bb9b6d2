# SPDX-License-Identifier: Apache-2.0
"""recurrent: runs a body over the steps of dense inputs (steps, ...), all rows of a step together.

In the body, the inputs and outputs of a step have the same names as the whole inputs and outputs outside.
rnn_memory_helper: the identity, an operator that the original inserts between the steps of a recurrent block.

unroll and unroll_back: run a body over time steps, forward and backward, for recurrent and dynamic_recurrent. At step
t, the first `counts[t]` entries of the states continue; counts never grow. An entry is a row or a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.body import Body, Products, Tape
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import plain, zeros_like
from paddle.ops.base.registry import GRAD, GradOp, gradient, gradient_maker, operator
from paddle.ops.base.segments import as_before, leading
from paddle.ops.base.selected_rows import no_gradient
from paddle.ops.math.scale import sum_
from paddle_node.contract.classes import NamedTuple, dataclass


@dataclass(frozen=True)
class Names:
    """The names of variables of the body that `unroll` reads or writes.

    Attributes:
        before: the states that a step reads.
        after: the same states as the step writes them.
        outputs: the variables to collect.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    outputs: tuple[str, ...]


class Unrolled(NamedTuple):
    """The result of `unroll`: the outputs of each step, and each step's tape (empty if not requested).

    Attributes:
        heights: number of rows of each state after each step.
    """

    outputs: dict[str, list[Any]]
    tapes: tuple[Tape, ...]
    heights: list[list[int]]


class Gradients(NamedTuple):
    """The gradients, or None, of the steps' inputs, of shared inputs, and of the initial states."""

    steps: list[dict[str, Any]]
    fixed: dict[str, Any]
    first: list[Array | None]


def unroll(
    body: Body,
    steps: Sequence[Mapping[str, Any]],
    counts: Sequence[int],
    first: Sequence[Any],
    names: Names,
    trace: bool,
) -> Unrolled:
    """Run the body once per step.

    Args:
        steps: the inputs of each step, except the states.
        trace: whether to record tapes, which `unroll_back` needs.
    """
    outputs: dict[str, list[Any]] = {name: [] for name in names.outputs}
    states, tapes, heights = list(first), [], []
    for turn, (given, rows) in enumerate(zip(steps, counts, strict=True)):
        states = [leading(state, rows) for state in states]
        values = {**given, **dict(zip(names.before, states, strict=True))}
        if trace:
            tapes.append(body.trace(values, turn))
        else:
            body.run(values, turn)
        states = [as_before(values[name], state) for name, state in zip(names.after, states, strict=True)]
        heights.append([len(state) for state in states])
        for name in outputs:
            outputs[name].append(values[name])
    return Unrolled(outputs, tuple(tapes), heights)


def unroll_back(
    tapes: Sequence[Tape],
    douts: Mapping[str, Sequence[Array]],
    names: Names,
    given: Sequence[str],
    fixed: Sequence[str],
    heights: Sequence[Sequence[int]],
) -> Gradients:
    """Backpropagate through all steps.

    Args:
        tapes: the tapes from `unroll`.
        douts: output -> its gradient at each step.
        given: the inputs of each step that need a gradient.
        fixed: the shared inputs that need a gradient.
        heights: the result of `unroll`.
    """
    wanted = frozenset((*given, *fixed, *names.before))
    carried: list[Array | None] = [None] * len(names.before)
    steps: list[dict[str, Any]] = []
    totals: dict[str, Any] = {}
    products: Products = {name: [] for name in fixed}
    for turn in reversed(range(len(tapes))):
        grads: dict[str, Any] = {name: parts[turn] for name, parts in douts.items()}
        for name, state, rows in zip(names.after, carried, heights[turn], strict=True):
            if state is not None:
                _add(grads, name, padded(state, rows))
        tapes[turn].back(grads, wanted, products)
        carried = [grads.get(name) for name in names.before]
        steps.append({name: grads[name] for name in given if name in grads})
        for name in fixed:
            if name in grads:
                _add(totals, name, grads[name])
    for name, pairs in products.items():
        if pairs:
            xp = array_module(pairs[0][0])
            rows, douts_of = (xp.concatenate(each) for each in zip(*pairs, strict=True))
            _add(totals, name, rows.T @ douts_of)
    return Gradients(steps[::-1], totals, carried)


def summed(names: Sequence[str], grads: Sequence[Array | None]) -> dict[str, Array]:
    """Return the gradients of initial states by name; a variable that initializes several states receives the sum."""
    totals: dict[str, Array] = {}
    for name, grad in zip(names, grads, strict=True):
        if grad is not None:
            _add(totals, name, grad)
    return totals


def padded(value: Array, rows: int) -> Array:
    """Pad a value with zeros to `rows` rows."""
    if len(value) == rows:
        return value
    whole: Array = array_module(value).zeros((rows, *value.shape[1:]), value.dtype)
    whole[: len(value)] = value
    return whole


def _add(grads: dict[str, Any], name: str, value: Any) -> None:
    grads[name] = sum_([grads[name], value]) if name in grads else value


_ATTRS = {
    "sub_block": int,
    "ex_states": (),
    "states": (),
    "reverse": False,
    "is_test": False,
    "has_states": True,
}
_Names = Mapping[str, Sequence[str]]


@operator("recurrent", "inputs* initial_states*? parameters+*? -> outputs* step_scopes?", attrs=_ATTRS)
def recurrent(
    inputs: list[Array],
    first: list[Array],
    parameters: list[Any],
    *,
    ex_states: tuple[str, ...],
    states: tuple[str, ...],
    reverse: bool,
    is_test: bool,
    body: Body,
    names: _Names,
    needs: frozenset[str],
) -> tuple[list[Array], tuple[Tape, ...]]:
    """Run the body once per step; return the outputs (steps, ...), and the tapes if a gradient needs them.

    With `reverse`, the body runs from the last step to the first.
    """
    if len({len(each) for each in inputs}) != 1:
        raise InputError(f"inputs must have the same number of steps, got {[len(each) for each in inputs]}")
    fixed = dict(zip(names["parameters"], parameters, strict=True))
    order = _order(len(inputs[0]), reverse)
    steps = [{**fixed, **dict(zip(names["inputs"], [x[at] for x in inputs], strict=True))} for at in order]
    bound = Names(ex_states, states, tuple(names["outputs"]))
    rows = max((len(state) for state in first), default=0)
    trace = not is_test and "step_scopes" in needs
    found = unroll(body, steps, [rows] * len(steps), first, bound, trace)
    xp = array_module(*inputs)
    outputs = {name: [*map(plain, found.outputs[name])] for name in bound.outputs}
    return [_stacked(xp, outputs[name], order) for name in bound.outputs], found.tapes


@gradient_maker("recurrent")
def _maker(inputs: _Names, outputs: _Names, attrs: Mapping[str, Any], bodies: Any) -> list[GradOp]:
    arriving = bodies.arriving(outputs["outputs"])
    slots = ("inputs", "initial_states", "parameters")
    wanted = {slot: bodies.wanted(inputs[slot]) for slot in slots}
    return [
        GradOp(
            "recurrent_grad",
            {
                **inputs,
                "step_scopes": outputs["step_scopes"],
                "outputs@GRAD": [name + GRAD for name in arriving],
            },
            {slot + GRAD: [name + GRAD for name in names] for slot, names in wanted.items()},
            {
                "ex_states": attrs["ex_states"],
                "states": attrs["states"],
                "reverse": attrs["reverse"],
                "arriving": arriving,
                "rows": bodies.rows(wanted["parameters"]),
                **{f"wanted_{slot}": names for slot, names in wanted.items()},
            },
        )
    ]


@operator(
    "recurrent_grad",
    "inputs* initial_states*? parameters*? step_scopes outputs@GRAD* -> "
    "inputs@GRAD*? initial_states@GRAD*? parameters@GRAD*?",
)
def recurrent_grad(
    inputs: list[Array],
    first: list[Array],
    parameters: list[Any],
    tapes: tuple[Tape, ...],
    douts: list[Array],
    *,
    ex_states: tuple[str, ...] = (),
    states: tuple[str, ...] = (),
    reverse: bool = False,
    arriving: tuple[str, ...] = (),
    rows: tuple[str, ...] = (),
    wanted_inputs: tuple[str, ...] = (),
    wanted_initial_states: tuple[str, ...] = (),
    wanted_parameters: tuple[str, ...] = (),
    names: _Names,
) -> tuple[list[Array], list[Array], list[Any]]:
    """Return the gradients of the inputs and initial states, by backpropagation through the steps."""
    order = _order(len(tapes), reverse)
    parts = {name: [dout[at] for at in order] for name, dout in zip(arriving, douts, strict=True)}
    bound = Names(ex_states, states, ())
    heights = [[len(state) for state in first]] * len(tapes)
    found = unroll_back(tapes, parts, bound, wanted_inputs, wanted_parameters, heights)
    whole = dict(zip(names["inputs"], inputs, strict=True))
    dinputs = []
    for name in wanted_inputs:
        dx = zeros_like(whole[name])
        for at, step in zip(order, found.steps, strict=True):
            if name in step:
                dx[at] = step[name]
        dinputs.append(dx)
    states_by_name = dict(zip(names["initial_states"], first, strict=True))
    dstates = summed(names["initial_states"], found.first)
    dfirst = [
        dstates[name] if name in dstates else zeros_like(states_by_name[name])
        for name in wanted_initial_states
    ]
    fixed = dict(zip(names["parameters"], parameters, strict=True))
    dfixed = [
        found.fixed[name] if name in found.fixed else no_gradient(fixed[name], name in rows)
        for name in wanted_parameters
    ]
    return dinputs, dfirst, dfixed


def _order(count: int, reverse: bool) -> list[int]:
    return list(range(count))[:: -1 if reverse else 1]


def _stacked(xp: Any, values: list[Array], order: list[int]) -> Array:
    if not values:
        raise InputError("the inputs have no steps, so the shape of an output is unknown")
    return xp.stack([values[at] for at in order])


@operator("rnn_memory_helper", "X -> Out", attrs={"dtype": VarType.FP32}, infer="X")
def rnn_memory_helper(x: Array) -> Array:
    """Return X unchanged (the identity)."""
    return x


@gradient("rnn_memory_helper", "Out@GRAD -> X@GRAD")
def rnn_memory_helper_grad(dout: Array) -> Array:
    """Return dX = dOut."""
    return dout
