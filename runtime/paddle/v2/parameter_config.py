# SPDX-License-Identifier: Apache-2.0
"""Configuration of one parameter and its protobuf form (message ParameterConfig of the original).

Written fields: name, size, initial_mean, initial_std, dims, initial_strategy and initial_smart always, as the
original's configurations have them; every other one when it differs from the message's default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from paddle import protobuf
from paddle.v2.errors import ModelFileError

NORMAL, UNIFORM = 0, 1
MAX_ELEMENTS = 1 << 40


@dataclass(frozen=True)
class UpdateHook:
    """``pruning``: keep the (1 - sparsity_ratio) * size largest weights, mask gradients of the others."""

    type: str
    sparsity_ratio: float = 0.6


@dataclass(frozen=True)
class ParameterConfig:
    """Name, shape, initial values and update settings of one parameter.

    The fields are in the order of the message's field numbers, from 1. ``initial_std`` is half of the range if
    ``initial_strategy`` is uniform. ``dims`` may be empty.
    """

    name: str
    size: int
    learning_rate: float = 1.0
    momentum: float = 0.0
    initial_mean: float = 0.0
    initial_std: float = 0.01
    decay_rate: float = 0.0
    decay_rate_l1: float = 0.0
    dims: tuple[int, ...] = ()
    device: int = -1
    initial_strategy: int = NORMAL
    initial_smart: bool = False
    num_batches_regularization: int = 1
    is_sparse: bool = False
    format: str = ""
    sparse_remote_update: bool = False
    gradient_clipping_threshold: float = 0.0
    is_static: bool = False
    para_id: int = 0
    update_hooks: tuple[UpdateHook, ...] = ()
    need_compact: bool = False
    sparse_update: bool = False
    is_shared: bool = False
    parameter_block_size: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """``dims``, or (1, size) if the layer gives none."""
        return self.dims or (1, self.size)

    def encode(self) -> bytes:
        """Return the serialized message."""
        out = bytearray()
        for number, (name, kind) in _FIELDS.items():
            value = getattr(self, name)
            if name in _ALWAYS or value != _DEFAULTS[name]:
                out += _encode_field(number, kind, value)
        return bytes(out)

    @classmethod
    def decode(cls, message: bytes) -> ParameterConfig:
        """Read a serialized message; unknown fields are skipped.

        Raises:
            ModelFileError: it is damaged or lacks name or size.
        """
        found: dict[str, object] = {}
        for number, raw in protobuf.fields(message):
            if number in _FIELDS:
                name, kind = _FIELDS[number]
                _decode_field(found, name, kind, raw)
        if not isinstance(found.get("name"), str) or not isinstance(found.get("size"), int):
            raise ModelFileError(f"a parameter configuration lacks name or size; it has {sorted(found)}")
        config = cls(**found)  # type: ignore[arg-type]
        config._check_size()
        return config

    def _check_size(self) -> None:
        count = math.prod(self.shape)
        if not 0 < self.size <= MAX_ELEMENTS:
            raise ModelFileError(f"parameter {self.name!r} declares {self.size} elements")
        # An lstm weight stores [size, size, 4] and the same count; a bias may store [1, size].
        if count != self.size:
            raise ModelFileError(
                f"parameter {self.name!r}: dims {self.dims} hold {count} elements, but size is {self.size}"
            )


# The fields are numbered in this order in the message; their types determine the encoding.
_FIELDS: dict[int, tuple[str, str]] = {
    number: (each.name, str(each.type)) for number, each in enumerate(fields(ParameterConfig), 1)
}
_SIGNED = ("device", "initial_strategy", "num_batches_regularization")
_DIMS, _HOOKS = "tuple[int, ...]", "tuple[UpdateHook, ...]"
_MAX_ITEMS = 32
_ALWAYS = frozenset(
    {"name", "size", "initial_mean", "initial_std", "dims", "initial_strategy", "initial_smart"}
)
_DEFAULTS = {field.name: field.default for field in fields(ParameterConfig)}


def _encode_field(number: int, kind: str, value: object) -> bytes:
    if kind == "str":
        return protobuf.bytes_field(number, str(value).encode("utf-8"))
    if kind == "float":
        return protobuf.double_field(number, float(value))  # type: ignore[arg-type]
    if kind == _DIMS:
        return b"".join(protobuf.varint_field(number, item) for item in value)  # type: ignore[attr-defined]
    if kind == _HOOKS:
        return b"".join(protobuf.bytes_field(number, _encode_hook(hook)) for hook in value)  # type: ignore[attr-defined]
    return protobuf.varint_field(number, int(value))  # type: ignore[call-overload]


def _encode_hook(hook: UpdateHook) -> bytes:
    return protobuf.bytes_field(1, hook.type.encode("utf-8")) + protobuf.double_field(2, hook.sparsity_ratio)


def _decode_field(found: dict[str, object], name: str, kind: str, raw: int | float | bytes) -> None:
    if kind == "str" and isinstance(raw, bytes):
        found[name] = protobuf.text(raw, f"{name} of a parameter configuration")
    elif kind == "float" and isinstance(raw, float):
        found[name] = raw
    elif kind == _DIMS and isinstance(raw, int):
        _append(found, name, (raw,))
    elif kind == _DIMS and isinstance(raw, bytes):
        _append(found, name, tuple(protobuf.varints(raw)))
    elif kind == _HOOKS and isinstance(raw, bytes):
        _append(found, name, (_decode_hook(raw),))
    elif kind == "bool" and isinstance(raw, int):
        found[name] = bool(raw)
    elif kind == "int" and isinstance(raw, int):
        found[name] = protobuf.signed(raw) if name in _SIGNED else raw
    else:
        raise ModelFileError(
            f"{name} of a parameter configuration has the wrong wire type ({type(raw).__name__})"
        )


def _append(found: dict[str, object], name: str, items: tuple[object, ...]) -> None:
    known: tuple[object, ...] = found.get(name, ())  # type: ignore[assignment]
    if len(known) + len(items) > _MAX_ITEMS:
        raise ModelFileError(f"{name} of a parameter configuration has more than {_MAX_ITEMS} values")
    found[name] = (*known, *items)


def _decode_hook(message: bytes) -> UpdateHook:
    found = dict(protobuf.fields(message))
    kind, ratio = found.get(1, b""), found.get(2, 0.6)
    if not isinstance(kind, bytes) or not isinstance(ratio, float):
        raise ModelFileError("an update hook of a parameter configuration is damaged")
    return UpdateHook(kind.decode("utf-8", "replace"), ratio)
