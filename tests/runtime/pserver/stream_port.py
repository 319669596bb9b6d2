# SPDX-License-Identifier: Apache-2.0
"""A server's entrance for streams without the server: what comes in by it is noted."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.pserver.transports.tcp import TcpListener
from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.codec import decode
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Frame, Message
from paddle.pserver.wire.poller import Poller
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import OpenStream


class Beside:
    """A port that notes what comes in by a door, and what is lost."""

    def __init__(self, keys: WireKeys | None = None, within_s: float = 20.0) -> None:
        self.poller, self.door = Poller(), TcpListener("127.0.0.1", keys, within_s)
        self.heard: list[tuple[bytes, Message]] = []
        self.lost: list[bytes] = []
        self.door.open(self)

    def read(self, address: bytes, frames: Sequence[Frame], found: Findings | None = None) -> None:
        self.heard.append((address, decode(frames)))

    def handle(self, address: bytes, message: Message) -> None: ...

    def shared_slabs(self, message: Message) -> Sequence[SharedArray]:
        return ()

    def lose(self, address: bytes) -> None:
        self.lost.append(address)

    def invite(self) -> Message:
        return self.door.invite(b"host", Message(OpenStream()), 7164)

    def serve_one(self, within_s: float = 2.0) -> None:
        self.poller.wait(within_s)
        self.door.serve()
