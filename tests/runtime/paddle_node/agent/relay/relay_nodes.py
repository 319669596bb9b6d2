# SPDX-License-Identifier: Apache-2.0
"""Real agents on this machine that pass files on to each other, driven a message at a time; and a peer that lies."""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
import ssl
import struct
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from paddle_cluster.system.job_certificate import Certificate
from tests.runtime.paddle_node.agent.driven_node import PATIENCE_S, Node, eventually
from tests.runtime.paddle_node.agent.own_nodes import MakeNode

CHUNK = 1 << 18
LEAST = 1 << 17  # less than that may wait on each node while a file arrives there
DATA, MISSING, AGAIN, WAIT = 1, 2, 3, 4
Address = tuple[str, int]
BIG = random.Random(5).randbytes(3_000_001)
SMALL = [b"", b"a", random.Random(6).randbytes(70_000), b"print(1)\n"]
HALF = 1_400_000


def digest_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def offer(node: Node, contents: Sequence[bytes], tree: str = "workspace") -> list[str]:
    """Send a manifest with files f0, f1, ...; returns what is lacking."""
    entries = [[f"f{i}", "f", 0o644, len(data), digest_of(data)] for i, data in enumerate(contents)]
    node.link.send("manifest", json.dumps(entries).encode(), tree=tree, dest="JOB1", first=True, final=True)
    return [str(digest) for digest in node.expect("lacking", tree=tree).fields["digests"]]


def open_relay(node: Node, certificate: Certificate) -> Address:
    """Open a node's relay; returns where it listens."""
    node.link.send(
        "relay", open=True, address="127.0.0.1", certificate=certificate.certificate, key=certificate.key
    )
    fields = node.expect("relaying").fields
    assert fields["port"], fields
    return str(fields["address"]), int(fields["port"])


def fetch(node: Node, sources: Sequence[Address], tree: str = "workspace") -> None:
    node.link.send("fetch", trees=[tree], sources=[list(source) for source in sources])


def send(node: Node, content: bytes, start: int = 0, end: int | None = None) -> None:
    """Send a file, or a part of it, as the launcher does."""
    stop = len(content) if end is None else end
    digest = digest_of(content)
    for offset in range(start, max(stop, start + 1), CHUNK):
        part = content[offset : min(offset + CHUNK, stop)]
        last = offset + len(part) == len(content)
        node.link.send("blob", part, tree="workspace", digest=digest, offset=offset, last=last)


def commit(node: Node) -> Path:
    node.link.send("commit", tree="workspace", dest="JOB1", files={}, collect=[])
    node.expect("committed")
    return node.root / "JOB1"


def fetched(node: Node) -> list[str]:
    """Wait until other nodes gave what they could; returns what they did not."""
    return [str(digest) for digest in node.expect("lacking").fields["digests"]]


def has_received(node: Node, size: int) -> bool:
    """Whether a file on its way to a node is at least that long."""
    folder = node.root / ".paddle/cache/incoming"
    return any(path.stat().st_size >= size for path in folder.iterdir())


def await_bytes(node: Node, size: int) -> None:
    eventually(lambda: has_received(node, size), f"{size} bytes on {node.root.name}")


def client_context(certificate: Certificate | None) -> ssl.SSLContext:
    """A peer's side of TLS, with the job's certificate or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        load(context, certificate)
    return context


def load(context: ssl.SSLContext, certificate: Certificate) -> None:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(certificate.certificate + certificate.key)
        file.flush()
        context.load_cert_chain(file.name)


def dial(address: Address, certificate: Certificate | None) -> ssl.SSLSocket:
    raw = socket.create_connection(address, timeout=PATIENCE_S)
    return client_context(certificate).wrap_socket(raw)


def want(peer: ssl.SSLSocket, *items: Sequence[object]) -> None:
    body = json.dumps([list(item) for item in items]).encode()
    peer.sendall(struct.pack("!I", len(body)) + body)


def hear(peer: ssl.SSLSocket) -> tuple[int, bytes]:
    """The next word that is no WAIT."""
    while True:
        kind, size = struct.unpack("!BI", _exactly(peer, 5))
        body = _exactly(peer, size)
        if kind != WAIT:
            return kind, body


def _exactly(peer: ssl.SSLSocket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = peer.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return found


class Liar:
    """A node of the job that answers every list of wants with the bytes it was told to say, then waits.

    Attributes:
        address: where it listens.
        asked: the wants it has heard.
    """

    def __init__(self, certificate: Certificate, says: bytes) -> None:
        self.asked: list[list[object]] = []
        self._says = says
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load(self._context, certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.address: Address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(PATIENCE_S)

    def _serve(self) -> None:
        try:
            raw, _ = self._listener.accept()
            raw.settimeout(PATIENCE_S)
            with self._context.wrap_socket(raw, server_side=True) as peer:
                (size,) = struct.unpack("!I", _exactly(peer, 4))
                self.asked += json.loads(_exactly(peer, size))
                peer.sendall(self._says)
                peer.recv(1)
        except (OSError, EOFError):
            return


def data(content: bytes) -> bytes:
    """Words that carry bytes."""
    return b"".join(
        struct.pack("!BI", DATA, len(content[at : at + CHUNK])) + content[at : at + CHUNK]
        for at in range(0, len(content), CHUNK)
    )


def key_is_nowhere(node: Node, certificate: Certificate) -> bool:
    """Whether no file of a node, no command line and no environment of its agent holds the key."""
    secret = certificate.key.splitlines()[1].encode()
    places = [path for path in node.root.rglob("*") if path.is_file()]
    places += [Path(f"/proc/{pid}/{name}") for pid in node.pids() for name in ("cmdline", "environ")]
    places += [Path("/tmp") / name for name in os.listdir("/tmp") if name.startswith(".paddle-")]
    return not any(secret in path.read_bytes() for path in places)


def assert_has(node: Node, contents: list[bytes]) -> None:
    job_dir = commit(node)
    assert [(job_dir / f"f{index}").read_bytes() for index in range(len(contents))] == contents


def left_sources(node: Node) -> list[str]:
    return [text for text in node.notices() if "without a relay" in text]


def await_cached(node: Node, content: bytes) -> Path:
    cache = node.root / ".paddle/cache"
    eventually(lambda: any(cache.glob(f"?/{digest_of(content)}")), "the file is in the cache")
    return next(cache.glob(f"?/{digest_of(content)}"))


def make(make_node: MakeNode, certificate: Certificate, count: int, contents: list[bytes]) -> list[Node]:
    """Start nodes that lack some files, the first of them the head; each but the head asks those before it."""
    nodes = [make_node(node_id=index) for index in range(count)]
    for node in nodes:
        node.greet()
        assert offer(node, contents) == [digest_of(data) for data in contents]
    ports = [open_relay(node, certificate) for node in nodes]
    for index in range(1, count):
        fetch(nodes[index], ports[:index][::-1])
    return nodes


def lone(make_node: MakeNode, certificate: Certificate) -> tuple[Node, Address]:
    """A node that lacks BIG, and where it listens."""
    node = make_node()
    node.greet()
    offer(node, [BIG])
    return node, open_relay(node, certificate)
