# SPDX-License-Identifier: Apache-2.0
"""Single operators: describes them from the operator table, and runs them outside a program.

Scripts import this module as `paddle.fluid.op`.

An operator reads its inputs from a scope and stores its outputs there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from paddle import graph
from paddle.fluid.program.operator import AttrType, attribute_type
from paddle.fluid.program.program import Program
from paddle.fluid.run.places import Place
from paddle.fluid.run.scope import Scope
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.lod import lod_of, plain
from paddle.ops.base.registry import OpDef, find, lookup, registered
from paddle_node.contract.classes import NamedTuple


class SlotProto(NamedTuple):
    """The description of a slot: `duplicable` if it takes several variables, `dispensable` if it can be omitted."""

    name: str
    duplicable: bool
    intermediate: bool
    dispensable: bool


class AttributeProto(NamedTuple):
    """The description of an attribute, which is `generated` if every operator has it."""

    name: str
    type: AttrType
    generated: bool


class OpProto(NamedTuple):
    """The description of an operator type: its slots and attributes."""

    type: str
    inputs: Sequence[SlotProto]
    outputs: Sequence[SlotProto]
    attrs: Sequence[AttributeProto]


class OpProtoHolder:
    """The descriptions of all operators; `OpProtoHolder.instance()` returns them, as in the original."""

    @classmethod
    def instance(cls) -> Self:
        """Return a holder, which has no state: the descriptions come from the operator table."""
        return cls()

    def get_op_proto(self, type: str) -> OpProto:
        """Return the description of an operator.

        Raises:
            UnknownOpError: the type is unknown.
        """
        return _proto(lookup(type))

    def has_op_proto(self, type: str) -> bool:
        """Return whether an operator of this type exists."""
        return find(type) is not None


def get_all_op_protos() -> list[OpProto]:
    """Return the descriptions of all operators, sorted by type."""
    return [_proto(lookup(type)) for type in registered()]


class SingleOperator:
    """An operator with the names of its variables, outside a program; `Operator(...)` creates it."""

    def __init__(self, op: graph.Operator) -> None:
        self._op = op
        self._built: tuple[Any, Program] | None = None  # the last inputs' specs and program
        self._executors: dict[Place, graph.Executor] = {}

    def type(self) -> str:
        """Return the type of the operator."""
        return self._op.type

    def inputs(self) -> dict[str, list[str]]:
        """Return the names of the variables in each input slot."""
        return {slot: list(names) for slot, names in self._op.inputs.items()}

    def outputs(self) -> dict[str, list[str]]:
        """Return the names of the variables in each output slot."""
        return {slot: list(names) for slot, names in self._op.outputs.items()}

    def run(self, scope: Scope, place: Place) -> None:
        """Read the inputs from a scope, run the operator on a place and store the outputs in the scope.

        Raises:
            NotInitializedError: an input has no value.
            OpError: the inputs do not fit the operator.
        """
        values = {name: scope.get(name) for name in self._op.reads}
        specs = tuple((name, _spec(value)) for name, value in values.items())
        if self._built is None or self._built[0] != specs:
            self._built = specs, self._program(specs)
        program = self._built[1]
        executor = self._executors.get(place) or self._executors.setdefault(
            place, graph.Executor(place.device())
        )
        written = list(dict.fromkeys(self._op.writes))
        found = executor.run(program, values, written)
        for name, value in zip(written, found, strict=True):
            scope.set(name, value)

    def _program(self, specs: Any) -> Program:
        program = Program()
        block = program.global_block()
        for name, (shape, dtype, lod_level) in specs:
            block.create_var(name, shape, dtype, lod_level=lod_level)
        block.append_op(self._op.type, self._op.inputs, self._op.outputs, self._op.attrs)
        return program

    def __str__(self) -> str:
        return f"{self._op.describe()} {dict(self._op.attrs)}"


class OperatorFactory:
    """Creates operators by type, and returns the slots and attributes of types."""

    def __call__(self, type: str, **slots_and_attrs: Any) -> SingleOperator:
        """Return an operator: `Operator("scale", X="x", Out="y", scale=2.0)`.

        Raises:
            UnknownOpError: the type is unknown.
            AttrError: an attribute is unknown, missing or has the wrong type.
            SlotError: a required slot is missing, or a slot has too many variables.
        """
        definition, attrs = lookup(type), dict(slots_and_attrs)
        inputs, outputs = (
            {slot.name: _listed(attrs.pop(slot.name, ())) for slot in slots}
            for slots in (definition.inputs, definition.outputs)
        )
        return SingleOperator(graph.Operator.make(type, inputs, outputs, attrs))

    def types(self) -> list[str]:
        """Return the names of all operator types."""
        return list(registered())

    def get_op_inputs(self, type: str) -> list[tuple[str, bool]]:
        """Return the input slots of a type, and whether each takes several variables."""
        return [(slot.name, slot.many) for slot in lookup(type).inputs]

    def get_op_outputs(self, type: str) -> list[tuple[str, bool]]:
        """Return the output slots of a type, and whether each takes several variables."""
        return [(slot.name, slot.many) for slot in lookup(type).outputs]

    def get_op_input_names(self, type: str) -> list[str]:
        """Return the names of an operator type's input slots."""
        return [slot.name for slot in lookup(type).inputs]

    def get_op_output_names(self, type: str) -> list[str]:
        """Return the names of an operator type's output slots."""
        return [slot.name for slot in lookup(type).outputs]

    def get_op_attr_names(self, type: str) -> list[str]:
        """Return the names of an operator type's attributes."""
        return list(lookup(type).attrs)


Operator = OperatorFactory()


def _proto(definition: OpDef) -> OpProto:
    attrs = [
        AttributeProto(name, _attribute_type(definition.type, name, default), False)
        for name, default in definition.attrs.items()
    ]
    attrs += [
        AttributeProto("op_role", AttrType.INT, True),
        AttributeProto("op_role_var", AttrType.STRINGS, True),
        AttributeProto("op_namescope", AttrType.STRING, True),
    ]
    inputs, outputs = (
        [SlotProto(slot.name, slot.many, slot.intermediate, slot.optional) for slot in slots]
        for slots in (definition.inputs, definition.outputs)
    )
    return OpProto(definition.type, inputs, outputs, attrs)


def _attribute_type(op_type: str, name: str, default: object) -> AttrType:
    if default is VarType:
        return AttrType.INT
    return attribute_type(op_type, name, default() if isinstance(default, type) else default)


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _spec(value: Any) -> tuple[tuple[int, ...], str, int]:
    array = plain(value)
    return tuple(array.shape), str(array.dtype), len(lod_of(value))
