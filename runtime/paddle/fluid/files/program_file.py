# SPDX-License-Identifier: Apache-2.0
"""Serializes programs in the format of `__model__` files: the original's ProgramDesc message.

Attributes of operators are encoded as OpDesc.Attr messages.

Parameters are read as persistable variables, because the format does not distinguish the two. Attributes that are
unknown to this implementation are dropped when a program is read; a warning names those that could have an effect.
"""

from __future__ import annotations

import struct
import warnings
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from paddle.endpoints import listed
from paddle.fluid.errors import ModelFileError
from paddle.fluid.files.tensor_file import read_tensor_desc, tensor_desc
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import BLOCK_ATTRS, AttrType, attribute_type
from paddle.fluid.program.variable import Variable, VarType
from paddle.graph import Operator
from paddle.ops.base.attributes import COMMON_ATTRS, IDLE_ATTRS
from paddle.ops.base.errors import OpError
from paddle.ops.base.registry import attribute_of, lookup
from paddle.protobuf import FIXED32, bytes_field, double_field, fields, signed, text, varint, varint_field

if TYPE_CHECKING:
    from paddle.fluid.program.program import Program

_FLOAT = struct.Struct("<f")


# The field of the message that stores each type.
_FIELD = {
    AttrType.INT: 3,
    AttrType.FLOAT: 4,
    AttrType.STRING: 5,
    AttrType.INTS: 6,
    AttrType.FLOATS: 7,
    AttrType.STRINGS: 8,
    AttrType.BOOLEAN: 10,
    AttrType.BOOLEANS: 11,
    AttrType.BLOCK: 12,
    AttrType.LONG: 13,
    AttrType.BLOCKS: 14,
    AttrType.LONGS: 15,
    AttrType.FLOAT64S: 16,
    AttrType.FLOAT64: 19,
}
_TYPE_OF_FIELD = {field: kind for kind, field in _FIELD.items()}
_LISTS = (
    AttrType.INTS,
    AttrType.FLOATS,
    AttrType.STRINGS,
    AttrType.BOOLEANS,
    AttrType.BLOCKS,
    AttrType.LONGS,
    AttrType.FLOAT64S,
)
_DOUBLES = {AttrType.FLOAT: AttrType.FLOAT64, AttrType.FLOATS: AttrType.FLOAT64S}
_EXACT = {VarType.INT32, VarType.INT64, VarType.FP64}  # dtypes with values that float32 lacks


def encode_attribute(op_type: str, name: str, value: object, exact: bool = False) -> bytes:
    """Encode an attribute of an operator as its protobuf message (OpDesc.Attr).

    Floats are stored as float32. With `exact`, those that would change are stored as integers or as doubles.
    """
    items: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    kind = attribute_type(op_type, name, value)
    if exact and kind in _DOUBLES and not all(_survives(each) for each in items):
        if kind == AttrType.FLOAT and items[0].is_integer() and abs(items[0]) < 1 << 63:
            items = (int(items[0]),)  # the original, too, reads integers as floats
            kind = attribute_type(op_type, name, items[0])
        else:
            items, kind = tuple(map(float, items)), _DOUBLES[kind]
    header = bytes_field(1, name.encode()) + varint_field(2, kind)
    return header + b"".join(_item(_FIELD[kind], each) for each in items)


def read_attribute(message: bytes) -> tuple[str, object]:
    """Decode an attribute's protobuf message; return its name and its value, with lists as tuples.

    Raises:
        ModelFileError: the attribute's type is unknown or its value is missing.
    """
    name, kind = "", None
    values: list[object] = []
    for number, raw in fields(message):
        if number == 1 and isinstance(raw, bytes):
            name = text(raw, "an attribute")
        elif number == 2 and isinstance(raw, int):
            if raw not in AttrType._value2member_map_:
                raise ModelFileError(f"attribute {name!r} has unknown type {raw}")
            kind = AttrType(raw)
        elif number in _TYPE_OF_FIELD:
            values.append(_value(_TYPE_OF_FIELD[number], raw))
    if kind in _LISTS:
        return name, tuple(values)
    if kind is None or not values:
        raise ModelFileError(f"attribute {name!r} has no value")
    return name, values[0]


def _item(field: int, value: object) -> bytes:
    if isinstance(value, str):
        return bytes_field(field, value.encode())
    if field in (_FIELD[AttrType.FLOAT], _FIELD[AttrType.FLOATS]):
        return varint(field << 3 | FIXED32) + _FLOAT.pack(value)
    if isinstance(value, float):
        return double_field(field, value)
    assert isinstance(value, int)
    return varint_field(field, int(value))


def _survives(value: float) -> bool:
    """Return whether a value is unchanged after it was written as a float32 and read."""
    with np.errstate(over="ignore"):
        stored = np.float32(value)
    return float(str(stored)) == value or value != value


def _value(kind: AttrType, raw: int | float | bytes) -> object:
    if kind in (AttrType.FLOAT, AttrType.FLOATS) and isinstance(raw, bytes) and len(raw) == _FLOAT.size:
        # The shortest decimal of the same float32, so that 0.9 is read as 0.9.
        return float(str(np.frombuffer(raw, "<f4")[0]))
    if kind in _DOUBLES.values() and isinstance(raw, float):
        return raw
    if kind in (AttrType.STRING, AttrType.STRINGS) and isinstance(raw, bytes):
        return text(raw, "an attribute")
    if kind in (AttrType.BOOLEAN, AttrType.BOOLEANS):
        return bool(raw)
    if not isinstance(raw, int):
        raise ModelFileError(
            f"an attribute of type {kind.name}: expected a number, got a value of type {type(raw).__name__}"
        )
    return _signed32(signed(raw)) if kind in (AttrType.INT, AttrType.INTS) else signed(raw)


def _signed32(value: int) -> int:
    return value - (1 << 32) if 1 << 31 <= value < 1 << 32 else value


MAX_BLOCKS = 10_000
MAX_NAMED = 8
_NEUTRAL: tuple[object, ...] = (0, "", (), 1.0, (1.0,))  # off, nothing, or a scale that changes nothing
_STOP_GRADIENT = 6  # field of a VarDesc
_TENSORS = {VarType.SELECTED_ROWS: 2, VarType.LOD_TENSOR: 3, VarType.LOD_TENSOR_ARRAY: 4}


def to_bytes(program: Program) -> bytes:
    """Serialize a program as a ProgramDesc message."""
    blocks = b"".join(bytes_field(1, _block(block)) for block in program.blocks)
    return blocks + bytes_field(2, varint_field(1, 0))


def read_into(program: Program, message: bytes) -> None:
    """Parse a ProgramDesc message into an empty program.

    Raises:
        ModelFileError: the bytes are not a ProgramDesc.
        OpError: an operator is unknown or does not match the table.
    """
    described = list(islice((value for number, value in fields(message) if number == 1), MAX_BLOCKS + 1))
    if not 1 <= len(described) <= MAX_BLOCKS:
        raise ModelFileError(
            f"expected 1 to {MAX_BLOCKS} blocks in a program, found {len(described)} or more"
        )
    program.blocks = [Block(program, idx) for idx in range(len(described))]
    unknown: set[tuple[str, str]] = set()
    try:
        for block, each in zip(program.blocks, described, strict=True):
            _fill(block, _bytes(each, "a block"), unknown)
        _check_bodies(program)
    except (ModelFileError, OpError):
        raise
    except (ValueError, OverflowError) as error:  # a shape or a number that is impossible here
        raise ModelFileError(f"the program is damaged: {error}") from error
    if unknown:
        named = listed((f"{name} of {op_type}" for op_type, name in sorted(unknown)), MAX_NAMED)
        warnings.warn(f"attributes of the program that have no effect in this runtime: {named}", stacklevel=2)
    program.touch()


def _block(block: Any) -> bytes:
    parts = [varint_field(1, block.idx), varint_field(2, block.parent_idx)]
    parts.extend(bytes_field(3, _variable(variable)) for variable in block.vars.values())
    parts.extend(bytes_field(4, _operator(op)) for op in block.run_ops)
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
    parts = name + bytes_field(2, described) + varint_field(3, variable.persistable)
    # Gradients of bodies are derived when they run. Fluid 1.x ignores the field, which Paddle 2 has for all variables.
    blocks = variable.stop_gradient and variable.block.idx > 0
    if variable.error_bounds and variable.block.idx > 0:
        warnings.warn(
            f"the program's bytes omit the error clip of {variable.name!r} in a body: set it again after reading",
            stacklevel=2,
        )
    return parts + (varint_field(_STOP_GRADIENT, 1) if blocks else b"")


def _operator(op: Operator) -> bytes:
    parts = []
    for number, slots in ((1, op.inputs), (2, op.outputs)):
        for slot, names in slots.items():
            arguments = b"".join(bytes_field(2, name.encode()) for name in names)
            parts.append(bytes_field(number, bytes_field(1, slot.encode()) + arguments))
    parts.append(bytes_field(3, op.type.encode()))
    exact = op.attrs.get("dtype") in _EXACT
    parts.extend(
        bytes_field(4, encode_attribute(op.type, name, value, exact)) for name, value in op.attrs.items()
    )
    return b"".join(parts)


def _fill(block: Any, message: bytes, unknown: set[tuple[str, str]]) -> None:
    operators, said = [], None
    for number, value in fields(message):
        if number == 1:
            said = _int(value)
        elif number == 2:
            block.parent_idx = _int(value)
        elif number == 3:
            _read_variable(block, _bytes(value, "a variable"))
        elif number == 4:
            operators.append(_bytes(value, "an operator"))
        elif number == 5:
            block.forward_block_idx = _int(value)
    around = (block.parent_idx, block.forward_block_idx)
    if said != block.idx or not all(-1 <= each < block.idx for each in around):
        raise ModelFileError(
            f"block {block.idx} of the program: expected index {block.idx} and parents from -1 to {block.idx - 1}, "
            f"got index {said} and parents {around}"
        )
    block.ops = [_read_operator(block, each, unknown) for each in operators]


def _read_variable(block: Block, message: bytes) -> Variable:
    name, described, persistable, stop_gradient = "", b"", False, False
    for number, value in fields(message):
        if number == 1:
            name = text(value, "a name")
        elif number == 2:
            described = _bytes(value, name)
        elif number == 3:
            persistable = bool(value)
        elif number == _STOP_GRADIENT:
            stop_gradient = bool(value) and block.idx > 0
    if not name:
        raise ModelFileError(f"block {block.idx} of the program describes a variable without a name")
    kind, level = VarType.LOD_TENSOR, 0
    dtype: np.dtype[Any] = np.dtype("float32")
    shape: tuple[int, ...] = ()
    for number, value in fields(described):
        if number == 1:
            number_of_type = _int(value)
            if number_of_type not in VarType._value2member_map_:
                raise ModelFileError(f"{name!r} has unknown type {number_of_type}")
            kind = VarType(number_of_type)
        elif number == 2:
            dtype, shape = read_tensor_desc(_bytes(value, name), name)
        elif number in (3, 4):
            for inner, part in fields(_bytes(value, name)):
                if inner == 1:
                    dtype, shape = read_tensor_desc(_bytes(part, name), name)
                else:
                    level = _int(part)
    variable = block.create_var(name, shape, dtype, persistable=persistable, lod_level=level, type=kind)
    variable.is_from_file, variable.stop_gradient = True, stop_gradient
    return variable


def _read_operator(block: Block, message: bytes, unknown: set[tuple[str, str]]) -> Operator:
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
            op_type = text(part, "an operator")
        elif number == 4:
            name, attribute = read_attribute(part)
            attrs[name] = attribute
    known = {**IDLE_ATTRS, **lookup(op_type).attrs, **COMMON_ATTRS}
    taken = {}
    for name, attribute in attrs.items():
        if attribute_of(name) in known:
            taken[attribute_of(name)] = attribute
        elif attribute not in _NEUTRAL:
            unknown.add((op_type, name))
    return block.operator_class.make(op_type, *slots, taken)


def _read_slot(message: bytes) -> tuple[str, list[str]]:
    slot, names = "", []
    for number, value in fields(message):
        if number == 1:
            slot = text(value, "a slot")
        else:
            names.append(text(value, "a slot"))
    return slot, names


def _check_bodies(program: Program) -> None:
    """Check that the body of each operator exists and does not contain itself.

    Raises:
        ModelFileError: a body is missing or contains itself.
    """
    bodies: dict[int, set[int]] = {}
    for block in program.blocks:
        inner = bodies[block.idx] = set()
        for op in block.ops:
            for name in BLOCK_ATTRS.keys() & op.attrs.keys():
                value: Any = op.attrs[name]
                inner.update(value if isinstance(value, tuple) else (value,))
        if not all(isinstance(each, int) and 0 < each < len(program.blocks) for each in inner):
            raise ModelFileError(
                f"block {block.idx} names sub-blocks that do not exist: {sorted(inner, key=str)}"
            )
    # remove blocks that contain no bodies until none is left; the remaining ones contain themselves
    holders: dict[int, list[int]] = {}
    for holder, inner in bodies.items():
        for each in inner:
            holders.setdefault(each, []).append(holder)
    open_bodies = {holder: len(inner) for holder, inner in bodies.items()}
    done = [holder for holder, count in open_bodies.items() if not count]
    for each in done:
        for holder in holders.get(each, ()):
            open_bodies[holder] -= 1
            if not open_bodies[holder]:
                done.append(holder)
    if len(done) < len(bodies):
        raise ModelFileError("the blocks of the program form a cycle: an operator is nested inside itself")


def _bytes(value: int | float | bytes, what: str) -> bytes:
    if not isinstance(value, bytes):
        raise ModelFileError(f"the description of {what} is damaged: expected bytes, got a number")
    return value


def _int(value: int | float | bytes) -> int:
    if not isinstance(value, int):
        raise ModelFileError(f"a description is damaged: expected a number, got {type(value).__name__}")
    number = signed(value)
    return number - (1 << 32) if 1 << 31 <= number < 1 << 32 else number
