# SPDX-License-Identifier: Apache-2.0
"""Field: a field of a protobuf message, with the check of its values, its wire format and its text format."""

from __future__ import annotations

import numbers
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from paddle import protobuf
from paddle.errors import ConfigError, ModelFileError, PaddleError
from paddle_node.contract.classes import NamedTuple

ZEROS: Mapping[str, Any] = {"string": "", "bytes": b"", "bool": False, "double": 0.0, "float": 0.0}
_FLOAT = struct.Struct("<f")
_PACKED: Mapping[str, struct.Struct] = {"double": struct.Struct("<d"), "float": _FLOAT}
_RANGES: Mapping[str, tuple[int, int]] = {
    "int32": (-(1 << 31), 1 << 31),
    "uint32": (0, 1 << 32),
    "int64": (-(1 << 63), 1 << 63),
    "uint64": (0, 1 << 64),
}


class MessageTypeError(PaddleError, TypeError):
    """Raised when a field of a message is set to a value of the wrong type; also a TypeError."""


class Field(NamedTuple):
    """A field of a message; `kind` is a scalar type, or a class of messages."""

    number: int
    name: str
    kind: Any
    label: str
    default: Any

    @property
    def is_repeated(self) -> bool:
        """Whether the field holds a list of values."""
        return self.label.startswith("*")

    def checked(self, value: Any) -> Any:
        """Return a value converted to the field's type.

        Raises:
            MessageTypeError: the value cannot be of the field's type.
            ConfigError: the value is outside the range of the type, or its text cannot be written as UTF-8.
        """
        try:
            return self._checked(value)
        except OverflowError as error:  # a number too large for a float; its digits may be thousands
            raise ConfigError(f"{self.name}: the value is outside the range of {self.kind}") from error
        except UnicodeEncodeError as error:
            raise ConfigError(f"{self.name} is {value!r:.80}, which cannot be written as UTF-8") from error

    def _checked(self, value: Any) -> Any:
        kind, found = self.kind, value
        if isinstance(kind, type):
            fits, found = isinstance(value, kind), value
        elif kind in ("string", "bytes"):
            fits = isinstance(value, (str, bytes))
            if fits and kind == "string" and isinstance(value, bytes):
                found = protobuf.text(value, self.name)
            elif fits and kind == "bytes" and isinstance(value, str):
                found = value.encode("utf-8")
            elif fits:
                value.encode("utf-8")  # a lone surrogate has no encoding
        elif kind in ("double", "float"):
            fits = isinstance(value, numbers.Real)
            found = float(value) if fits else value
            found = _FLOAT.unpack(_FLOAT.pack(found))[0] if fits and kind == "float" else found
        else:
            fits = isinstance(value, (numbers.Integral, np.bool_))
            found = bool(value) if kind == "bool" else int(value) if fits else value
            low, end = _RANGES.get(kind, (0, 1 << 64))
            if fits and kind != "bool" and not low <= found < end:
                raise ConfigError(f"{self.name} is {_short(found)}, which is outside the range of {kind}")
        if not fits:
            name = kind if isinstance(kind, str) else kind.__name__
            raise MessageTypeError(f"{self.name}: expected type {name}, got {value!r:.80}")
        return found


def encoded(field: Field, value: Any) -> bytes:
    """Encode a field and its value or values in the wire format."""
    if not field.is_repeated:
        return _encoded_one(field, value)
    if field.label == "**":
        packed = b"".join(struct.pack("<d", each) for each in value)
        return protobuf.bytes_field(field.number, packed)
    return b"".join(_encoded_one(field, each) for each in value)


def _encoded_one(field: Field, value: Any) -> bytes:
    number, kind = field.number, field.kind
    if isinstance(field.kind, type):
        return protobuf.bytes_field(number, value.SerializePartialToString())
    if isinstance(value, (str, bytes)):
        return protobuf.bytes_field(number, value.encode("utf-8") if isinstance(value, str) else value)
    if kind == "double":
        return protobuf.double_field(number, value)
    if kind == "float":
        return protobuf.varint(number << 3 | protobuf.FIXED32) + _FLOAT.pack(value)
    return protobuf.varint_field(number, int(value))


def decoded(field: Field, raw: int | float | bytes) -> Any:
    """Decode the value of a field from the wire format.

    Raises:
        ModelFileError: the value's type differs from the field's.
    """
    if field.kind == "float" and isinstance(raw, bytes) and len(raw) == _FLOAT.size:
        return _FLOAT.unpack(raw)[0]
    if field.kind in ("int32", "int64") and isinstance(raw, int):
        raw = protobuf.signed(raw)
    try:
        return field.checked(raw)
    except (MessageTypeError, ConfigError) as error:
        raise ModelFileError(f"a serialized message is damaged: {error}") from error


def unpacked(field: Field, raw: bytes) -> Iterator[Any]:
    """Decode a packed repeated field, and yield its values."""
    form = _PACKED.get(field.kind)
    if form is not None:
        if len(raw) % form.size:
            raise ModelFileError(f"{field.name} holds {len(raw)} bytes, not a multiple of {form.size}")
        yield from (value for (value,) in form.iter_unpack(raw))
    else:
        yield from (decoded(field, value) for value in protobuf.varints(raw))


def _short(value: int) -> str:
    return str(value) if abs(value) < 1 << 128 else f"a number of {value.bit_length()} bits"


def shown(value: Any) -> str:
    """Format a value in protobuf's text format."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, bytes)):
        raw = value.encode("utf-8") if isinstance(value, str) else value
        return '"' + "".join(map(_character, raw)) + '"'
    return str(value)


def _character(byte: int) -> str:
    return _ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")


_ESCAPES: Mapping[int, str] = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
