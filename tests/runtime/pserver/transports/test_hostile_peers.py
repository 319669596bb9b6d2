# SPDX-License-Identifier: Apache-2.0
"""Whatever a stranger sends to a port while a job trains there: it is refused, nobody else notices, memory stays."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from paddle.pserver.client.links import Links
from paddle.pserver.client.reachability import Sight, probe
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.transports.zmq import ZmqListener
from paddle.pserver.wire.codec import encode
from paddle.pserver.wire.keys import Context, WireKeys
from paddle.pserver.wire.message import WIRE_VERSION, Message, Section
from paddle.pserver.wire.verbs import Pull, PushPull
from tests.runtime.pserver.in_process_job import SGD, Model
from tests.runtime.pserver.pserver_process import PserverProcess

MODEL = Model({"w": (40, 50)})
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 1 + 31)
READY = b"\x04\x1c\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
ANSWER_S = 60.0
MORE_MB = 100.0  # of memory that all strangers together may cost
MANY = 100


def long_frame(length: int, flags: int = 2) -> bytes:
    """The head of a ZeroMQ frame that says how long it is."""
    return struct.pack(">BQ", flags, length)


def framed(frames: list[bytes]) -> bytes:
    """ZeroMQ frames of one message."""
    last = len(frames) - 1
    return b"".join(long_frame(len(frame), 2 | (i < last)) + frame for i, frame in enumerate(frames))


def patched(at: int, new: bytes) -> bytes:
    """A request in which some bytes of the header differ, under a right checksum; `at`: below 0 from its end."""
    header, *arrays = map(bytes, encode(Message(PushPull(), sections=(Section("", np.ones(3, np.float32)),))))
    at %= len(header)
    header = header[:at] + new + header[at + len(new) :]
    bare = header[:12] + bytes(4) + header[16:]
    return framed([header[:12] + struct.pack("<I", zlib.crc32(bare)) + header[16:], *arrays])


SPEAKS = GREETING + READY
# what a stranger sends, and what must come back; None: nothing of ours, whether the connection is kept or not
STRANGERS: dict[str, tuple[bytes, bytes | None]] = {
    "random bytes": (np.random.default_rng(1).bytes(1 << 16), None),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", None),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512), None),
    "nothing": (b"", None),
    "half a greeting": (GREETING[:20], None),
    "a greeting alone": (GREETING, None),
    "a frame of 2^40 bytes": (SPEAKS + long_frame(1 << 40), None),
    "a frame of 2^63 - 1 bytes": (SPEAKS + long_frame((1 << 63) - 1), None),
    "half a frame of 1 GiB": (SPEAKS + long_frame(1 << 30) + bytes(1 << 20), None),
    "noise in a frame": (SPEAKS + framed([os.urandom(300)]), b"PDPS"),
    "too many frames": (SPEAKS + framed([b"x"] * 5000), b"PDPS"),
    "an old wire version": (
        SPEAKS + patched(4, bytes([WIRE_VERSION - 1])),
        f"the peer uses {WIRE_VERSION - 1}".encode(),
    ),
    "a wire version to come": (SPEAKS + patched(4, b"\xff"), b"the peer uses 255"),
    "an unknown verb": (SPEAKS + patched(5, b"\x3f"), b"unknown verb 63"),
    "an array of 2^40 elements": (SPEAKS + patched(-8, struct.pack("<Q", 1 << 40)), b"the frame has 12"),
    "a push without a session": (SPEAKS + patched(0, b""), b"was restarted"),
}


@pytest.mark.parametrize("keys", [None, WireKeys.of("5a" * 32)], ids=["plain", "curve"])
def test_who_only_looks_whether_somebody_listens_is_no_stranger(keys: WireKeys | None) -> None:
    with contextlib.ExitStack() as stack:
        context = Context(keys)
        stack.callback(context.close)
        router = ZmqListener(context, "127.0.0.1", 0)
        stack.callback(router.close)
        for _ in range(5):
            socket.create_connection(("127.0.0.1", router.port)).close()
            assert (
                probe(f"127.0.0.1:{router.port}", is_encrypted=False, timeout_s=ANSWER_S).sight
                is not Sight.MUTE
            )
        links = stack.enter_context(contextlib.closing(Links([f"127.0.0.1:{router.port}"], keys)))
        links.send(0, Message(Pull()))
        deadline = time.monotonic() + ANSWER_S
        while router.receive() is None:  # what came before has ended by then
            router.poller.wait(deadline - time.monotonic())
            router.lost()
            assert time.monotonic() < deadline
        assert router.rejected == 0
        with socket.create_connection(("127.0.0.1", router.port)) as stranger:
            stranger.sendall(b"\xff" * 200)
            while not router.rejected:
                router.receive()
                router.poller.wait(deadline - time.monotonic())
                router.lost()
                assert time.monotonic() < deadline


class Victim:
    """A server and the trainer whose job must not notice."""

    def __init__(self, process: PserverProcess, client: TrainerSession) -> None:
        self.process, self._client, self._steps = process, client, 0
        self._values, self._expected = MODEL.empty(), MODEL.values()["w"].copy()
        client.configure(MODEL.parameters, SGD, MODEL.values())
        client.start_pass()
        self.step()
        self.base_mb = self.memory_mb()

    def step(self) -> None:
        """Take a step of training and look whether it is right."""
        gradient = MODEL.gradients(0, self._steps)["w"]
        self._client.push_pull({"w": gradient}, 1, self._values)
        self._expected -= np.float32(0.1) * gradient
        self._steps += 1
        assert np.array_equal(self._values["w"], self._expected)

    def memory_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def meet(self) -> socket.socket:
        host, _, port = self.process.endpoints[0].partition(":")
        return socket.create_connection((host, int(port)), ANSWER_S)


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    with (
        PserverProcess("--port=0", key=None) as process,
        TrainerSession.connect(
            process.endpoints, [], trainer_id=0, num_trainers=1, job_key=None, wire="plain", within_node=False
        ) as client,
    ):
        yield Victim(process, client)


def read_until(stranger: socket.socket, is_enough: Callable[[bytes], bool]) -> bytes:
    stranger.settimeout(ANSWER_S)
    found = b""
    while not is_enough(found):
        data = stranger.recv(4096)
        assert data, f"the connection ended after {found!r}"
        found += data
    return found


def say(stranger: socket.socket, sent: bytes) -> None:
    """Send, and where it begins with a greeting wait for the server's before the rest: ZeroMQ wants it so."""
    with contextlib.suppress(ConnectionError):
        if sent.startswith(SPEAKS):
            stranger.sendall(GREETING)
            read_until(stranger, lambda found: len(found) >= len(GREETING))
            sent = sent[len(GREETING) :]
        stranger.sendall(sent)


@pytest.mark.parametrize("what", STRANGERS)
def test_a_stranger_is_refused_and_the_job_goes_on(victim: Victim, what: str) -> None:
    sent, wanted = STRANGERS[what]
    with victim.meet() as stranger:
        say(stranger, sent)
        if wanted is not None:
            read_until(stranger, lambda found: wanted in found)
        victim.step()  # while the stranger is still there
    victim.step()
    assert victim.memory_mb() - victim.base_mb < MORE_MB


@pytest.mark.parametrize(
    "sent",
    [b"", GREETING[:1], GREETING, SPEAKS, SPEAKS + long_frame(1 << 29)],
    ids=["nothing", "a byte", "a greeting", "hello", "half a frame"],
)
def test_many_that_never_finish_what_they_say_keep_nobody_waiting(victim: Victim, sent: bytes) -> None:
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(victim.meet()) for _ in range(MANY)]
        for stranger in strangers:
            say(stranger, sent)
        victim.step()
        assert victim.memory_mb() - victim.base_mb < MORE_MB
    victim.step()
