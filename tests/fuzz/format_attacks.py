# SPDX-License-Identifier: Apache-2.0
"""Files and wires of the runtime: programs, tensors, parameter tars, manifests, messages, streams, handshakes."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import socket
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import paddle.fluid as fluid
from paddle.collective.connection.handshake import Side, handshake
from paddle.collective.connection.stream import Stream, finish
from paddle.collective.errors import CollectiveError
from paddle.errors import PaddleError, WireError
from paddle.fluid.files import program_file, tensor_file
from paddle.pserver.durable.checkpoint.format import DataFile, Manifest
from paddle.pserver.transports.byte_stream import PlainSource, StreamReader
from paddle.pserver.wire import codec
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Configure, Hello, Ping, PushPull, Record
from paddle.sealed_stream import Handshake, SealedSource
from paddle.sealing import CALLER, NONCE_BYTES, OVERHEAD, TOKEN_BYTES, Greeting, Opener
from paddle.v2.parameter_format import ParameterConfig, read_tar, write_tar
from paddle_node.agent.files.wheels import unpack
from tests.fuzz.shapes import damaged, spoiled

# -- files


@functools.cache
def _program() -> bytes:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.layers.data("x", shape=[4])
        fluid.layers.mean(fluid.layers.fc(x, size=2, act="relu"))
    return program_file.to_bytes(main)


@functools.cache
def _tensor() -> bytes:
    stream = io.BytesIO()
    tensor_file.write_tensor(stream, np.arange(12, dtype=np.float32).reshape(3, 4))
    return stream.getvalue()


@functools.cache
def _tar() -> bytes:
    stream = io.BytesIO()
    config = ParameterConfig(name="w", size=4, dims=(2, 2))
    write_tar(stream, [(config, np.ones((2, 2), np.float32))])
    return stream.getvalue()


_MANIFEST: dict[str, Any] = json.loads(
    json.loads(
        Manifest("J", 0, 1, "{}", 7, {"w": {"w": {"t": 1.0}}}, (DataFile("dense-0", 8, 7),), {}).to_bytes()  # type: ignore[dict-item]
    )["body"]
)


def _file(make: Callable[[], bytes]) -> st.SearchStrategy[bytes]:
    return damaged(st.builds(make))


@functools.cache
def _wheel() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x/__init__.py", "x-1.0.data/scripts/x", "x-1.0.dist-info/METADATA"):
            archive.writestr(name, f"# {name}\n" * 20)
    return made.getvalue()


programs, tensors, tars, wheels = _file(_program), _file(_tensor), _file(_tar), _file(_wheel)
manifests = st.one_of(
    spoiled(_MANIFEST).map(json.dumps).map(lambda body: {"crc32": zlib.crc32(body.encode()), "body": body}),
    spoiled({"crc32": 0, "body": "{}"}),
).map(lambda outer: json.dumps(outer).encode())


def parse_program(data: bytes) -> None:
    """It is a program, or an error of ours."""
    with contextlib.suppress(PaddleError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fluid.Program.parse_from_string(data)


def read_tensors(data: bytes) -> None:
    """It is a tensor, or an error of ours; as rows too."""
    for read in (tensor_file.read_tensor, tensor_file.read_selected_rows):
        with contextlib.suppress(PaddleError):
            read(io.BytesIO(data), "x")


def read_parameters(data: bytes) -> None:
    """They are parameters, or an error of ours."""
    with contextlib.suppress(PaddleError):
        list(read_tar(io.BytesIO(data)))


def unpack_wheel(data: bytes) -> None:
    """It is unpacked below its folder, or refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.whl"
        path.write_bytes(data)
        inside = Path(folder) / "in"
        inside.mkdir()
        with contextlib.suppress(OSError, ValueError):
            list(unpack([(path.name, str(path))], str(inside), 1 << 20))
        assert set(Path(folder).iterdir()) == {path, inside}


def read_manifest(data: bytes) -> None:
    """It is one, or an error of ours."""
    with contextlib.suppress(PaddleError):
        Manifest.from_bytes(data)


# -- wires

_SECTIONS = (Section("w", np.ones(3, np.float32)), Section.text("t", "text"))


def _sent(record: Record) -> list[bytes]:
    return [bytes(frame) for frame in codec.encode_any(Message(record, 1, 2, 3, 4, _SECTIONS))]


def _packet(sent: list[bytes]) -> bytes:
    head = len(sent[0]).to_bytes(4, "little") + (len(sent) - 1).to_bytes(2, "little")
    return head + b"".join(len(frame).to_bytes(8, "little") for frame in sent[1:]) + b"".join(sent)


_SENT = [_sent(record) for record in (PushPull(1, 2), Hello(2, True), Configure(), Ping())]
frames = st.sampled_from(_SENT).flatmap(
    lambda sent: st.tuples(*(damaged(st.just(frame)) for frame in sent)).map(list)
)
packets = damaged(st.sampled_from([_packet(sent) for sent in _SENT]))
_GREETING = Greeting(CALLER, b"w" * TOKEN_BYTES, b"n" * NONCE_BYTES).to_bytes()
sealed = st.tuples(
    damaged(st.sampled_from([_GREETING + bytes(OVERHEAD), bytes(2 * OVERHEAD)])), st.booleans()
)
greetings = st.tuples(st.binary(max_size=200), st.booleans(), st.booleans(), st.sampled_from(Side))


def read_message(found: list[bytes]) -> None:
    """They are a message, whether their checksums are looked at or not, or an error of ours."""
    for read in (codec.decode, codec.parse):
        with contextlib.suppress(WireError):
            for section in read(found).sections:
                section.as_text()
    with contextlib.suppress(WireError):
        codec.peek(found[0])


def read_packets(data: bytes) -> None:
    """A stream of a server gets them."""
    near, far = socket.socketpair()
    try:
        near.setblocking(False)
        reader = StreamReader(PlainSource(near))
        far.sendall(data)
        far.close()
        with contextlib.suppress(WireError, OSError):
            while (found := reader.read()) is not None:
                read_message([bytes(frame) for frame in found])
    finally:
        near.close()


def read_sealed(found: tuple[bytes, bool]) -> None:
    """A server gets them on a sealed stream, in the place of a handshake or of pieces; no key of it is known."""
    data, is_within = found
    near, far = socket.socketpair()
    try:
        near.setblocking(False)
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        with contextlib.suppress(WireError, OSError):
            if is_within:
                SealedSource(near, Opener(b"k" * 32, CALLER, b"w" * TOKEN_BYTES)).receive(
                    memoryview(bytearray(64))
                )
            else:
                shaking = Handshake(near, b"secret")
                while not shaking.advance():
                    pass
            raise AssertionError("it passed for what only the job's key makes")
    finally:
        near.close()
        far.close()


def greet_rank(found: tuple[bytes, bool, bool, Side]) -> None:
    """A rank gets them in the place of a greeting."""
    data, has_secret, sealed, side = found
    near, far = socket.socketpair()
    try:
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        with contextlib.suppress(PaddleError, CollectiveError, OSError):
            steps = handshake(near, side, b"secret" if has_secret else None, sealed and has_secret)
            stream: Stream = finish(steps, near.fileno(), time.monotonic() + 5.0)
            stream.close()
    finally:
        near.close()
        far.close()
