# SPDX-License-Identifier: Apache-2.0
"""Writes samples as pickles of protocol 2, which every Python and numpy can read; `pickled` lists the types.

`text` writes plain values as pickles of protocol 0, which the original's messages contain.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.reader.pickled import DTYPE


def dumps(value: Any) -> bytes:
    """Return a value as a pickle.

    Raises:
        TypeError: the value contains an unsupported type.
    """
    out = [b"\x80\x02"]
    _write(value, out)
    out.append(b".")
    return b"".join(out)


def text(value: Any) -> str:
    """Pickle None, booleans, numbers, strings, and lists, tuples and dictionaries of these values with protocol 0.

    Raises:
        TypeError: the value contains an unsupported type.
    """
    return f"{_text(value)}."


def _text(value: Any) -> str:
    if value is None:
        return "N"
    if isinstance(value, bool):
        return f"I0{int(value)}\n"
    if isinstance(value, (int, float)):
        return f"I{value}\n" if isinstance(value, int) else f"F{value!r}\n"
    if isinstance(value, str):
        return f"V{''.join(map(_escaped, value))}\n"
    if isinstance(value, (list, tuple)):
        parts = [*map(_text, value)]
        return (
            f"({''.join(parts)}t"
            if isinstance(value, tuple)
            else f"(l{''.join(f'{each}a' for each in parts)}"
        )
    if isinstance(value, Mapping):
        return f"(d{''.join(f'{_text(key)}{_text(each)}s' for key, each in value.items())}"
    raise TypeError(f"cannot write a {type(value).__name__} as text")


def _escaped(letter: str) -> str:
    if " " <= letter <= "~" and letter != "\\":
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 1 << 16 else f"\\U{ord(letter):08x}"


def _write(value: Any, out: list[bytes]) -> None:
    writer = _WRITERS.get(type(value))
    if writer is None:
        writer = next((each for kind, each in _WRITERS.items() if isinstance(value, kind)), None)
    if writer is None:
        raise TypeError(f"cannot write a sample that contains a {type(value).__name__}")
    writer(value, out)


def _write_int(value: int, out: list[bytes]) -> None:
    if -(1 << 31) <= value < 1 << 31:
        out.append(b"J" + struct.pack("<i", value))
        return
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    out.append(b"\x8b" + struct.pack("<i", len(raw)) + raw)


def _write_text(value: str, out: list[bytes]) -> None:
    raw = value.encode("utf-8", "surrogatepass")
    out.append(b"X" + struct.pack("<I", len(raw)) + raw)


def _write_bytes(value: bytes, out: list[bytes]) -> None:
    out.append(b"c_codecs\nencode\n")
    _write_text(value.decode("latin-1"), out)
    _write_text("latin1", out)
    out.append(b"\x86R")


def _write_list(value: list[Any], out: list[bytes]) -> None:
    out.append(b"](")
    for each in value:
        _write(each, out)
    out.append(b"e")


def _write_tuple(value: tuple[Any, ...], out: list[bytes]) -> None:
    out.append(b"(")
    for each in value:
        _write(each, out)
    out.append(b"t")


def _write_dict(value: dict[Any, Any], out: list[bytes]) -> None:
    out.append(b"}(")
    for key, each in value.items():
        _write(key, out)
        _write(each, out)
    out.append(b"u")


def _write_dtype(dtype: np.dtype[Any], out: list[bytes]) -> None:
    out.append(b"cnumpy\ndtype\n")
    _write((dtype.str[1:], False, True), out)
    out.append(b"R")
    sizes = (dtype.itemsize, dtype.alignment) if dtype.kind in "SU" else (-1, -1)
    _write((3, "|" if dtype.str[0] == "|" else "<", None, None, None, *sizes, 0), out)
    out.append(b"b")


def _write_array(value: NDArray[Any], out: list[bytes]) -> None:
    array = _plain(value)
    out.append(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n")
    _write((0,), out)
    _write_bytes(b"b", out)
    out.append(b"\x87R(")
    _write(1, out)
    _write(array.shape, out)
    _write_dtype(array.dtype, out)
    out.append(b"\x89")
    _write_bytes(array.tobytes(), out)
    out.append(b"tb")


def _write_scalar(value: np.generic, out: list[bytes]) -> None:
    array = _plain(np.asarray(value))
    out.append(b"cnumpy.core.multiarray\nscalar\n")
    _write_dtype(array.dtype, out)
    _write_bytes(array.tobytes(), out)
    out.append(b"\x86R")


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in little-endian byte order."""
    if not DTYPE.fullmatch(array.dtype.str):
        raise TypeError(f"cannot write a sample that contains an ndarray of dtype {array.dtype}")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


_WRITERS: Mapping[type, Callable[[Any, list[bytes]], None]] = {
    type(None): lambda value, out: out.append(b"N"),
    bool: lambda value, out: out.append(b"\x88" if value else b"\x89"),
    np.ndarray: _write_array,
    np.generic: _write_scalar,
    int: _write_int,
    float: lambda value, out: out.append(b"G" + struct.pack(">d", value)),
    str: _write_text,
    bytes: _write_bytes,
    list: _write_list,
    tuple: _write_tuple,
    dict: _write_dict,
}
