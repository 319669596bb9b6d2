# SPDX-License-Identifier: Apache-2.0
"""Training whose sealed stream somebody spoils: it ends, CURVE goes on, and the numbers stay those of a plain wire."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from paddle.pserver.client.session import TrainerSession
from paddle.pserver.wire.message import CHUNK
from paddle.sealing import GREETING_BYTES, OVERHEAD
from tests.cluster.proxy import DOWN, UP, Faults, Proxy
from tests.cluster.zmtp import Unit
from tests.runtime.pserver.in_process_job import SGD, Model
from tests.runtime.pserver.pserver_process import KEY, ROOT, PserverProcess

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)

MODEL = Model({"a": (2 * CHUNK + 7,), "b": (31,)})
STEPS = 4


class SealedPieces:
    """Every piece of a sealed stream is a unit; a handshake is passed on as it is."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._clear = GREETING_BYTES + OVERHEAD

    def feed(self, data: bytes) -> Iterator[Unit]:
        self._pending += data
        if self._clear:
            passed = bytes(self._pending[: self._clear])
            del self._pending[: self._clear]
            self._clear -= len(passed)
            yield Unit(passed, is_payload=False)
        while len(self._pending) >= 4:
            (length,) = struct.unpack_from("<I", self._pending)
            if len(self._pending) < length + OVERHEAD:
                return
            piece = bytes(self._pending[: length + OVERHEAD])
            del self._pending[: length + OVERHEAD]
            yield Unit(piece, is_payload=True)


@contextlib.contextmanager
def between(
    endpoint: str, faults: Faults, monkeypatch: pytest.MonkeyPatch, proxies: list[Proxy]
) -> Iterator[None]:
    """Have every stream of this process go through a proxy of its own; ZeroMQ connects by itself."""
    connect = socket.create_connection
    with contextlib.ExitStack() as stack:

        def by_proxy(address: tuple[str, int], *more: Any) -> socket.socket:
            if address[1] == int(endpoint.rpartition(":")[2]):
                return connect(address, *more)
            proxies.append(stack.enter_context(Proxy(address, faults, seed=3, splitter=SealedPieces)))
            return connect(proxies[-1].address, *more)

        with monkeypatch.context() as patch:
            patch.setattr(socket, "create_connection", by_proxy)
            yield


def trained(server: PserverProcess, key: str | None) -> list[bytes]:
    seen = []
    with TrainerSession.connect(
        server.endpoints,
        [],
        trainer_id=0,
        num_trainers=1,
        job_key=key,
        wire="curve" if key else "plain",
        timeout_s=30.0,
        within_node=False,
    ) as client:
        client.configure(MODEL.parameters, SGD, MODEL.values())
        client.start_pass()
        out = MODEL.empty()
        for step in range(STEPS):
            client.push_pull(MODEL.gradients(0, step), 1, out)
            seen.append(out["a"].tobytes())
        client.finish_pass()
    return seen


@pytest.fixture(scope="module")
def expected() -> list[bytes]:
    with PserverProcess("--port=0", key=None) as server:
        return trained(server, None)


@pytest.mark.parametrize("way", [UP, DOWN])
@pytest.mark.parametrize("fault", ["none", "flip", "repeat", "swap", "drop"])
def test_what_is_done_to_a_stream_changes_no_number(
    fault: str,
    way: str,
    expected: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = {
        "none": Faults(),
        "flip": Faults(flip=0.1, directions=(way,)),
        "repeat": Faults(repeat=0.1, directions=(way,)),
        "swap": Faults(swap=0.1, directions=(way,)),
        "drop": Faults(drop_after=12, directions=(way,)),
    }[fault]
    proxies: list[Proxy] = []
    with (
        caplog.at_level(logging.INFO, "paddle.pserver"),
        PserverProcess("--port=0") as server,
        between(server.endpoints[0], faults, monkeypatch, proxies),
    ):
        seen = trained(server, KEY)
        (proxy,) = proxies
        assert proxy.done[fault] > 0 or fault == "none"
        if fault == "none":
            assert "ended" not in caplog.text
        elif way == DOWN and fault != "drop":  # the trainer hears it itself
            assert "of a stream" in caplog.text
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(seen, expected, strict=True))


def test_a_server_without_what_seals_goes_on_by_curve_alone_and_says_so(
    expected: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cryptography.py").write_text("raise ImportError('not on this node')\n")
    proxies: list[Proxy] = []
    with PserverProcess("--port=0", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT / 'runtime'}") as server:
        with between(server.endpoints[0], Faults(), monkeypatch, proxies):
            assert trained(server, KEY) == expected
        assert not proxies
        _, said = server.end()
    assert said.count("cryptography 47 or newer") == 1
