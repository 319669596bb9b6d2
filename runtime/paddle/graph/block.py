# SPDX-License-Identifier: Apache-2.0
"""Block: named variables and an ordered list of operators; an operator's body also sees the enclosing blocks.

The shapes and dtypes of an operator's outputs are known as soon as `append_op` returns. Every change increments the
program's version, which keys the executor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

import numpy.typing as npt

from paddle.graph import unique_name
from paddle.graph.errors import GraphError, UnknownVariableError
from paddle.graph.operator import EMPTY, Operator
from paddle.graph.variable import Parameter, Variable
from paddle.ops.base.errors import OpError
from paddle.ops.base.registry import Spec, attribute_of, lookup
from paddle.signatures import advice

if TYPE_CHECKING:
    from paddle.graph.program import Program

Name: TypeAlias = Variable | str
_V = TypeVar("_V", bound=Variable)


class Block:
    """A sequence of operators and the variables that they use; the executor runs `program.global_block()`.

    Attributes:
        parent_idx: the index of the enclosing block, -1 for block 0.
        forward_block_idx: the index of the block whose gradients this one computes, or -1.
    """

    variable_class: ClassVar[type[Variable]] = Variable
    parameter_class: ClassVar[type[Parameter]] = Parameter
    operator_class: ClassVar[type[Operator]] = Operator

    def __init__(self, program: Program, idx: int = 0, parent_idx: int = -1) -> None:
        self.program = program
        self.idx = idx
        self.parent_idx = parent_idx
        self.forward_block_idx = -1
        self.vars: dict[str, Variable] = {}
        self.ops: list[Operator] = []

    def create_var(
        self,
        name: str | None = None,
        shape: Sequence[int] = (),
        dtype: npt.DTypeLike = "float32",
        persistable: bool = False,
        stop_gradient: bool = False,
        lod_level: int = 0,
    ) -> Variable:
        """Create a variable, or return the existing variable with this name if it has the same description.

        Raises:
            GraphError: a variable of that name exists with a different shape, dtype, LoD level or lifetime.
        """
        variable = self.variable_class(
            self,
            name=name or unique_name.generate("_generated_var"),
            shape=tuple(shape),
            dtype=dtype,
            persistable=persistable,
            stop_gradient=stop_gradient,
            lod_level=lod_level,
        )
        return self._add(variable)

    def create_parameter(
        self,
        name: str,
        shape: Sequence[int],
        dtype: npt.DTypeLike = "float32",
        trainable: bool = True,
        initializer: Callable[..., Any] | None = None,
    ) -> Parameter:
        """Create a parameter, or return the existing (shared) parameter with this name if it has the same description.

        Args:
            trainable: whether it gets a gradient.
            initializer: a function from the shape to the initial value, or None.

        Raises:
            GraphError: the name belongs to a different kind of variable.
        """
        return self._add(
            self.parameter_class(
                self,
                name=name,
                shape=tuple(shape),
                dtype=dtype,
                trainable=trainable,
                initializer=initializer,
            )
        )

    def append_op(
        self,
        type: str,
        inputs: Mapping[str, Name | Sequence[Name]] | None = None,
        outputs: Mapping[str, Name | Sequence[Name]] | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> Operator:
        """Append an operator and infer its outputs.

        An output given by name is created if the block does not have it. An existing variable must match the inferred
        description, but if its shape is (), it takes the inferred shape.

        Raises:
            OpError: the operator, a slot or an attribute is unknown, or shapes do not fit; the message names the
                variables.
            UnknownVariableError: an input is not in the block.
        """
        return self.insert_op(len(self.ops), type, inputs, outputs, attrs)

    def insert_op(
        self,
        index: int,
        type: str,
        inputs: Mapping[str, Name | Sequence[Name]] | None = None,
        outputs: Mapping[str, Name | Sequence[Name]] | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> Operator:
        """Create an operator and insert it before the one at `index`; see `append_op` for the arguments."""
        op = self.operator_class.make(
            type, _names(inputs), self._with_intermediates(type, _names(outputs)), attrs or {}
        )
        for name in op.reads:
            self.reach(name)
        self.infer(op)
        self.ops.insert(index, op)
        self.program.touch()
        return op

    def _with_intermediates(self, op_type: str, outputs: dict[str, list[str]]) -> dict[str, list[str]]:
        """Return the outputs with generated names for omitted intermediate outputs, which the gradient may need.

        Each operator gets separate names, even if several operators write to one variable, such as an array.
        """
        first = next((names[0] for names in outputs.values() if names), op_type)
        missing = [
            slot.name for slot in lookup(op_type).outputs if slot.intermediate and slot.name not in outputs
        ]
        return outputs | {slot: [self._unused(f"{first}@{slot}")] for slot in missing}

    def _unused(self, name: str) -> str:
        names = chain([name], (f"{name}@{number}" for number in count(2)))
        return next(each for each in names if self.find(each) is None)

    def reach(self, name: str) -> Variable:
        """Return the variable with the given name in this block or an enclosing block.

        Raises:
            UnknownVariableError: no visible block has a variable of this name.
        """
        return self.find(name) or self.var(name)

    def find(self, name: str) -> Variable | None:
        """Return the variable with this name, or None if there is none.

        The search covers this block, then the enclosing blocks and, for gradients, the block to which they belong.
        """
        waiting: list[Block] = [self]
        while waiting:
            block = waiting.pop(0)
            if name in block.vars:
                return block.vars[name]
            around = (block.parent_idx, block.forward_block_idx)
            waiting.extend(self.program.blocks[idx] for idx in around if idx >= 0)
        return None

    def tables_within(self, ops: Iterable[Operator]) -> frozenset[str]:
        """Return the variables that the bodies of operators read only in sparse lookups."""
        rows, others = set[str](), set[str]()
        bodies = [number for op in ops if isinstance(number := op.attrs.get("sub_block"), int)]
        while bodies:
            for op in self.program.blocks[bodies.pop()].ops:
                if isinstance(number := op.attrs.get("sub_block"), int):
                    bodies.append(number)
                    continue
                tables = (*op.inputs.get("W", ()), *op.inputs.get("Weight", ()))
                tables = tables if op.attrs.get("is_sparse") else ()
                rows.update(tables)
                others.update({*op.reads}.difference(tables))
        return frozenset(rows - others)

    def visible_vars(self) -> dict[str, Variable]:
        """Return the variables of this block and of the enclosing ones; inner names hide outer ones."""
        around = self.program.blocks[self.parent_idx].visible_vars() if self.parent_idx >= 0 else {}
        return {**around, **self.vars}

    def copy_to(self, program: Program) -> Self:
        """Copy this block to another program and return the copy."""
        twin = type(self)(program, self.idx, self.parent_idx)
        twin.forward_block_idx = self.forward_block_idx
        twin.vars = {name: variable.copy_to(twin) for name, variable in self.vars.items()}
        twin.ops = list(self.ops)
        return twin

    @property
    def run_ops(self) -> Sequence[Operator]:
        """Return the operators in execution order, which is their order in the block."""
        return self.ops

    def __index__(self) -> int:
        """Return the index by which attributes of operators refer to a block."""
        return self.idx

    def var(self, name: str) -> Variable:
        """Return the variable with this name in this block.

        Raises:
            UnknownVariableError: the block has no variable of this name.
        """
        found = self.vars.get(name)
        if found is None:
            raise UnknownVariableError(
                f"block {self.idx} has no variable {name!r}. Create a variable of another program again in this one, "
                f"within its program_guard; {advice(name, list(self.vars), 'its variables')}"
            )
        return found

    def has_var(self, name: str) -> bool:
        """Return whether this block, not an enclosing one, has a variable with this name."""
        return name in self.vars

    def all_parameters(self) -> list[Parameter]:
        """Return the block's parameters in order of creation."""
        return [variable for variable in self.vars.values() if isinstance(variable, Parameter)]

    def _add(self, variable: _V) -> _V:
        old = self.vars.get(variable.name)
        if old is None or old is variable:
            self.vars[variable.name] = variable
            self.program.touch()
            return variable
        if not isinstance(old, type(variable)) or _identity(old) != _identity(variable):
            raise GraphError(
                f"the name {variable.name!r} is already used by {old!r}, which differs from {variable!r}: choose "
                "another name"
            )
        return old

    def infer(self, op: Operator) -> None:
        """Infer the shapes and dtypes of an operator's outputs and declare them; see `append_op`."""
        definition = op.definition
        if definition.infer is None:
            for name in op.writes:
                self.reach(name)
            return
        try:
            found = self.inferred(op, lambda name: self.reach(name).spec)
        except OpError as error:
            shapes = "; ".join(self.reach(name).describe() for name in op.reads)
            raise type(error)(f"operator {op.describe()}: {error} [inputs: {shapes}]") from error
        for (slot, names), specs in zip(op.outputs.items(), found, strict=True):
            for name, spec in zip(names, specs, strict=True):
                if name != EMPTY:
                    self._declare(op, slot, name, spec)

    @staticmethod
    def inferred(op: Operator, spec_of: Callable[[str], Spec]) -> list[list[Spec]]:
        """Return the inferred specs of each output slot, one per variable name in the slot.

        Args:
            spec_of: returns the spec of a variable, given its name.

        Raises:
            OpError: the inputs do not fit.
        """
        definition = op.definition
        arguments: list[object] = []
        for slot in definition.inputs:
            specs = [spec_of(name) for name in op.inputs[slot.name] if name != EMPTY]
            arguments.append(specs if slot.many else specs[0] if specs else None)
        keywords = {
            name: op.attrs if name == "attrs" else op.attrs[attribute_of(name)]
            for name in definition.infer_keywords
        }
        assert definition.infer is not None
        result = definition.infer(*arguments, **keywords)
        if len(definition.outputs) == 1:
            result = (result,)
        per_slot: list[list[Spec]] = []
        for slot, specs in zip(definition.outputs, result, strict=True):
            count = len(op.outputs[slot.name])
            listed = list(specs) if slot.many else [specs] * min(count, 1)
            if len(listed) != count:
                raise OpError(f"output {slot.name!r}: expected {len(listed)} variables, got {count}")
            per_slot.append(listed)
        return per_slot

    def _declare(self, op: Operator, slot: str, name: str, spec: Spec) -> None:
        old = self.find(name)
        if old is None:
            self.create_var(name, spec.shape, spec.dtype, lod_level=spec.lod_level)
        elif not old.shape and spec.shape:
            old.shape, old.dtype, old.lod_level = spec.shape, spec.dtype, spec.lod_level
        elif old.dtype == spec.dtype and not isinstance(old, Parameter) and not _fits(old.spec, spec):
            old.shape = spec.shape
        elif not _fits(old.spec, spec):
            raise OpError(
                f"operator {op.describe()}: output {slot!r} is {spec.shape} {spec.dtype}, but the "
                f"existing variable is {old.describe()}"
            )


def _names(slots: Mapping[str, Name | Sequence[Name]] | None) -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for slot, value in (slots or {}).items():
        members: Iterable[Name] = [value] if isinstance(value, (Variable, str)) else value
        listed[slot] = [member if isinstance(member, str) else member.name for member in members]
    return listed


def _identity(variable: Variable) -> tuple[object, ...]:
    return variable.shape, variable.dtype, variable.lod_level, variable.persistable


def _fits(declared: Spec, inferred: Spec) -> bool:
    if declared.dtype != inferred.dtype or len(declared.shape) != len(inferred.shape):
        return False
    return all(a == b or -1 in (a, b) for a, b in zip(declared.shape, inferred.shape, strict=True))
