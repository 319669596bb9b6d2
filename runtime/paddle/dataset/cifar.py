# SPDX-License-Identifier: Apache-2.0
"""CIFAR: 50,000 and 10,000 small colour pictures, of 10 or of 100 kinds.

A sample is (pixels (3072,) float32 from 0 to 1, all of red, then green, then blue, label int). The files are
pickles; they are read as data, and nothing in them is ever called or imported.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.dataset.archive import members
from paddle.dataset.download import download
from paddle.dataset.errors import DatasetError
from paddle.reader.decorator import Reader

URL_PREFIX = "https://www.cs.toronto.edu/~kriz/"
CIFAR10 = (URL_PREFIX + "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a")
CIFAR100 = (URL_PREFIX + "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85")

PIXELS = 3 * 32 * 32
MAX_BATCH_BYTES = 1 << 28  # the largest of the original has 155 MB

Sample = tuple[NDArray[np.float32], int]


def train10() -> Reader[Sample]:
    """The training pictures of CIFAR-10, in the order of the archive."""
    return _reader(CIFAR10, "data_batch")


def test10() -> Reader[Sample]:
    """The test pictures of CIFAR-10."""
    return _reader(CIFAR10, "test_batch")


def train100() -> Reader[Sample]:
    """The training pictures of CIFAR-100 with their fine labels, 0 to 99."""
    return _reader(CIFAR100, "train")


def test100() -> Reader[Sample]:
    """The test pictures of CIFAR-100 with their fine labels, 0 to 99."""
    return _reader(CIFAR100, "test")


def fetch() -> None:
    """Puts both files into the cache."""
    for url, md5 in (CIFAR10, CIFAR100):
        download(url, "cifar", md5)


def _reader(source: tuple[str, str], part: str) -> Reader[Sample]:
    path = download(source[0], "cifar", source[1])

    def read() -> Iterator[Sample]:
        for match, file in members(path, f".*{part}"):
            where = f"{path}: {match.string}"
            raw = file.read(MAX_BATCH_BYTES + 1)
            if len(raw) > MAX_BATCH_BYTES:
                raise DatasetError(path, f"{where} has more than {MAX_BATCH_BYTES} bytes: no batch of CIFAR")
            try:
                pictures, labels = _batch(raw)
            except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
                raise DatasetError(
                    path,
                    f"{where} is no batch of CIFAR ({type(error).__name__}: {error}); it was not unpickled",
                ) from error
            for picture, label in zip(pictures, labels, strict=True):
                yield (picture / 255.0).astype(np.float32), label

    return read


def _batch(raw: bytes) -> tuple[NDArray[np.uint8], list[int]]:
    """Pictures (n, 3072) and their n labels in a pickled batch."""
    fields = {
        key.encode() if isinstance(key, str) else key: value for key, value in _Pickle(raw).value.items()
    }
    labels = fields[b"labels"] if b"labels" in fields else fields[b"fine_labels"]
    pictures = fields[b"data"].value
    if pictures.shape != (len(labels), PIXELS):
        raise ValueError(f"expected pictures of shape {(len(labels), PIXELS)}, got {pictures.shape}")
    return pictures, [int(label) for label in labels]


class _Array:
    """An array while its pickle is read: shape and bytes come after the array itself."""

    value: NDArray[np.uint8]


_BYTE = "the type of unsigned bytes"


class _Pickle:
    """Reads numbers, strings, lists, dictionaries and arrays of bytes from a pickle of protocol 2 to 4.

    This is the stack machine of pickles without its means to call: names in the file are compared, never looked up.

    Attributes:
        value: what the pickle holds; an _Array in the place of an array.
    """

    def __init__(self, raw: bytes) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        for opcode, argument, _ in pickletools.genops(raw):
            if opcode.name not in _OPCODES:
                raise ValueError(f"a batch has no pickle operation {opcode.name}")
            _OPCODES[opcode.name](self, argument)
        self.value = self._stack.pop()

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def mark(self, _: None) -> None:
        self._marks.append(len(self._stack))

    def above_mark(self) -> list[Any]:
        start = self._marks.pop()
        taken = self._stack[start:]
        del self._stack[start:]
        return taken

    def pack(self, count: int) -> None:
        taken = self._stack[-count:]
        del self._stack[-count:]
        self._stack.append(tuple(taken))

    def keep(self, key: int | None) -> None:
        self._memo[len(self._memo) if key is None else key] = self._stack[-1]

    def recall(self, key: int) -> None:
        self._stack.append(self._memo[key])

    def append(self, items: list[Any]) -> None:
        self._stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        self._stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def name(self, text: str) -> None:
        if text not in _NAMES:
            raise ValueError(f"a batch names nothing like {text!r:.80}")
        self._stack.append(_NAMES[text])

    def call(self, _: None) -> None:
        """The calls that numpy writes: an array without content, a type, bytes as Python 3 spells them."""
        arguments, name = self._stack.pop(), self._stack.pop()
        if name == "array":
            self._stack.append(_Array())
        elif name == "dtype" and arguments[0] in ("u1", b"u1"):
            self._stack.append(_BYTE)
        elif name == "encode" and isinstance(arguments[0], str):
            self._stack.append(arguments[0].encode("latin-1"))
        else:
            raise ValueError(f"a batch makes no {name} of {arguments!r:.80}")

    def build(self, _: None) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if target == _BYTE:
            return
        _, shape, kind, by_columns, data = state
        if not isinstance(target, _Array) or kind != _BYTE:
            raise ValueError("a batch has arrays of unsigned bytes alone")
        target.value = np.frombuffer(data, np.uint8).reshape(shape, order="F" if by_columns else "C")


_NAMES: Mapping[str, str] = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}

_OPCODES: Mapping[str, Callable[[_Pickle, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda pickle, _: None),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), _Pickle.push),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"), _Pickle.push),
    # strings of Python 2 are bytes
    **dict.fromkeys(
        ("BINSTRING", "SHORT_BINSTRING"), lambda pickle, text: pickle.push(text.encode("latin-1"))
    ),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), _Pickle.keep),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Pickle.recall),
    "NONE": _Pickle.push,
    "NEWTRUE": lambda pickle, _: pickle.push(True),
    "NEWFALSE": lambda pickle, _: pickle.push(False),
    "EMPTY_DICT": lambda pickle, _: pickle.push({}),
    "EMPTY_LIST": lambda pickle, _: pickle.push([]),
    "EMPTY_TUPLE": lambda pickle, _: pickle.push(()),
    "MARK": _Pickle.mark,
    "TUPLE": lambda pickle, _: pickle.push(tuple(pickle.above_mark())),
    "TUPLE1": lambda pickle, _: pickle.pack(1),
    "TUPLE2": lambda pickle, _: pickle.pack(2),
    "TUPLE3": lambda pickle, _: pickle.pack(3),
    "APPEND": lambda pickle, _: pickle.append([pickle._stack.pop()]),
    "APPENDS": lambda pickle, _: pickle.append(pickle.above_mark()),
    "SETITEM": lambda pickle, _: pickle.set_items([pickle._stack.pop(-2), pickle._stack.pop()]),
    "SETITEMS": lambda pickle, _: pickle.set_items(pickle.above_mark()),
    "GLOBAL": _Pickle.name,
    "STACK_GLOBAL": lambda pickle, _: pickle.name(f"{pickle._stack.pop(-2)} {pickle._stack.pop()}"),
    "REDUCE": _Pickle.call,
    "BUILD": _Pickle.build,
}
