# SPDX-License-Identifier: Apache-2.0
"""Body: the operators that a recurrent layer runs once per step of sequences, and its states.

An operator that works row by row on a step's inputs and reads no state is hoisted: it runs once before the loop, on the
rows of all steps. An operator whose result no state and no other operator of the body needs runs once after the loop.
Names are the same inside and outside the body, so operators move unchanged. Results differ only by the rounding of
larger matrix products.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from paddle.graph import Block, Variable
from paddle.graph.operator import Operator
from paddle.v2.activation import OPERATORS
from paddle.v2.layer.emitter import Emitter
from paddle_node.contract.classes import NamedTuple, dataclass, field

# operator -> slots whose rows have separate results; its other inputs are the same at every step
_ROW_BY_ROW: Mapping[str, tuple[str, ...]] = {
    **{kind: ("X",) for kind, _ in OPERATORS.values() if kind and not kind.startswith("sequence")},
    "concat": ("X",),
    "elementwise_add": ("X",),
    "gru_unit": ("Input", "HiddenPrev"),
    "lookup_table": ("Ids",),
    "mul": ("X",),
    "scale": ("X",),
    "sum": ("X",),
}
_OF_PARAMETERS = frozenset({"lookup_table", "reshape2"})


@dataclass
class Body:
    """Builds the body of a `dynamic_recurrent` operator: open it, declare inputs, emit one step, close it."""

    emitter: Emitter
    _outer: Block = field(init=False)
    _inputs: list[Variable] = field(default_factory=list)
    _statics: list[Variable] = field(default_factory=list)
    _first: list[Variable] = field(default_factory=list)
    _before: list[Variable] = field(default_factory=list)

    def open(self) -> None:
        """Begin the body: emit operators to it from now on."""
        self._outer = self.emitter.block
        self.emitter.block = self.emitter.program.create_block()

    def step_input(self, value: Variable) -> Variable:
        """Return the variable with a step's items: rows or, for two sequence levels, sequences."""
        self._inputs.append(value)
        return self._seen(value, max(value.lod_level - 1, 0))

    def static_input(self, value: Variable, *, is_seq: bool = False) -> Variable:
        """Return the variable with the static input's row or sequence for each sequence in a step."""
        self._statics.append(value)
        return self._seen(value, max(int(is_seq), value.lod_level))

    def state(self, first: Variable) -> Variable:
        """Return the variable of a state after the previous step; it starts as `first`, with one entry per sequence."""
        before = self.emitter.temp([-1, *first.shape[1:]], str(first.dtype))
        before.lod_level, before.stop_gradient = first.lod_level, first.dtype.kind == "i"
        self._first.append(first)
        self._before.append(before)
        return before

    def close(
        self, after: Sequence[Variable], outputs: Sequence[Variable], reverse: bool = False
    ) -> list[Variable]:
        """End the body and return its outputs as sequences.

        Args:
            after: the new value of each state, in the order of the states.
            outputs: what a step returns.
            reverse: whether to run from the last step to the first.
        """
        inner, outer = self.emitter.block, self._outer
        outs, inputs, attrs = self._ended(outputs, after)
        given = [*self._inputs, *self._statics, *self._before]
        rows = [each.name for each in given if not inner.vars[each.name].lod_level]
        moved = _hoist(
            inner, [each.name for each in self._inputs], rows, attrs["after"], [each.name for each in outs]
        )
        for op in moved.before:
            self._move(op, inner)
        if moved.outputs:
            read = dict.fromkeys(name for op in inner.ops for name in op.reads if name not in inner.vars)
            results = [self._around(name, inner) for name in moved.outputs]
            outer.append_op(
                "dynamic_recurrent",
                {**inputs, "Inputs": moved.inputs, "Parameters": list(read)},
                {"Outputs": results, "StepScopes": self.emitter.temp()},
                {**attrs, "reverse": reverse, "is_test": self.emitter.is_test},
            )
        for op in moved.behind:
            self._move(op, inner)
        return [outer.var(each.name) for each in outs]

    def _move(self, op: Operator, inner: Block) -> None:
        """Append an operator of the body to the enclosing block."""
        is_of_steps = any(name in inner.vars for name in op.reads)
        for name in op.writes:
            if is_of_steps:
                self._around(name, inner)
            else:
                found = inner.vars.pop(name)  # a name of the enclosing block from now on
                self._outer.create_var(
                    name,
                    found.shape,
                    found.dtype,
                    stop_gradient=found.stop_gradient,
                    lod_level=found.lod_level,
                )
        self._outer.append_op(op.type, op.inputs, op.outputs, op.attrs)

    def _around(self, name: str, inner: Block) -> Variable:
        """Return the variable that holds the values of all steps of a body's variable."""
        found = inner.vars[name]
        return self._outer.create_var(
            name,
            [-1, *found.shape[1:]],
            found.dtype,
            stop_gradient=found.stop_gradient,
            lod_level=1 + found.lod_level,
        )

    def search(
        self, word: Variable, chances: Variable, after: Sequence[Variable], attrs: Mapping[str, object]
    ) -> tuple[Variable, Variable]:
        """End a body that generates words one by one; return the log probabilities and the words of the results.

        Args:
            word: the variable with the previous word, (paths, 1) ids.
            chances: the probabilities of the next word, (paths, words).
            after: the new value of each state, in the order of the states.
            attrs: the attributes of the `generate` operator except for names.
        """
        (prob,), inputs, names = self._ended([chances], after)
        found, ids = self.emitter.temp(), self.emitter.temp(dtype="int64")
        names = {**attrs, **names, "word": word.name, "prob": prob.name}
        self._outer.append_op("generate", inputs, {"Prob": found, "Ids": ids}, names)
        return found, ids

    def _ended(
        self, outputs: Sequence[Variable], after: Sequence[Variable]
    ) -> tuple[list[Variable], dict[str, Any], dict[str, Any]]:
        """Return to the enclosing block; return the outputs, and the inputs and attributes of the body's operator."""
        emitter, inner = self.emitter, self.emitter.block
        made = {name for op in inner.ops for name in op.writes}
        # A value that a step passes through gets a separate name, since outputs have the same name inside and outside.
        outs, states = (
            [each if each.name in made else self._copied(each) for each in values]
            for values in (outputs, after)
        )
        emitter.program.rollback()
        emitter.block = self._outer
        read = dict.fromkeys(name for op in inner.ops for name in op.reads if name not in inner.vars)
        inputs = {"Statics": self._statics, "States": self._first, "Parameters": list(read)}
        before = [state.name for state in self._before]
        return (
            outs,
            inputs,
            {"sub_block": inner.idx, "before": before, "after": [each.name for each in states]},
        )

    def _copied(self, value: Variable) -> Variable:
        if value.dtype.kind == "i":
            return self.emitter.unary("assign", value)
        return self.emitter.unary("scale", value, scale=1.0)

    def _seen(self, value: Variable, levels: int) -> Variable:
        # It has the same name as outside and hides it.
        return self.emitter.block.create_var(
            value.name,
            [-1, *value.shape[1:]],
            value.dtype,
            stop_gradient=value.stop_gradient,
            lod_level=levels,
        )


def zeros(emitter: Emitter, like: Variable, size: int) -> Variable:
    """Return zeros, one row (sequences, size) for each outermost sequence of `like`."""
    attrs = {"shape": [-1, size], "value": 0.0}
    return emitter.op("fill_constant_batch_size_like", {"Input": emitter.joined(like)}, attrs)


class _Hoisted(NamedTuple):
    """The result of hoisting.

    Attributes:
        inputs: the step inputs that the body still reads, by name.
        before: operators that run before the loop; their results may be among `inputs`.
        behind: operators that run after the loop.
        outputs: what a step returns now.
    """

    inputs: list[str]
    before: list[Operator]
    behind: list[Operator]
    outputs: list[str]


def _hoist(
    body: Block, inputs: Sequence[str], rows: Iterable[str], kept: Collection[str], outputs: Sequence[str]
) -> _Hoisted:
    """Move operators out of a body.

    Args:
        body: the block that loses them.
        inputs: the step inputs.
        rows: everything that has one row per item in the body: step inputs, static inputs and states.
        kept: the states after a step.
        outputs: what a step returns.
    """
    constants = [
        op
        for op in body.ops
        if op.type in _OF_PARAMETERS
        and not any(name in body.vars for name in op.reads)
        and set(op.writes).isdisjoint((*kept, *outputs))
    ]
    changing = set(body.vars).difference(name for op in constants for name in op.writes)
    at_once = {name for name in inputs if not body.vars[name].lod_level}
    before: list[Operator] = []
    for op in body.ops:
        stays = op in constants or not set(op.writes).isdisjoint(kept)
        if not stays and _works_by_rows(op, at_once, changing, body):
            at_once.update(op.writes)
            before.append(op)
    body.ops[:] = [op for op in body.ops if op not in constants and op not in before]
    items = {*rows, *at_once}
    for op in body.ops:
        if _works_by_rows(op, items, changing, body):
            items.update(op.writes)
    movable = items & ({name for op in body.ops for name in op.writes} | at_once)
    behind: list[Operator] = []
    for op in reversed(list(body.ops)):
        needed = {*kept, *(name for each in body.ops if each is not op for name in each.reads)}
        if needed.isdisjoint(op.writes) and _works_by_rows(op, movable, changing, body):
            body.ops.remove(op)
            behind.insert(0, op)
    inside = {name for op in body.ops for name in op.writes}
    wanted = [*outputs, *(name for op in behind for name in op.reads)]
    read = {name for op in body.ops for name in op.reads}
    # An input that no layer reads is still compared with the others.
    done_with = {name for op in before for name in op.reads} - read
    new = [name for op in before for name in op.writes if name in read]
    return _Hoisted(
        [*(name for name in inputs if name not in done_with), *new] or list(inputs[:1]),
        [*constants, *before],
        behind,
        [name for name in dict.fromkeys(wanted) if name in inside],
    )


def _works_by_rows(op: Operator, rows: Collection[str], changing: Collection[str], body: Block) -> bool:
    """Return whether an operator works row by row, and needs nothing else that changes from step to step."""
    slots = _ROW_BY_ROW.get(op.type)
    if slots is None or (op.type == "concat" and op.attrs.get("axis") != 1):
        return False
    for slot, names in op.inputs.items():
        if slot in slots:
            if not names or not all(name in rows for name in names):
                return False
        elif any(name in changing for name in names):
            return False
    return not any(body.vars[name].lod_level for name in op.writes)
