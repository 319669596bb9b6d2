# SPDX-License-Identifier: Apache-2.0
"""Operator: the core's operator, with queries for Fluid scripts and the transpiler.

The types of operator attributes have the numbers of the original's file format.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Self
from weakref import ReferenceType

from paddle import graph
from paddle.fluid.errors import FluidError, ModelFileError
from paddle.fluid.program.descriptions import OpDesc
from paddle.graph.operator import EMPTY, OpRole
from paddle_node.contract.classes import dataclass, field, replace

__all__ = ["EMPTY", "OP_ROLE", "OP_ROLE_VAR", "OpRole", "Operator"]


class AttrType(IntEnum):
    """The type of an operator attribute, numbered as in the original."""

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOLEAN = 6
    BOOLEANS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11
    FLOAT64S = 12  # as in Paddle 2.5
    FLOAT64 = 15


BLOCK_ATTRS = {"sub_block": AttrType.BLOCK, "optimize_blocks": AttrType.BLOCKS}
_LONG_ATTRS = {"padding_idx", "min_row_size_to_use_multithread"}
_LONGS_ATTRS = {"height_sections"}
_SHAPES_OF_LONGS = {"fill_constant", "uniform_random", "gaussian_random", "fake_init"}
_STRINGS_ATTRS = {
    "op_role_var",
    "epmap",
    "endpoints",
    "table_names",
    "send_varnames",
    "recv_varnames",
    "varnames",
    "grad_to_block_id",
    "sparse_grad_to_param",
    "prefetch_var_name_to_block_id",
    "trainers",
}
_FLOATS_ATTRS = {"fp32_values"}


def attribute_type(op_type: str, name: str, value: object) -> AttrType:
    """Return the type of an attribute, given its value; lists are represented as tuples.

    Raises:
        ModelFileError: the format has no type for the value.
    """
    if name in BLOCK_ATTRS:
        return BLOCK_ATTRS[name]
    if isinstance(value, bool):
        return AttrType.BOOLEAN
    if isinstance(value, int):
        return AttrType.LONG if name in _LONG_ATTRS or abs(value) >= 1 << 31 else AttrType.INT
    if isinstance(value, float):
        return AttrType.FLOAT
    if isinstance(value, str):
        return AttrType.STRING
    if not isinstance(value, tuple):
        raise ModelFileError(
            f"attribute {name!r} of {op_type!r} has a value that cannot be written to a file: {value!r}"
        )
    first = value[0] if value else None
    if name in _STRINGS_ATTRS or isinstance(first, str):
        return AttrType.STRINGS
    if name in _FLOATS_ATTRS or any(isinstance(each, float) for each in value):
        return AttrType.FLOATS
    if isinstance(first, bool):
        return AttrType.BOOLEANS
    longs = name in _LONGS_ATTRS or (name == "shape" and op_type in _SHAPES_OF_LONGS)
    return AttrType.LONGS if longs else AttrType.INTS


OP_ROLE = "op_role"
OP_ROLE_VAR = "op_role_var"
_BODIES = ("sub_block", "optimize_blocks")  # attributes that are indices of blocks


@dataclass(frozen=True)
class Operator(graph.Operator):
    """An operator of one block; its `_set_...` methods change it in place.

    Attributes:
        own_names: shown name of a variable -> its own name, if memory_optimize shows it under the name of a dead
            variable.
    """

    own_names: Mapping[str, str] = field(default_factory=dict)
    # Weak, since plans that executors cache hold operators and must not keep their program alive.
    home: ReferenceType[Any] | None = field(default=None, compare=False, repr=False)

    def shown_as(self, lent: Mapping[str, str]) -> Self:
        """Return the operator with its variables under their shown names; `lent` maps own names to shown names."""
        used = {*self.reads, *self.writes} & lent.keys()
        return replace(self.renamed(lent), own_names={lent[name]: name for name in used})

    def under_own_names(self) -> Self:
        """Return the operator with its variables' own names; see `own_names`."""
        return replace(self.renamed(self.own_names), own_names={}) if self.own_names else self

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return a copy of the operator with variables renamed; `names` maps old names to new ones."""
        return replace(self, inputs=_swapped(self.inputs, names), outputs=_swapped(self.outputs, names))

    def input(self, slot: str) -> list[str]:
        """Return the names of the variables in an input slot."""
        return list(self.inputs.get(slot, ()))

    def output(self, slot: str) -> list[str]:
        """Return the names of the variables in an output slot."""
        return list(self.outputs.get(slot, ()))

    @property
    def input_names(self) -> list[str]:
        """Return the names of the input slots in alphabetical order, including slots without a variable."""
        return sorted(self.inputs)

    @property
    def output_names(self) -> list[str]:
        """Return the names of the output slots that have a variable, in alphabetical order."""
        return sorted(slot for slot, names in self.outputs.items() if names)

    @property
    def input_arg_names(self) -> list[str]:
        """Return the names of the variables that the operator reads, in the order of `input_names`."""
        return [name for slot in self.input_names for name in self.inputs[slot] if name != EMPTY]

    @property
    def output_arg_names(self) -> list[str]:
        """Return the names of the variables that the operator writes, in the order of `output_names`."""
        return [name for slot in self.output_names for name in self.outputs[slot] if name != EMPTY]

    @property
    def attr_names(self) -> list[str]:
        """Return the names of the operator's attributes."""
        return list(self._shown_attrs)

    def attr(self, name: str) -> object:
        """Return an attribute; for attributes that name bodies, the `Block` itself or a list of blocks.

        Raises:
            KeyError: the operator has no attribute of that name.
        """
        value: Any = self._shown_attrs[name]
        if name in _BODIES:
            blocks = self.block.program.blocks
            return blocks[value] if isinstance(value, int) else [blocks[each] for each in value]
        return list(value) if isinstance(value, tuple) else value

    def has_attr(self, name: str) -> bool:
        """Return whether the operator has the attribute."""
        return name in self._shown_attrs

    def attr_type(self, name: str) -> int:
        """Return the number of an attribute's type in the original's enum: INT 0, FLOAT 1, STRING 2, INTS 3 ...

        Raises:
            KeyError: the operator has no attribute of that name.
        """
        return attribute_type(self.type, name, self._shown_attrs[name])

    def all_attrs(self) -> dict[str, object]:
        """Return a copy of all attributes, with the values that `attr` returns."""
        return {name: self.attr(name) for name in self._shown_attrs}

    def to_string(self, throw_on_error: bool = False) -> str:
        """Return the operator with its attributes as readable text."""
        return f"{self.describe()} {dict(self.attrs)}"

    @property
    def _shown_attrs(self) -> dict[str, object]:
        # Every operator of the original has these two; here they are stored where they differ from the default.
        return {OP_ROLE: 0, "op_namescope": "/", **self.attrs}

    @property
    def block(self) -> Any:
        """Return the block that contains the operator.

        Raises:
            FluidError: the operator no longer belongs to a block.
        """
        found = None if self.home is None else self.home()
        if found is None:
            raise FluidError(f"operator {self.describe()} is not in a block")
        return found

    @property
    def idx(self) -> int:
        """Return the operator's position in its block."""
        return next(at for at, op in enumerate(self.block.ops) if op is self)

    @property
    def desc(self) -> OpDesc:
        """Return the operator's description, with the methods of the original's core."""
        return OpDesc(self)

    def _set_attr(self, name: str, value: object) -> None:
        """Set an attribute, in place."""
        self._change(attrs=self.definition.complete({**self.attrs, name: value}))

    def _remove_attr(self, name: str) -> None:
        """Reset an attribute to its default, in place."""
        self._change(
            attrs=self.definition.complete({key: each for key, each in self.attrs.items() if key != name})
        )

    def _rename_input(self, old: str, new: str) -> None:
        """Replace a variable that the operator reads, in place."""
        self._change(inputs=_swapped(self.inputs, {old: new}))

    def _rename_output(self, old: str, new: str) -> None:
        """Replace a variable that the operator writes, in place."""
        self._change(outputs=_swapped(self.outputs, {old: new}))

    # Before 1.0, these names had no underscore.
    set_attr, remove_attr, rename_input, rename_output = (
        _set_attr,
        _remove_attr,
        _rename_input,
        _rename_output,
    )

    def _block_attr(self, name: str) -> Any:
        """Return the block that an attribute names."""
        return self.attr(name)

    block_attr = _blocks_attr = _block_attr

    def _block_attr_id(self, name: str) -> int:
        """Return the index of the block that an attribute names."""
        return int(self.attr(name).idx)  # type: ignore[attr-defined]

    def _change(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        for cached in ("reads", "writes"):
            self.__dict__.pop(cached, None)
        self.block.program.touch()

    @property
    def role(self) -> int:
        """The value of the attribute `op_role`; 0 (forward) if it is not set."""
        role = self.attrs.get(OP_ROLE, 0)
        return role if isinstance(role, int) else 0

    @property
    def role_vars(self) -> tuple[str, ...]:
        """The value of the attribute `op_role_var`: parameter, gradient, parameter, gradient, ..."""
        names = self.attrs.get(OP_ROLE_VAR, ())
        return names if isinstance(names, tuple) else ()


def _swapped(slots: Mapping[str, tuple[str, ...]], names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {slot: tuple(names.get(name, name) for name in members) for slot, members in slots.items()}
