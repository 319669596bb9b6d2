# SPDX-License-Identifier: Apache-2.0
"""Block: the core's block, with the modifications that backward passes and transpilers need.

An appended operator takes the current role and name scope of its program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, cast
from weakref import ref

import numpy as np
import numpy.typing as npt

from paddle import graph
from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.program.advice import of_shapes, swapped
from paddle.fluid.program.descriptions import BlockDesc
from paddle.fluid.program.operator import OP_ROLE, OP_ROLE_VAR, Operator
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.graph.block import Name
from paddle.graph.operator import script_line
from paddle.ops.base.errors import OpError, ShapeError
from paddle.ops.base.registry import Spec
from paddle_node.contract.classes import replace

Initializer = Callable[[Any, Any], Any]
"""An object of `fluid.initializer`: appends to a block the operator that initializes a variable."""

Names = Mapping[str, Name | Sequence[Name] | None]

# Operators that return selected rows for selected rows.
_KEEP_ROWS = ("scale", "clip", "clip_by_norm")


class Block(graph.Block):
    """A block of a program: its variables, by name, and its operators, in order."""

    variable_class: ClassVar[type[graph.Variable]] = Variable
    parameter_class: ClassVar[type[graph.Parameter]] = Parameter
    operator_class: ClassVar[type[graph.Operator]] = Operator

    def var(self, name: str) -> Variable:
        """Return the variable with this name in this block; parent blocks are not searched.

        Raises:
            FluidTypeError: the name is not a string.
            UnknownVariableError: the block has no variable of this name; also a ValueError.
        """
        if not isinstance(name, str):
            raise FluidTypeError(f"a variable's name must be a string, got {name!r} ({type(name).__name__})")
        return cast(Variable, super().var(name))

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Return the block's variables and operators as readable text; include all attributes if `with_details`."""
        return "\n".join(
            [
                f"block {self.idx} in {self.parent_idx}:",
                *(f"  var {variable!r}" for variable in self.vars.values()),
                *(f"  {op.describe()}" + (f" {dict(op.attrs)}" if with_details else "") for op in self.ops),
            ]
        )

    def create_var(
        self,
        name: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: npt.DTypeLike | VarType | None = None,
        persistable: bool = False,
        stop_gradient: bool = False,
        lod_level: int = 0,
        type: VarType = VarType.LOD_TENSOR,
        is_data: bool = False,
        initializer: Initializer | None = None,
    ) -> Variable:
        """Add a variable, or return the existing variable with this name if it has the same description.

        Args:
            name: the name of the variable; None means a generated name.
            shape: dimensions, with -1 for the batch size; None means those of the existing variable, or else inferred
                from the operator that writes the variable.
            dtype: name, numpy dtype or number; None means that of the existing variable, or else float32.
            is_data: whether the variable is fed.
            initializer: initializer, whose operator is appended to this block immediately.
        """
        made = Variable(
            self,
            type,
            name,
            shape,
            dtype,
            lod_level,
            persistable=persistable,
            stop_gradient=stop_gradient,
            is_data=is_data,
        )
        variable = self.var(made.name)
        if initializer is not None:
            initializer(variable, self)
        return variable

    def create_parameter(
        self,
        name: str | None = None,
        shape: Sequence[int] = (),
        dtype: npt.DTypeLike | VarType = "float32",
        trainable: bool = True,
        initializer: Initializer | None = None,
        optimize_attr: dict[str, Any] | None = None,
        regularizer: Any = None,
        gradient_clip_attr: Any = None,
        do_model_average: bool = True,
    ) -> Parameter:
        """Add a parameter to block 0, or return the existing parameter with this name if it has the same description.

        Args:
            trainable: whether the parameter gets a gradient.
            initializer: initializer, whose operator is appended to block 0 unless an operator there already writes the
                parameter.
            optimize_attr: see `Parameter`, as for the other settings for optimizers.
        """
        block = cast(Block, self.program.global_block())
        parameter = block._add(
            Parameter(
                block,
                shape,
                dtype,
                name=name,
                trainable=trainable,
                optimize_attr=optimize_attr,
                regularizer=regularizer,
                gradient_clip_attr=gradient_clip_attr,
                do_model_average=do_model_average,
            )
        )
        if initializer is not None and not any(parameter.name in op.writes for op in block.ops):
            initializer(parameter, block)
        return parameter

    @property
    def desc(self) -> BlockDesc:
        """The block's description, with the methods of the original's core."""
        return BlockDesc(self)

    def copy_to(self, program: graph.Program) -> Self:
        """Return a copy of the block, with copies of its operators, as a member of a different program."""
        twin = super().copy_to(program)
        twin.ops = [replace(op, home=ref(twin)) if isinstance(op, Operator) else op for op in self.ops]
        return twin

    def append_op(
        self,
        type: str,
        inputs: Names | None = None,
        outputs: Names | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> Operator:
        """Append an operator and return it; see the core's `Block.append_op`."""
        return self._insert_op(len(self.ops), type, inputs, outputs, attrs)

    @property
    def run_ops(self) -> Sequence[graph.Operator]:
        """Return the operators as executed, with their variables' own names even after memory_optimize."""
        return [op.under_own_names() if isinstance(op, Operator) else op for op in self.ops]

    def _prepend_op(self, type: str, *slots_and_attrs: Any, **named: Any) -> Operator:
        """Insert an operator at the beginning; arguments as in `append_op`."""
        return self._insert_op(0, type, *slots_and_attrs, **named)

    def _insert_op(
        self,
        index: int,
        type: str,
        inputs: Names | None = None,
        outputs: Names | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> Operator:
        """Insert an operator before the one at `index`."""
        given = {name: value for name, value in (attrs or {}).items() if value is not None}
        made = super().insert_op(index, type, _given(inputs), _given(outputs), self._common(given))
        op = cast(Operator, replace(made, origin=made.origin or script_line(), home=ref(self)))  # type: ignore[call-arg]
        self.ops[index] = op
        for name in op.writes:
            written = self.find(name)
            if isinstance(written, Variable):
                written.op = op
                if type in _KEEP_ROWS and self.is_sparse(op.inputs["X"][0]):
                    written.type = VarType.SELECTED_ROWS
        return op

    # Before 1.0, these names had no underscore.
    prepend_op, insert_op = _prepend_op, _insert_op

    def infer(self, op: graph.Operator) -> None:
        """Infer the shapes and dtypes of an operator's outputs and declare them.

        Scripts that test a single operator declare all its variables with the same dtype. Therefore, a bare input that
        no other operator reads may become an integer variable if the operator needs integers.
        """
        if text := swapped(op, self.reach, has_failed=False):
            raise ShapeError(f"operator {op.describe()}: {text}")
        try:
            super().infer(op)
        except OpError as error:
            if any(self._inferred_with_numbers(op, name) for name in op.reads):
                return
            inputs = [cast(Variable, self.reach(name)) for name in op.reads]
            text = swapped(op, self.reach, has_failed=True) or of_shapes(op, inputs)
            if not text:
                raise
            raise type(error)(f"{error}; {text}") from error

    def _inferred_with_numbers(self, op: graph.Operator, name: str) -> bool:
        variable = cast(Variable, self.reach(name))
        declared = variable.dtype
        if declared.kind != "f" or not self._may_change(variable, op):
            return False
        variable.dtype = np.dtype("int64")
        try:
            super().infer(op)
        except OpError:
            variable.dtype = declared
            return False
        return True

    def _declare(self, op: graph.Operator, slot: str, name: str, spec: Spec) -> None:
        found = cast("Variable | None", self.find(name))
        if found is None or found.dtype == spec.dtype or not self._may_change(found, op):
            super()._declare(op, slot, name, spec)
            return
        declared, found.dtype = found.dtype, spec.dtype
        try:
            super()._declare(op, slot, name, spec)
        except OpError:
            found.dtype = declared
            raise

    def _may_change(self, variable: Variable, op: graph.Operator) -> bool:
        """Return whether a variable's dtype may change: it is bare, and no other operator uses it."""
        return (
            variable.is_bare
            and len(self.program.blocks) == 1
            and variable.block is self
            and not any(variable.name in (*each.reads, *each.writes) for each in self.ops if each is not op)
        )

    def _remove_op(self, index: int) -> None:
        del self.ops[index]
        self.program.touch()

    def _replace_op(self, index: int, op: graph.Operator) -> None:
        self.ops[index] = op
        self.program.touch()

    def _slice_ops(self, start: int, end: int) -> list[graph.Operator]:
        return self.ops[start:end]

    def _remove_var(self, name: str) -> None:
        del self.vars[name]
        self.program.touch()

    def _rename_var(self, old: str, new: str) -> Variable:
        """Rename a variable in this block and in all of its operators, and return it."""
        variable = self.var(old)
        if new in self.vars:
            raise FluidError(
                f"cannot rename {old!r} to {new!r}: the block already has a variable of that name"
            )
        self.vars = {new if name == old else name: each for name, each in self.vars.items()}
        variable.name = new
        self.ops = [cast(Operator, op).renamed({old: new}) for op in self.ops]
        self.program.touch()
        return variable

    def _clone_variable(self, var: graph.Variable, force_persistable: bool = True) -> Variable:
        """Add a copy of a variable of another block."""
        kind = getattr(var, "type", VarType.LOD_TENSOR)
        bare = kind in (VarType.STEP_SCOPES, VarType.RAW)
        return self.create_var(
            var.name,
            None if bare else var.shape,
            None if bare else var.dtype,
            persistable=var.persistable or (force_persistable and not bare),
            lod_level=0 if bare or kind == VarType.SELECTED_ROWS else var.lod_level,
            type=kind,
            is_data=getattr(var, "is_data", False),
        )

    remove_op, slice_ops, rename_var, clone_variable = _remove_op, _slice_ops, _rename_var, _clone_variable

    def _sync_with_cpp(self) -> None:
        """Do nothing, because a block has only one description."""

    def _find_var_recursive(self, name: str) -> Variable | None:
        return cast("Variable | None", self.find(name))

    def _var_recursive(self, name: str) -> Variable:
        return cast(Variable, self.reach(name))

    def is_sparse(self, name: str) -> bool:
        """Return whether a variable is sparse (selected rows)."""
        found = self.find(name)
        return isinstance(found, Variable) and found.type == VarType.SELECTED_ROWS

    def iter_parameters(self) -> Iterator[Parameter]:
        """Yield the block's parameters in order of creation."""
        return iter(cast("list[Parameter]", self.all_parameters()))

    def _common(self, attrs: dict[str, object]) -> dict[str, object]:
        role, role_vars, scope = getattr(self.program, "op_context", (0, (), "/"))
        if role:
            attrs.setdefault(OP_ROLE, role)
        if role_vars:
            attrs.setdefault(OP_ROLE_VAR, role_vars)
        if scope != "/":
            attrs.setdefault("op_namescope", scope)
        return attrs


def _given(slots: Names | None) -> dict[str, Any]:
    """Return the slots, omitting those that are None or contain None.

    Raises:
        FluidTypeError: a slot has a number instead of a variable.
    """
    for slot, value in (slots or {}).items():
        if isinstance(value, (bool, int, float)):
            raise FluidTypeError(
                f"{slot}: expected a Variable, got {value!r}; make one with layers.fill_constant(shape, dtype, value)"
            )
    return {slot: value for slot, value in (slots or {}).items() if value is not None}
