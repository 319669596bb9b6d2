# SPDX-License-Identifier: Apache-2.0
"""Programs as bytes: the original's ProgramDesc message, as `__model__` files hold it.

Parameters come back as persistable variables: the format does not tell them apart. Attributes that this
implementation's operators do not have are left out when a program is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from paddle.fluid.errors import ModelFileError
from paddle.fluid.files.attribute_file import encode_attribute, read_attribute
from paddle.fluid.files.tensor_file import read_tensor_desc, tensor_desc
from paddle.fluid.program.block import Block
from paddle.fluid.program.var_type import VarType
from paddle.fluid.program.variable import Variable
from paddle.graph import Operator
from paddle.ops.base.registry import COMMON_ATTRS, lookup
from paddle.protobuf import bytes_field, fields, signed, varint_field

if TYPE_CHECKING:
    from paddle.fluid.program.program import Program

_TENSORS = {VarType.SELECTED_ROWS: 2, VarType.LOD_TENSOR: 3, VarType.LOD_TENSOR_ARRAY: 4}


def to_bytes(program: Program) -> bytes:
    """Return a program's ProgramDesc."""
    blocks = b"".join(bytes_field(1, _block(block)) for block in program.blocks)
    return blocks + bytes_field(2, varint_field(1, 0))


def read_into(program: Program, message: bytes) -> None:
    """Fill an empty program from a ProgramDesc.

    Raises:
        ModelFileError: the bytes are none.
        OpError: an operator is unknown or does not fit the table.
    """
    described = [value for number, value in fields(message) if number == 1]
    if not described:
        raise ModelFileError("the bytes hold no program: no block is in them")
    program.blocks = [Block(program, idx) for idx in range(len(described))]
    for block, each in zip(program.blocks, described, strict=True):
        _fill(program, block, _bytes(each, "a block"))
    program.touch()


def _block(block: Any) -> bytes:
    parts = [varint_field(1, block.idx), varint_field(2, block.parent_idx)]
    parts.extend(bytes_field(3, _variable(variable)) for variable in block.vars.values())
    parts.extend(bytes_field(4, _operator(op)) for op in block.ops)
    parts.append(varint_field(5, block.forward_block_idx))
    return b"".join(parts)


def _variable(variable: Any) -> bytes:
    kind = getattr(variable, "type", VarType.LOD_TENSOR)
    described = varint_field(1, kind)
    if kind in _TENSORS:
        tensor = tensor_desc(variable.dtype, variable.shape)
        if kind != VarType.SELECTED_ROWS:
            tensor = bytes_field(1, tensor) + varint_field(2, variable.lod_level)
        described += bytes_field(_TENSORS[kind], tensor)
    name = bytes_field(1, variable.name.encode())
    return name + bytes_field(2, described) + varint_field(3, variable.persistable)


def _operator(op: Operator) -> bytes:
    parts = []
    for number, slots in ((1, op.inputs), (2, op.outputs)):
        for slot, names in slots.items():
            arguments = b"".join(bytes_field(2, name.encode()) for name in names)
            parts.append(bytes_field(number, bytes_field(1, slot.encode()) + arguments))
    parts.append(bytes_field(3, op.type.encode()))
    parts.extend(bytes_field(4, encode_attribute(op.type, name, value)) for name, value in op.attrs.items())
    return b"".join(parts)


def _fill(program: Program, block: Any, message: bytes) -> None:
    operators = []
    for number, value in fields(message):
        if number == 2:
            block.parent_idx = _int(value)
        elif number == 3:
            _read_variable(block, _bytes(value, "a variable"))
        elif number == 4:
            operators.append(_bytes(value, "an operator"))
        elif number == 5:
            block.forward_block_idx = _int(value)
    block.ops = [_read_operator(block, each) for each in operators]


def _read_variable(block: Block, message: bytes) -> Variable:
    name, described, persistable = "", b"", False
    for number, value in fields(message):
        if number == 1:
            name = _bytes(value, "a name").decode()
        elif number == 2:
            described = _bytes(value, name)
        elif number == 3:
            persistable = bool(value)
    kind, level = VarType.LOD_TENSOR, 0
    dtype: np.dtype[Any] = np.dtype("float32")
    shape: tuple[int, ...] = ()
    for number, value in fields(described):
        if number == 1:
            kind = VarType(_int(value))
        elif number == 2:
            dtype, shape = read_tensor_desc(_bytes(value, name), name)
        elif number in (3, 4):
            for inner, part in fields(_bytes(value, name)):
                if inner == 1:
                    dtype, shape = read_tensor_desc(_bytes(part, name), name)
                else:
                    level = _int(part)
    return block.create_var(name, shape, dtype, persistable=persistable, lod_level=level, type=kind)


def _read_operator(block: Block, message: bytes) -> Operator:
    slots: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    op_type = ""
    attrs: dict[str, object] = {}
    for number, value in fields(message):
        part = _bytes(value, "an operator") if number < 5 else b""
        if number in (1, 2):
            slot, names = _read_slot(part)
            if names:
                slots[number - 1][slot] = names
        elif number == 3:
            op_type = part.decode()
        elif number == 4:
            name, attribute = read_attribute(part)
            attrs[name] = attribute
    known = {**lookup(op_type).attrs, **COMMON_ATTRS}
    return block.operator_class.make(
        op_type, *slots, {name: value for name, value in attrs.items() if name in known}
    )


def _read_slot(message: bytes) -> tuple[str, list[str]]:
    texts: Iterator[tuple[int, str]] = (
        (number, _bytes(value, "a slot").decode()) for number, value in fields(message)
    )
    slot, names = "", []
    for number, text in texts:
        if number == 1:
            slot = text
        else:
            names.append(text)
    return slot, names


def _bytes(value: int | float | bytes, what: str) -> bytes:
    if not isinstance(value, bytes):
        raise ModelFileError(f"the description of {what} is damaged: expected bytes, got a number")
    return value


def _int(value: int | float | bytes) -> int:
    if not isinstance(value, int):
        raise ModelFileError("a description is damaged: expected a number")
    number = signed(value)
    return number - (1 << 32) if 1 << 31 <= number < 1 << 32 else number
