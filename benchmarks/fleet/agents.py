# SPDX-License-Identifier: Apache-2.0
"""Many simulated nodes in one process: each implements the protocol of a callback agent and an agent, and runs nothing.

    python -m benchmarks.fleet.agents COUNT        the invitation in the environment, as mpirun passes it

A node answers each frame like a real agent on a faultless machine, from the recorded answers below; its processes write
lines at a steady rate and exit with 0. Line frames, log chunks, pongs and acknowledgements are sent as an agent of this
version sends them, so that the launcher has the same work as with real nodes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_node.agent.callback_agent import INVITATION
from paddle_node.agent.files.sent_files import new_fingerprint
from paddle_node.agent.link.outbox import PACE_S
from paddle_node.contract.fingerprint import Fingerprint
from paddle_node.contract.frames import encode
from paddle_node.contract.opening import PREFIX_SIZE, frame_size, marker

NODES_EACH = 100  # nodes per process
LINES_PER_S = float(os.environ.get("FLEET_LINES_PER_S", "10"))  # of one node
RUN_S = float(os.environ.get("FLEET_RUN_S", "20"))
COUNTS = os.environ.get(
    "FLEET_COUNTS", ""
)  # a folder that receives a file with the number of lines of each node
ACK_EACH = 1 << 16
CALLS_AT_ONCE = 8  # concurrent handshakes per process

Fields = dict[str, Any]


def probed(rank: int) -> Fields:
    """Return the probe results of a healthy machine; recorded from an agent, with this node's address."""
    address = address_of(rank)
    disk = {
        "free_bytes": 78 << 30,
        "free_inodes": 16_169_308,
        "kind": "ext4",
        "source": "/dev/vda",
        "noexec": False,
    }
    return {
        "nics": {"lo": ["127.0.0.1"], "eth0": [address]},
        "variables": {},
        "has_rdma": False,
        "login_address": address,
        "cpus": 8,
        "clock": time.time(),
        "root_dir": "/root/.paddle-cluster",
        "networks": [["eth0", address, 8]],
        "address": address,
        "listen_port": 42039,
        "listen_ports": {address: 42039},
        "problems": [],
        "remarks": [],
        "steps": {"root_dir": 0.0114, "machine": 0.0064, "ports": 0.0062, "gpus": 0.0, "python": 0.029},
        "busy_ports": [],
        "busy_at": {address: []},
        "facts": {
            "disks": [
                {"path": "/root", "parent": "/root", **disk},
                {"path": "/tmp", "parent": "/tmp", **disk},
            ],
            "root_dir": {"path": "/root/.paddle-cluster", "parent": "/root", **disk},
            "machine": {
                "kernel": "6.1.0-28-amd64",
                "machine": "x86_64",
                "cores": 8,
                "load": 0.25,
                "memory_bytes": 33 << 30,
                "memory_free_bytes": 31 << 30,
                "limits": {"nofile": 1 << 20, "nproc": 96365, "memlock": 8388608, "core": 0},
                "threads_of_user": 12,
                "may_pass_nproc": True,
                "cgroup": {"cores": None, "memory_bytes": None, "pids": None, "pids_used": None},
            },
        },
        "free_bytes": 78 << 30,
        "writable": True,
        "gpus": {"count": 0, "driver": "", "names": []},
        "python_version": "3.11.7",
        "modules": {"numpy": "2.4.6", "zmq": "27.3.0", "cryptography": "49.0.0"},
    }


def address_of(rank: int) -> str:
    """Return the address of a node."""
    return f"10.1.{rank >> 8}.{rank & 255}"


class Node:
    """A node's agent, from its first connection to its goodbye."""

    def __init__(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._rank = rank
        self._reader = reader
        self._writer = writer
        self._received = self._acknowledged = 0
        self._dest = ""
        self._offsets: dict[str, int] = {}
        self._prints: dict[str, Fingerprint] = {}
        self._pace_s = PACE_S
        self._written = 0  # lines
        self._chunks: dict[str, bytes] = {}  # by log, the bytes written since the last packet
        self._lines: list[bytes] = []
        self._packing: asyncio.Task[None] | None = None
        self._processes: dict[str, asyncio.Task[None]] = {}
        self._pids = itertools.count(1000)
        self._answers: dict[str, Callable[[Fields], None]] = {
            "probe": lambda _: self._send("probed", **probed(rank)),
            "reach": self._reach,
            "manifest": self._manifest,
            "relay": lambda _: self._send("relaying", address=address_of(rank), port=42040, problem=""),
            "fetch": self._fetch,
            "commit": self._commit,
            "start": self._start,
            "stop": self._stop,
            "ping": lambda fields: self._send("pong", seq=fields["seq"], clock=time.time()),
        }

    async def serve(self, request: Fields) -> None:
        """Start as the interpreter that the launcher requested does, and answer until `bye`."""
        size = int(re.findall(r"\.read\((\d+)\)", " ".join(request["argv"]))[0])
        first = await self._reader.readexactly(size)
        nonce = first.rstrip(b"\n")[-32:].decode()
        self._writer.write(marker(nonce))
        self._send(
            "hello",
            pid=999,
            python="3.11.7",
            hostname=f"node-{self._rank}",
            user="root",
            platform="Linux 6.1.0-28-amd64 x86_64",
            address=address_of(self._rank),
            clock=time.time(),
            agent_start_s=0.022,
            magic="a70d0d0a",
        )
        self._pace_s = max(PACE_S, (await self._frame())["pace_s"])  # of `hello`
        await self._frame()  # modules
        self._received = 0
        while True:
            fields = await self._frame()
            if fields["kind"] == "bye":
                break
            answer = self._answers.get(fields["kind"])
            if answer is not None:
                answer(fields)
            if self._received - self._acknowledged >= ACK_EACH:
                self._acknowledged = self._received
                self._send("received", position=self._received)
            await self._writer.drain()
        self._stop({"procs": None})
        if self._dest:
            self._list()
            while (await self._frame())["kind"] not in ("verified", "bye"):
                pass
        if COUNTS:
            Path(COUNTS, str(self._rank)).write_text(str(self._written))
        self._send("goodbye", rest=None)
        await self._writer.drain()
        self._writer.close()
        await self._writer.wait_closed()

    async def _frame(self) -> Fields:
        head = await self._reader.readexactly(PREFIX_SIZE)
        size = frame_size(head)
        rest = await self._reader.readexactly(size - PREFIX_SIZE)
        self._received += size
        header = rest[: int.from_bytes(head[:4], "big")]
        return dict(json.loads(header))

    def _send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        self._writer.write(encode(kind, fields, body))

    def _reach(self, fields: Fields) -> None:
        results = [[node, True, "", address, 0.001] for node, address, _port in fields["peers"]]
        self._send("reached", results=results, neighbours=[])

    def _manifest(self, fields: Fields) -> None:
        self._dest = fields.get("dest") or self._dest
        if fields["final"]:
            self._lacks(fields["tree"])
            self._commit({"tree": fields["tree"], "dest": fields["dest"]})  # because nothing is lacking

    def _fetch(self, fields: Fields) -> None:
        for tree in fields["trees"]:
            self._lacks(tree)

    def _lacks(self, tree: str) -> None:
        self._send(
            "lacking",
            tree=tree,
            digests=[],
            offsets={},
            cached_files=1,
            have_tree=True,
            relayed=0,
            final=True,
        )

    def _commit(self, fields: Fields) -> None:
        job_dir = f"/root/.paddle-cluster/{fields['dest']}"
        self._send("committed", tree=fields["tree"], job_dir=job_dir, files=1, bytes=100)

    def _start(self, fields: Fields) -> None:
        proc = fields["proc"]
        self._send("started", proc=proc, pid=next(self._pids))
        of_node = int(fields["env"].get("LOCAL_WORLD_SIZE", "1"))
        self._processes[proc] = asyncio.create_task(self._run(proc, fields["log"], of_node / LINES_PER_S))

    async def _run(self, proc: str, log: str, every_s: float) -> None:
        begun = time.monotonic()
        await asyncio.sleep(every_s * (hash((self._rank, proc)) % 1000) / 1000)
        for number in itertools.count():
            if time.monotonic() - begun >= RUN_S:
                break
            self._write(
                proc, log, b"step %d of %s: cost 0.693147 after 128 samples\n" % (number, proc.encode())
            )
            await asyncio.sleep(every_s)
        self._flush()
        self._send("exited", proc=proc, code=0, signal=None, tail="", out_of_memory="")
        self._processes.pop(proc, None)

    def _write(self, proc: str, log: str, text: bytes) -> None:
        """Queue a line and the bytes of its log, which are batched as in an agent's outbox."""
        self._written += 1
        fields = {"proc": proc, "stream": "out", "partial": False, "t": time.time()}
        self._lines.append(encode("line", fields, text))
        self._chunks[log] = self._chunks.get(log, b"") + text
        if self._packing is None:
            self._packing = asyncio.create_task(self._pack())

    async def _pack(self) -> None:
        await asyncio.sleep(self._pace_s)
        self._packing = None
        self._flush()

    def _flush(self) -> None:
        frames, self._lines = self._lines, []
        chunks, self._chunks = self._chunks, {}
        for log, text in chunks.items():
            offset = self._offsets.get(log, 0)
            self._offsets[log] = offset + len(text)
            frames.append(encode("file", {"path": log, "offset": offset, "reset": False, "eof": True}, text))
            self._prints.setdefault(log, new_fingerprint()).add(text)
        self._writer.write(b"".join(frames))

    def _list(self) -> None:
        """List the collected files, as an agent does."""
        self._flush()
        rows = [[log, "file", found.size, found.hexdigest()] for log, found in self._prints.items()]
        self._send("listed", json.dumps(rows).encode(), last=True)

    def _stop(self, fields: Fields) -> None:
        self._end(list(self._processes) if fields["procs"] is None else fields["procs"])
        self._send("stopped", procs=fields["procs"], left=[], killed=0)

    def _end(self, names: list[str]) -> None:
        for name in names:
            task = self._processes.pop(name, None)
            if task is not None:
                task.cancel()


async def call(rank: int, given: Fields, context: ssl.SSLContext, room: asyncio.Semaphore) -> None:
    """Simulate the callback agent of one node: one connection always waits for the launcher's next request."""
    host, port = given["addresses"][0]
    served: set[asyncio.Task[None]] = set()
    while True:
        async with room:
            reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="")
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            word = {"word": given["word"], "rank": rank, "host": f"node-{rank}"}
            writer.write(json.dumps(word).encode() + b"\n")
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = json.loads(await reader.readline() or b'{"argv": null}')
            if request["argv"] is None:
                break
            served.add(asyncio.create_task(Node(rank, reader, writer).serve(request)))
    writer.close()
    for task in served:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await task


async def play(first: int, count: int) -> None:
    """Simulate the nodes of `count` ranks, until the launcher ends all of them."""
    given = json.loads(base64.b64decode(os.environ[INVITATION]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=given["certificate"])
    room = asyncio.Semaphore(CALLS_AT_ONCE)
    await asyncio.gather(*(call(rank, given, context, room) for rank in range(first, first + count)))


def main() -> None:
    """Divide the nodes among processes, and simulate a part of them."""
    count = int(sys.argv[1])
    children: list[int] = []

    def end(*_: object) -> None:
        for pid in children:
            os.kill(pid, signal.SIGTERM)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    for first in range(0, count, NODES_EACH):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            asyncio.run(play(first, min(NODES_EACH, count - first)))
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
