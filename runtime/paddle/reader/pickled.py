# SPDX-License-Identifier: Apache-2.0
"""Reads pickled samples as data: nothing in them is ever called or imported.

A sample can contain None, booleans, numbers, strings, bytes, lists, tuples, dictionaries, and numpy arrays and scalars
of numbers, booleans or text. Protocols 0 to 5 are supported, also of Python 2, whose strings become str if they are
UTF-8, and bytes otherwise. `pickling` writes such pickles.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.errors import PaddleError
from paddle_node.contract.classes import regex

DTYPE = regex(r"[<>=|]?(?:[biufcSU]\d{1,4}|\?)")
_BROKEN = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    struct.error,
)
# Anything else as a key might be nested so deeply that its hash exhausts the stack.
_KEYS = (str, bytes, int, float, type(None))


class PickleRefused(PaddleError, ValueError):
    """Raised when a pickle is damaged or contains an unsupported type; nothing was unpickled."""


def loads(raw: bytes, classes: Collection[str] = ()) -> Any:
    """Parse a pickle as data and return its value.

    Args:
        classes: "module name" of each class whose instances may occur; they become `Instance`s.

    Raises:
        PickleRefused: the pickle is damaged, or contains an unsupported type.
    """
    try:
        return _Machine(raw, classes).run()
    except PickleRefused:
        raise
    except _BROKEN as error:
        raise PickleRefused(
            f"damaged pickle of {len(raw)} bytes ({type(error).__name__}: {error})"
        ) from error


class Instance:
    """An object of an allowed class, as data; nothing of the class itself is used.

    Attributes:
        state: the values of its attributes by name.
    """

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def build(self, state: Any) -> None:
        """Set attributes from a dictionary, or from two of which either may be None."""
        for part in state if isinstance(state, tuple) else (state,):
            self.state |= part or {}


class _Array:
    """An array while its pickle is read: shape and bytes come after the array itself."""

    def __init__(self) -> None:
        self.keys: list[int] = []


class _Type:
    """A dtype while its pickle is read: the byte order comes after its name."""

    def __init__(self, name: str) -> None:
        if not DTYPE.fullmatch(name):
            raise PickleRefused(f"samples cannot contain arrays of dtype {name!r:.40}")
        self.dtype = np.dtype(name)

    def build(self, state: tuple[Any, ...]) -> None:
        if _text(state[1]) == ">":
            self.dtype = self.dtype.newbyteorder(">")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _bytes(value: str | bytes | bytearray) -> bytes:
    # A string of Python 2 that was UTF-8 became text: this gives its bytes back.
    return value.encode() if isinstance(value, str) else bytes(value)


def _native(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(array.dtype.newbyteorder("="))


def _make_array(_: str, shape: Any, kind: Any) -> _Array:
    return _Array()


def _make_type(name: str | bytes, *flags: Any) -> _Type:
    return _Type(_text(name))


def _make_scalar(kind: _Type, data: str | bytes) -> Any:
    return _native(np.frombuffer(_bytes(data), kind.dtype, 1))[0]


def _make_array_from_buffer(data: bytes, kind: _Type, shape: tuple[int, ...], order: str) -> NDArray[Any]:
    return _native(np.frombuffer(data, kind.dtype).reshape(shape, order="F" if order == "F" else "C"))


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if _text(encoding).replace("-", "").lower() != "latin1":
        raise PickleRefused(f"samples cannot contain bytes in the encoding {encoding!r:.40}; expected latin1")
    return text.encode("latin-1")


def _make_bytes(*nothing: Any) -> bytes:
    if nothing:
        raise PickleRefused("samples cannot contain a call of bytes() with arguments")
    return b""


_CALLS: Mapping[str, Callable[..., Any]] = {
    "_reconstruct": _make_array,
    "scalar": _make_scalar,
    "_frombuffer": _make_array_from_buffer,
    "dtype": _make_type,
    "encode": _encode,
    "bytes": _make_bytes,
}
_NAMES: Mapping[str, str] = {
    **{
        f"numpy.{core}.{module} {name}": name
        for core in ("core", "_core")
        for module, name in (
            ("multiarray", "_reconstruct"),
            ("multiarray", "scalar"),
            ("numeric", "_frombuffer"),
        )
    },
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
    "__builtin__ bytes": "bytes",
    "builtins bytes": "bytes",
}


class _Name(str):
    """An allowed name in a pickle; it is compared, never imported."""

    __slots__ = ()


class _Machine:
    """The stack machine that executes pickles, without calls."""

    def __init__(self, raw: bytes, classes: Collection[str]) -> None:
        self.raw, self.at, self.classes = raw, 0, classes
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        while True:
            code = self.take(1)
            if code == b".":
                break
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise PickleRefused(
                    f"samples cannot contain the pickle operation {code!r} (byte {self.at - 1})"
                )
            operation(self)
        value = self.stack.pop()
        if isinstance(value, _Array | _Type | _Name):
            raise PickleRefused("the pickle contains a type instead of a sample")
        return value

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.raw) - self.at:
            raise PickleRefused(
                f"damaged pickle: expected {size} bytes at byte {self.at}, but only {len(self.raw) - self.at} remain"
            )
        self.at += size
        return self.raw[self.at - size : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> bytes:
        end = self.raw.find(b"\n", self.at)
        if end < 0:
            raise PickleRefused(f"damaged pickle: the line at byte {self.at} is not terminated")
        text, self.at = self.raw[self.at : end], end + 1
        return text

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def above_mark(self) -> list[Any]:
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def pack(self, count: int) -> None:
        if len(self.stack) < count:
            raise PickleRefused(
                f"damaged pickle: expected {count} members for a tuple, got {len(self.stack)}"
            )
        taken = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.push(taken)

    def keep(self, key: int) -> None:
        value = self.stack[-1]
        self.memo[key] = value
        if isinstance(value, _Array):
            value.keys.append(key)

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise PickleRefused(
                f"damaged pickle: expected a list to append to, got a {type(target).__name__}"
            )
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise PickleRefused(
                f"damaged pickle: expected a dictionary to set items of, got a {type(target).__name__}"
            )
        if not all(isinstance(key, _KEYS) for key in items[::2]):
            raise PickleRefused("samples cannot contain dictionary keys other than strings and numbers")
        target.update(zip(items[::2], items[1::2], strict=True))

    def dictionary(self) -> None:
        items = self.above_mark()
        self.push({})
        self.set_items(items)

    def name(self, text: str) -> None:
        known = text if text in self.classes else _NAMES.get(text)
        if known is None:
            raise PickleRefused(
                f"the pickle refers to {text.replace(' ', '.')!r:.80}, which samples must not contain; the pickle "
                "was not executed"
            )
        self.push(_Name(known))

    def call(self) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        made = _CALLS.get(name) if isinstance(name, _Name) else None
        if made is None or not isinstance(arguments, tuple):
            raise PickleRefused(
                f"samples cannot contain a call of {name if isinstance(name, _Name) else type(name).__name__}"
            )
        self.push(made(*arguments))

    def instance(self) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        if arguments != () or not isinstance(name, _Name) or name not in self.classes:
            raise PickleRefused(f"samples cannot contain an instance of {name!r:.80}")
        self.push(Instance())

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _Type | Instance):
            target.build(state)
            return
        if not isinstance(target, _Array):
            raise PickleRefused(f"samples cannot contain the state of a {type(target).__name__}")
        _, shape, kind, by_columns, data = state
        array = _make_array_from_buffer(_bytes(data), kind, shape, "F" if by_columns else "C")
        self.stack[-1] = array
        self.memo.update((key, array) for key in target.keys)

    def old_string(self, raw: bytes) -> None:
        try:
            self.push(raw.decode())
        except UnicodeDecodeError:
            self.push(raw)

    def quoted(self) -> None:
        text = self.line()
        if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
            raise PickleRefused(f"damaged pickle: {text!r:.40} is not a quoted string")
        self.old_string(codecs.escape_decode(text[1:-1])[0])

    def integer(self) -> None:
        text = self.line()
        self.push({b"00": False, b"01": True}[text] if text in (b"00", b"01") else _integer(text))

    def long(self, size: int) -> None:
        self.push(int.from_bytes(self.take(size), "little", signed=True))


def _integer(text: bytes) -> int:
    if len(text) > 400:
        raise PickleRefused(f"samples cannot contain a number of {len(text)} digits")
    return int(text.rstrip(b"L"))


_OPERATIONS: Mapping[bytes, Callable[[_Machine], None]] = {
    b"\x80": lambda m: m.number("<B") and None,
    b"\x95": lambda m: m.number("<Q") and None,
    b"(": lambda m: m.marks.append(len(m.stack)),
    b"0": lambda m: m.stack.pop() and None,
    b"1": lambda m: m.above_mark().clear(),
    b"2": lambda m: m.push(m.stack[-1]),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"I": _Machine.integer,
    b"L": lambda m: m.push(_integer(m.line())),
    b"F": lambda m: m.push(float(m.line())),
    b"J": lambda m: m.push(m.number("<i")),
    b"K": lambda m: m.push(m.number("<B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"G": lambda m: m.push(m.number(">d")),
    b"\x8a": lambda m: m.long(m.number("<B")),
    b"\x8b": lambda m: m.long(m.number("<i")),
    b"S": _Machine.quoted,
    b"T": lambda m: m.old_string(m.take(m.number("<i"))),
    b"U": lambda m: m.old_string(m.take(m.number("<B"))),
    b"V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
    b"X": lambda m: m.push(m.take(m.number("<I")).decode("utf-8", "surrogatepass")),
    b"\x8c": lambda m: m.push(m.take(m.number("<B")).decode("utf-8", "surrogatepass")),
    b"\x8d": lambda m: m.push(m.take(m.number("<Q")).decode("utf-8", "surrogatepass")),
    b"B": lambda m: m.push(m.take(m.number("<I"))),
    b"C": lambda m: m.push(m.take(m.number("<B"))),
    b"\x8e": lambda m: m.push(m.take(m.number("<Q"))),
    b"\x96": lambda m: m.push(m.take(m.number("<Q"))),
    b"p": lambda m: m.keep(_integer(m.line())),
    b"q": lambda m: m.keep(m.number("<B")),
    b"r": lambda m: m.keep(m.number("<I")),
    b"\x94": lambda m: m.keep(len(m.memo)),
    b"g": lambda m: m.push(m.memo[_integer(m.line())]),
    b"h": lambda m: m.push(m.memo[m.number("<B")]),
    b"j": lambda m: m.push(m.memo[m.number("<I")]),
    b")": lambda m: m.push(()),
    b"]": lambda m: m.push([]),
    b"}": lambda m: m.push({}),
    b"t": lambda m: m.push(tuple(m.above_mark())),
    b"l": lambda m: m.push(m.above_mark()),
    b"d": _Machine.dictionary,
    b"\x85": lambda m: m.pack(1),
    b"\x86": lambda m: m.pack(2),
    b"\x87": lambda m: m.pack(3),
    b"a": lambda m: m.extend([m.stack.pop()]),
    b"e": lambda m: m.extend(m.above_mark()),
    b"s": lambda m: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    b"u": lambda m: m.set_items(m.above_mark()),
    b"c": lambda m: m.name(f"{_text(m.line())} {_text(m.line())}"),
    b"\x93": lambda m: m.name(f"{m.stack.pop(-2)} {m.stack.pop()}"),
    b"R": _Machine.call,
    b"b": _Machine.build,
    b"\x81": _Machine.instance,
}
