# SPDX-License-Identifier: Apache-2.0
"""Damages files of models and parameters from a seed, and says how what reads them took it.

`python -m tests.runtime.hostile_files SECONDS SEED [NAME]` looks for what no reader may do: raise anything but its own
error, take long, or take much memory.
"""

from __future__ import annotations

import functools
import io
import json
import random
import resource
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from paddle import fluid, protobuf
from paddle.dataset import records
from paddle.dataset.download import DatasetError
from paddle.errors import CheckpointError, ModelFileError
from paddle.fluid.files import tensor_file
from paddle.ops.base.errors import OpError
from paddle.ops.base.lod import LoDArray
from paddle.ops.base.selected_rows import SelectedRows
from paddle.pserver.durable.checkpoint.format import DataFile, Manifest
from paddle.v2.parameter_format import ParameterConfig, read_tar, write_tar
from paddle.v2.parameters import Parameters

SLOW_S = 5.0
LARGEST = 1 << 20  # bytes: what a reader needs is held against that
NUMBERS = (
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 48,
    (1 << 63) - 1,
    1 << 63,
)
ODD_PATHS = (b"", b"..", b"../../victim", b"/etc/victim", b"a/../b", b"\0", b"\xff\xfe")
TEXTS = (*ODD_PATHS, b"x" * 5000, b"while", b"softshrink")

Mutate = Callable[[random.Random, bytes], bytes]


class Reader(NamedTuple):
    """One reader of files.

    Attributes:
        whole: makes a file that it takes.
        read: reads a file.
        own: what it may raise.
        shaped: damages a file along its structure.
    """

    whole: Callable[[], bytes]
    read: Callable[[bytes], object]
    own: tuple[type[Exception], ...]
    shaped: Mutate


def flips(chance: random.Random, data: bytes) -> bytes:
    """Changes, removes, repeats and cuts bytes, wherever they are."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 30))):
        at = chance.randrange(len(found) + 1)
        size = chance.choice((1, 1, 4, 8, 100))
        kind = chance.randrange(5)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            found[at : at + size] = b""
        elif kind == 2:
            found[at:at] = found[at : at + size] * chance.choice((1, 3, 200))
        elif kind == 3:
            found[at : at + size] = struct.pack("<Q", chance.choice(NUMBERS))[: max(size, 8)]
        elif kind == 4:
            found[at : at + size] = chance.choice(TEXTS)
    return bytes(found[: chance.randrange(len(found) + 1)] if chance.random() < 0.1 else found)


def messages(chance: random.Random, data: bytes) -> bytes:
    """Changes fields of a message, and of the messages within it."""
    try:
        found = list(protobuf.fields(data))
    except ModelFileError:
        return flips(chance, data)
    if not found:
        return chance.choice(TEXTS)
    at = chance.randrange(len(found))
    number, value = found[at]
    kind = chance.randrange(8)
    if kind < 4 and isinstance(value, bytes):
        found[at] = (number, messages(chance, value))
    elif kind == 4:
        found[at] = (number, chance.choice((chance.choice(NUMBERS), chance.choice(TEXTS))))
    elif kind == 5:
        found[at:at] = [(number, value)] * chance.choice((1, 2, 1000))
    elif kind == 6:
        del found[at]
    else:
        found[at] = (chance.randrange(18), value)
    return b"".join(_field(number, value) for number, value in found)


def _field(number: int, value: float | bytes) -> bytes:
    if isinstance(value, bytes):
        return protobuf.bytes_field(number, value)
    return (
        protobuf.double_field(number, value)
        if isinstance(value, float)
        else protobuf.varint_field(number, value)
    )


def trees(chance: random.Random, data: bytes) -> bytes:
    """Changes values within JSON."""
    odd: tuple[object, ...] = (
        None,
        True,
        -1,
        1 << 70,
        1e308,
        "",
        "../../victim",
        [],
        {},
        "x" * 9999,
        [[[[]]]],
        {"format": 1},
    )

    def change(value: object) -> object:
        if isinstance(value, dict) and value and chance.random() < 0.8:
            name = chance.choice(sorted(value))
            return {**value, name: change(value[name])}
        if isinstance(value, list) and value and chance.random() < 0.8:
            at = chance.randrange(len(value))
            return [*value[:at], change(value[at]), *value[at + 1 :]]
        return chance.choice(odd)

    return json.dumps(change(json.loads(data))).encode()


def _manifest_trees(chance: random.Random, data: bytes) -> bytes:
    if chance.random() < 0.2:
        return trees(chance, data)
    body = trees(chance, json.loads(data)["body"].encode()).decode()
    return json.dumps({"crc32": zlib.crc32(body.encode()), "body": body}).encode()


def _tar_headers(chance: random.Random, data: bytes) -> bytes:
    """Changes a field of one member's header, with the right checksum, or a configuration within."""
    found = bytearray(data)
    at = chance.randrange(len(data) // 512) * 512
    if chance.random() < 0.3:
        found[at : at + 512] = messages(chance, bytes(found[at : at + 512])).ljust(512, b"\0")[:512]
        return bytes(found)
    kinds = (b"0", b"1", b"2", b"5", b"S", b"L", b"K", b"x", b"g", b"7", b"\xff")
    sizes = (b"77777777777\0", b"-1\0", b"\x80" + b"\xff" * 11, b"%011o\0" % chance.choice(NUMBERS[:8]))
    places = ((156, kinds), (124, sizes), (0, ODD_PATHS), (157, ODD_PATHS), (386, sizes), (483, sizes))
    field, values = chance.choice(places)
    value = chance.choice(values)
    found[at + field : at + field + len(value)] = value
    found[at + 148 : at + 156] = b" " * 8
    found[at + 148 : at + 156] = b"%06o\0 " % sum(found[at : at + 512])
    return bytes(found)


def _program() -> bytes:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [4])
        hidden = fluid.layers.softshrink(fluid.layers.fc(x, 3), alpha=0.1)
        count = fluid.layers.fill_constant([1], "int64", 0)
        condition = fluid.layers.less_than(count, fluid.layers.fill_constant([1], "int64", 3))
        loop = fluid.layers.While(condition)
        with loop.block():
            fluid.layers.increment(count, in_place=True)
            fluid.layers.less_than(count, fluid.layers.fill_constant([1], "int64", 3), cond=condition)
        fluid.layers.mean(hidden)
    return main.serialize_to_string()


def _tensor() -> bytes:
    stream = io.BytesIO()
    tensor_file.write_tensor(stream, LoDArray(np.arange(6.0), (np.array([0, 2]), np.array([0, 2, 6]))))
    return stream.getvalue()


def _selected_rows() -> bytes:
    stream = io.BytesIO()
    tensor_file.write_selected_rows(stream, SelectedRows(np.array([1, 5]), np.ones((2, 3), np.float32), 9))
    return stream.getvalue()


def _tar() -> bytes:
    stream = io.BytesIO()
    configs = [ParameterConfig(name, 6, dims=(2, 3)) for name in ("w", "b")]
    write_tar(stream, [(config, np.ones((2, 3), np.float32)) for config in configs])
    return stream.getvalue()


def _manifest() -> bytes:
    files = (DataFile("v000000000003/part-0-of-1/data.bin", 10, 7),)
    return Manifest("job", 0, 1, "{}", 3, {"w": {"rate": 0.1}}, files, {"steps": {"0": 1}}).to_bytes()


def _records() -> bytes:
    stream = io.BytesIO()
    records.dump([(1, "a", np.arange(3), b"raw", [1.5, None])], stream)
    return stream.getvalue()


def _read_records(data: bytes) -> object:
    stream = io.BytesIO(data)
    stream.name = "records"
    return records.load(stream)


def _read_value(data: bytes) -> None:
    parameters = Parameters()
    parameters.add(ParameterConfig("w", 6, dims=(2, 3)))
    parameters.deserialize("w", io.BytesIO(data))


def _read_persistables(data: bytes) -> None:
    """A stranger's program, whose variables are looked for beside it."""
    program = fluid.Program.parse_from_string(data)
    with tempfile.TemporaryDirectory() as folder:
        fluid.io.load_persistables(None, folder, program)


MODEL = (ModelFileError, OpError)
READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "program": Reader(_program, fluid.Program.parse_from_string, MODEL, messages),
        "persistables": Reader(_program, _read_persistables, MODEL, messages),
        "tensor": Reader(_tensor, lambda data: tensor_file.read_tensor(io.BytesIO(data), "w"), MODEL, flips),
        "selected rows": Reader(
            _selected_rows, lambda data: tensor_file.read_selected_rows(io.BytesIO(data), "w"), MODEL, flips
        ),
        "parameter tar": Reader(_tar, lambda data: list(read_tar(io.BytesIO(data))), MODEL, _tar_headers),
        "parameter": Reader(lambda: _tar()[512 : 512 + 40], _read_value, MODEL, flips),
        "configuration": Reader(
            ParameterConfig("w", 6, dims=(2, 3)).encode, ParameterConfig.decode, MODEL, messages
        ),
        "manifest": Reader(_manifest, Manifest.from_bytes, (CheckpointError,), _manifest_trees),
        "records": Reader(_records, _read_records, (DatasetError,), trees),
    }
)


@functools.cache
def whole(name: str) -> bytes:
    """Returns a file that a reader takes."""
    return READERS[name].whole()


def attack(name: str, seed: int) -> tuple[bytes, str]:
    """Damages one file and has it read; returns it, and what its reader did that it may not do, or nothing."""
    reader = READERS[name]
    chance = random.Random(f"{name} {seed}")
    data = whole(name)
    for _ in range(chance.choice((1, 1, 2, 4))):
        try:
            data = chance.choice((flips, reader.shaped))(chance, data)
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ):  # too much is damaged already
            data = flips(chance, data)
    data = data[:LARGEST]
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(data)
    except reader.own:
        pass
    except Exception:  # noqa: BLE001 - which is what is looked for
        return data, traceback.format_exc()
    took_s = time.process_time() - began
    return data, f"took {took_s:.1f} s" if took_s > SLOW_S else ""


def main(seconds: str, seed: str, *only: str) -> int:
    """Looks for so long at every reader; prints what it found."""
    found = 0
    for name in only or READERS:
        before, end, number = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            time.monotonic() + float(seconds),
            0,
        )
        while time.monotonic() < end:
            number += 1
            data, what = attack(name, int(seed) * 1_000_000_000 + number)
            if what:
                found += 1
                path = Path(tempfile.gettempdir(), f"hostile-{name.replace(' ', '-')}-{seed}-{number}")
                path.write_bytes(data)
                sys.stdout.write(f"{path}: {what}\n")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        sys.stdout.write(f"{name}: {number} files, {found} findings so far, {grown >> 10} MiB more memory\n")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
