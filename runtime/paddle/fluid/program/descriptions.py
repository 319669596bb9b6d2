# SPDX-License-Identifier: Apache-2.0
"""`program.desc`, `block.desc`, `op.desc` and `var.desc`: views with the methods of the original's core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.ops.base.dtypes import VarType


class ProgramDesc:
    """The description of a program, with the methods of the original's core."""

    def __init__(self, program: Any) -> None:
        self._program = program

    def serialize_to_string(self) -> bytes:
        """Serialize the program as the original's ProgramDesc message."""
        return bytes(self._program.serialize_to_string())

    def num_blocks(self) -> int:
        """Return the number of blocks in the program."""
        return int(self._program.num_blocks)

    def block(self, index: int) -> BlockDesc:
        """Return the description of the block at an index."""
        return BlockDesc(self._program.block(index))


class BlockDesc:
    """The description of a block; `parent` is the index of the enclosing block (-1 for block 0)."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self.id, self.parent = block.idx, block.parent_idx

    def op_size(self) -> int:
        """Return the number of operators in the block."""
        return len(self._block.ops)

    def op(self, index: int) -> OpDesc:
        """Return the description of the operator at an index."""
        return OpDesc(self._block.ops[index])

    def infer(self, op: OpDesc) -> None:
        """Infer the shapes and dtypes of the outputs of one of the block's operators."""
        self._block.infer(op._op)

    def var(self, name: str | bytes) -> VariableDesc:
        """Return the description of the variable with this name."""
        return VariableDesc(self._block.var(name.decode() if isinstance(name, bytes) else name))

    def has_var(self, name: str | bytes) -> bool:
        """Return whether the block has a variable of this name."""
        return bool(self._block.has_var(name.decode() if isinstance(name, bytes) else name))

    def all_vars(self) -> list[VariableDesc]:
        """Return the descriptions of all variables in the block."""
        return [VariableDesc(each) for each in self._block.vars.values()]


class OpDesc:
    """The description of an operator; changes take effect on the operator itself."""

    def __init__(self, op: Any) -> None:
        self._op = op
        self.input, self.output, self.attr, self.has_attr = op.input, op.output, op.attr, op.has_attr
        self.attr_type = op.attr_type
        self.set_attr = self._set_attr = op._set_attr
        self.remove_attr, self._rename_input, self._rename_output = (
            op._remove_attr,
            op._rename_input,
            op._rename_output,
        )

    def type(self) -> str:
        """Return the operator's type, such as "mul"."""
        return str(self._op.type)

    def input_names(self) -> list[str]:
        """Return the names of the operator's input slots."""
        return list(self._op.input_names)

    def output_names(self) -> list[str]:
        """Return the names of the operator's output slots."""
        return list(self._op.output_names)

    def input_arg_names(self) -> list[str]:
        """Return the names of the variables that the operator reads."""
        return list(self._op.input_arg_names)

    def output_arg_names(self) -> list[str]:
        """Return the names of the variables that the operator writes."""
        return list(self._op.output_arg_names)

    def infer_var_type(self, block: BlockDesc) -> None:
        """Do nothing: the kinds of outputs are set when an operator is appended."""

    def infer_shape(self, block: BlockDesc) -> None:
        """Infer the shapes and dtypes of the outputs again, after a change to inputs or attributes.

        Raises:
            OpError: the inputs do not fit the operator.
        """
        block.infer(self)

    def attr_names(self) -> list[str]:
        """Return the names of the operator's attributes."""
        return list(self._op.attr_names)


class VariableDesc:
    """The description of a variable; changes take effect on the variable itself."""

    def __init__(self, variable: Any) -> None:
        self._variable = variable

    def name(self) -> str:
        """Return the variable's name."""
        return str(self._variable.name)

    def shape(self) -> list[int]:
        """Return the variable's shape as declared, with -1 for the batch size."""
        return list(self._variable.shape)

    def dtype(self) -> VarType:
        """Return the number of the variable's dtype in the original's enum."""
        return VarType.of(self._variable.dtype)

    def type(self) -> VarType:
        """Return the variable's kind, such as LOD_TENSOR."""
        return VarType(self._variable.type)

    def persistable(self) -> bool:
        """Return whether the variable is persistable."""
        return bool(self._variable.persistable)

    def lod_level(self) -> int:
        """Return the number of sequence levels (LoD) of the variable."""
        return int(self._variable.lod_level)

    def set_shape(self, shape: Sequence[int]) -> None:
        """Set the variable's declared shape."""
        self._changed(shape=tuple(int(size) for size in shape))

    def set_dtype(self, dtype: VarType) -> None:
        """Set the variable's dtype, given as a number, a name or a numpy dtype."""
        self._changed(dtype=VarType.of(dtype).numpy)

    def set_type(self, type: VarType) -> None:
        """Set the variable's type, such as LOD_TENSOR."""
        self._changed(type=VarType(type))

    def set_persistable(self, persistable: bool) -> None:
        """Set whether the variable is persistable."""
        self._changed(persistable=bool(persistable))

    def set_lod_level(self, lod_level: int) -> None:
        """Set the number of sequence levels (LoD) of the variable."""
        self._changed(lod_level=int(lod_level))

    def _changed(self, **fields: object) -> None:
        for name, value in fields.items():
            setattr(self._variable, name, value)
        self._variable.block.program.touch()
