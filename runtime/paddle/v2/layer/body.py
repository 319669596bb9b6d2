# SPDX-License-Identifier: Apache-2.0
"""Body: operators that run once for each step of sequences, with states that go from step to step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paddle.graph import Block, Variable
from paddle.graph.operator import Operator
from paddle.v2.layer.emitter import Emitter
from paddle.v2.layer.hoist import hoist


@dataclass
class Body:
    """What goes into one `dynamic_recurrent` operator. Open it, say what its steps see, write them, close it."""

    emitter: Emitter
    _outer: Block = field(init=False)
    _inputs: list[Variable] = field(default_factory=list)
    _statics: list[Variable] = field(default_factory=list)
    _first: list[Variable] = field(default_factory=list)
    _before: list[Variable] = field(default_factory=list)

    def open(self) -> None:
        """Let operators go to the body from now on."""
        self._outer = self.emitter.block
        self.emitter.block = self.emitter.program.create_block()

    def step_input(self, value: Variable) -> Variable:
        """Return a step's items of sequences: rows, or sequences where there are two levels."""
        self._inputs.append(value)
        return self._seen(value, max(value.lod_level - 1, 0))

    def static_input(self, value: Variable, *, is_seq: bool = False) -> Variable:
        """Return what belongs to the sequences of a step: a row each, or a sequence each."""
        self._statics.append(value)
        return self._seen(value, max(int(is_seq), value.lod_level))

    def state(self, first: Variable) -> Variable:
        """Return what a state was after the step before; `first` before the first one, an entry a sequence."""
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
            after: what each state is after the step, in the order of the states.
            outputs: what a step puts out.
            reverse: from the last step to the first.
        """
        inner, outer = self.emitter.block, self._outer
        outs, inputs, attrs = self._ended(outputs, after)
        given = [*self._inputs, *self._statics, *self._before]
        rows = [each.name for each in given if not inner.vars[each.name].lod_level]
        moved = hoist(
            inner, [each.name for each in self._inputs], rows, attrs["after"], [each.name for each in outs]
        )
        for op in moved.before:
            self._move(op, inner)
        if moved.outputs:
            read = dict.fromkeys(
                name for op in inner.ops for name in op.input_names if name not in inner.vars
            )
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
        """Append an operator of the body to the block around."""
        is_of_steps = any(name in inner.vars for name in op.input_names)
        for name in op.output_names:
            if is_of_steps:
                self._around(name, inner)
            else:
                found = inner.vars.pop(name)  # a name of the block around from now on
                self._outer.create_var(
                    name,
                    found.shape,
                    found.dtype,
                    stop_gradient=found.stop_gradient,
                    lod_level=found.lod_level,
                )
        self._outer.append_op(op.type, op.inputs, op.outputs, op.attrs)

    def _around(self, name: str, inner: Block) -> Variable:
        """Return the variable that has the values of all steps of one of the body."""
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
        """End a body that makes words one by one; return the results' chances, and their words.

        Args:
            word: what a step sees of the word before, (paths, 1) ids.
            chances: of the next word, (paths, words).
            after: what each state is after the step, in the order of the states.
            attrs: of the `generate` operator, but for names.
        """
        (prob,), inputs, names = self._ended([chances], after)
        found, ids = self.emitter.temp(), self.emitter.temp(dtype="int64")
        names = {**attrs, **names, "word": word.name, "prob": prob.name}
        self._outer.append_op("generate", inputs, {"Prob": found, "Ids": ids}, names)
        return found, ids

    def _ended(
        self, outputs: Sequence[Variable], after: Sequence[Variable]
    ) -> tuple[list[Variable], dict[str, Any], dict[str, Any]]:
        """Go back to the block around; return the outputs, and inputs and attributes of the body's operator."""
        emitter, inner = self.emitter, self.emitter.block
        made = {name for op in inner.ops for name in op.output_names}
        # What a step only hands on gets a name of its own, since outputs have the same name inside and outside.
        outs, states = (
            [each if each.name in made else self._copied(each) for each in values]
            for values in (outputs, after)
        )
        emitter.program.rollback()
        emitter.block = self._outer
        read = dict.fromkeys(name for op in inner.ops for name in op.input_names if name not in inner.vars)
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
    """Return a row of zeros (sequences, size) for each outermost sequence of `like`."""
    attrs = {"shape": [-1, size], "value": 0.0}
    return emitter.op("fill_constant_batch_size_like", {"Input": emitter.joined(like)}, attrs)
