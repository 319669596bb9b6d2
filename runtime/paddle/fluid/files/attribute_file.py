# SPDX-License-Identifier: Apache-2.0
"""Attributes of operators as bytes: OpDesc.Attr of the original's format."""

from __future__ import annotations

import struct

import numpy as np

from paddle.fluid.errors import ModelFileError
from paddle.fluid.program.attribute_types import AttrType, attribute_type
from paddle.protobuf import FIXED32, bytes_field, fields, signed, text, varint, varint_field

_FLOAT = struct.Struct("<f")


# Where each type is kept in the message.
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
}
_TYPE_OF_FIELD = {field: kind for kind, field in _FIELD.items()}
_LISTS = (
    AttrType.INTS,
    AttrType.FLOATS,
    AttrType.STRINGS,
    AttrType.BOOLEANS,
    AttrType.BLOCKS,
    AttrType.LONGS,
)


def encode_attribute(op_type: str, name: str, value: object) -> bytes:
    """Return one attribute."""
    kind = attribute_type(op_type, name, value)
    header = bytes_field(1, name.encode()) + varint_field(2, kind)
    items = value if isinstance(value, tuple) else (value,)
    return header + b"".join(_item(_FIELD[kind], each) for each in items)


def read_attribute(message: bytes) -> tuple[str, object]:
    """Return the name and the value of one attribute; lists are tuples.

    Raises:
        ModelFileError: its type is unknown or its value missing.
    """
    name, kind = "", None
    values: list[object] = []
    for number, raw in fields(message):
        if number == 1 and isinstance(raw, bytes):
            name = text(raw, "an attribute")
        elif number == 2 and isinstance(raw, int):
            if raw not in AttrType._value2member_map_:
                raise ModelFileError(f"attribute {name!r} has the unknown type {raw}")
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
    assert isinstance(value, int)
    return varint_field(field, int(value))


def _value(kind: AttrType, raw: int | float | bytes) -> object:
    if kind in (AttrType.FLOAT, AttrType.FLOATS) and isinstance(raw, bytes) and len(raw) == _FLOAT.size:
        # The shortest decimal of the same float32: 0.9 comes back as 0.9.
        return float(str(np.frombuffer(raw, "<f4")[0]))
    if kind in (AttrType.STRING, AttrType.STRINGS) and isinstance(raw, bytes):
        return text(raw, "an attribute")
    if kind in (AttrType.BOOLEAN, AttrType.BOOLEANS):
        return bool(raw)
    if not isinstance(raw, int):
        raise ModelFileError(f"an attribute of type {kind.name} holds a value of another type")
    return _signed32(signed(raw)) if kind in (AttrType.INT, AttrType.INTS) else signed(raw)


def _signed32(value: int) -> int:
    return value - (1 << 32) if 1 << 31 <= value < 1 << 32 else value
