# SPDX-License-Identifier: Apache-2.0
"""A real agent on this machine, driven over a real link, for tests of either side."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.connection.carrier import Stream
from paddle_cluster.connection.link import Link, LinkLost, MessageEvent
from paddle_cluster.connection.reactor import Reactor
from paddle_cluster.engines import local
from paddle_node.contract.frames import cost
from paddle_node.contract.probed import Busy, NodeAddress, Part, Route, Saves
from paddle_node.contract.records import fields_of
from paddle_node.contract.to_agent import ReconnectKey
from paddle_node.contract.to_launcher import Reported, ResidentFound

ROWS = (Busy, Part, NodeAddress, ResidentFound, Saves, Route)
PATIENCE_S = 60.0  # machines stall
ENDS_S = 30.0


class Heard(MessageEvent):
    """A message with its fields, as the agent sent them."""

    @property
    def fields(self) -> dict[str, Any]:
        reported = self.message
        if not isinstance(reported, Reported):
            return dict(_as_sent(reported))
        return {"proc": reported.proc, **fields_of(reported.report)}


def _as_sent(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_sent(one) for key, one in value.items()}
    if hasattr(value, "_asdict") and not isinstance(value, ROWS):
        return _as_sent(value._asdict())
    return [_as_sent(one) for one in value] if isinstance(value, (tuple, list)) else value


class Node:
    """One agent with its own ROOT_DIR.

    Attributes:
        seen: every event so far.
        acking: whether collected bytes are acknowledged when they come.
        verifying: whether the end of its list is answered, as by a launcher that has everything.
        rows: of its lists so far.
    """

    def __init__(
        self,
        root: Path,
        job_id: str,
        python: str = sys.executable,
        node_id: int = 0,
        stream: Stream | None = None,
        key: ReconnectKey | None = None,
    ) -> None:
        self.root = root
        self.job_id = job_id
        self.node_id = node_id
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.seen: list[Any] = []
        self.acking = True
        self.verifying = True
        self.rows: list[list[Any]] = []
        self.files: dict[str, bytes] = {}
        self.stream = stream or local.connect("local", python)
        self.reactor = Reactor()
        self.link = Link(node_id, f"node-{node_id}", self.stream, self.events, self.reactor, key)

    def greet(self, lease_s: float = 30.0, resident: dict[str, Any] | None = None) -> dict[str, Any]:
        self.link.send(
            "hello",
            job_id=self.job_id,
            node_id=self.node_id,
            lease_s=lease_s,
            root_dir=str(self.root),
            python=sys.executable,
            reconnect=None if self.link.key is None else self.link.key._asdict(),
            resident=resident,
        )
        said = self.expect("hello").fields
        self.link.send("ping", seq=0)  # a second frame: now it starts its guard
        return said

    def adopt(self, name: str = "job", collect: Sequence[str] = ("log", "output")) -> Path:
        """Take a directory as the job directory, as in job_workspace mode."""
        job_dir = self.root / name
        job_dir.mkdir(parents=True, exist_ok=True)
        files = {"nodefile": f"{self.node_id}\n"}
        self.link.send("commit", tree="workspace", dest=str(job_dir), files=files, collect=list(collect))
        self.expect("committed")
        return job_dir

    def start(
        self, argv: Sequence[str], proc: str = "trainer-0", log: str = "log/train.log", **more: Any
    ) -> int:
        """Start a process in the job directory `job`; returns its pid."""
        fields = {
            "role": "trainer",
            "rank": 0,
            "env": {},
            "secret_env": {},
            "cwd": str(self.root / "job"),
            **more,
        }
        self.link.send("start", proc=proc, argv=list(argv), log=log, **fields)
        return int(self.expect("started", proc=proc).fields["pid"])

    def python(self, code: str, *arguments: str, proc: str = "trainer-0", **more: Any) -> int:
        return self.start([sys.executable, "-u", "-c", code, *arguments], proc, **more)

    def expect(self, kind: str, timeout_s: float = PATIENCE_S, **fields: Any) -> Heard:
        """The next message of this kind with these fields."""

        def fits(event: Any) -> bool:
            return (
                isinstance(event, Heard)
                and event.kind == kind
                and all(event.fields.get(name) == value for name, value in fields.items())
            )

        event = self.until(fits, timeout_s, f"{kind} {fields}")
        assert isinstance(event, Heard)
        return event

    def expect_lost(self, timeout_s: float = PATIENCE_S) -> str:
        """Wait for the link's end; returns the reason."""
        event = self.until(lambda event: isinstance(event, LinkLost), timeout_s, "LinkLost")
        return str(event.reason)

    def until(self, fits: Callable[[Any], bool], timeout_s: float, what: str) -> Any:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                seen = "\n".join(str(event)[:400] for event in self.seen[-8:])
                raise AssertionError(f"no {what} within {timeout_s} s; seen last:\n{seen}") from None
            if isinstance(event, MessageEvent):
                event = Heard(*event)
            self.seen.append(event)
            if isinstance(event, Heard) and event.kind == "file":
                self._keep(event)
            if isinstance(event, Heard) and event.kind == "moved":
                self.files[event.fields["to"]] = self.files.pop(event.fields["path"])
            if isinstance(event, Heard) and event.kind in (
                "file",
                "directory",
                "moved",
                "link",
                "removed",
                "listed",
            ):
                self._acknowledge(event)
            if fits(event):
                return event

    def messages(self, kind: str) -> list[Heard]:
        return [event for event in self.seen if isinstance(event, Heard) and event.kind == kind]

    def notices(self) -> list[str]:
        """What was told to the user so far."""
        return [event.fields["text"] for event in self.messages("notice")]

    def counted(self, pattern: str) -> int:
        """The sum of the numbers in what was told to the user."""
        return sum(int(match[1]) for text in self.notices() if (match := re.search(pattern, text)))

    def text(self, proc: str = "trainer-0") -> bytes:
        """What was sent for the screen so far."""
        return b"".join(event.body for event in self.messages("line") if event.fields["proc"] == proc)

    def pids(self) -> tuple[int, int]:
        """Guard and agent proper."""
        watcher = int(self.messages("hello")[0].fields["pid"])
        found: list[int] = []

        def seen() -> bool:
            found[:] = children(watcher)[:1]
            found.extend(children(found[0])[:1] if found else [])
            return len(found) == 2

        eventually(seen, "the agent proper is there")
        return found[0], found[1]

    def close(self) -> None:
        self.link.close()
        self.reactor.join(ENDS_S)

    def _keep(self, event: Heard) -> None:
        fields = event.fields
        old = b"" if fields["reset"] else self.files.get(fields["path"], b"")
        hole = fields["offset"] - len(old)
        assert hole >= 0, fields
        self.files[fields["path"]] = old + event.body if not hole else b"(sparse)"

    def _acknowledge(self, event: Heard) -> None:
        """Answer as a launcher whose disk takes everything and has everything."""
        if self.acking:
            self.link.send("ack", bytes=cost(event.body))
        if event.kind == "listed":
            self.rows += json.loads(event.body)
            if event.fields["last"] and self.verifying:
                self.link.send("verified", b"[]", last=True)


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait for something outside our own queues."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Pids of direct children, the oldest first."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid: int) -> bool:
    """Whether a pid is a process that is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def marked(job_id: str) -> list[int]:
    """Pids of living processes whose environment holds this job id."""
    mark = f"PADDLE_JOB_ID={job_id}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb", 0) as file:
                environ = file.read()
        except OSError:
            continue
        if mark in environ and mark in environ.split(b"\0") and lives(int(name)):  # few come to the split
            found.append(int(name))
    return found


def unmarked(job_id: str) -> bool:
    """Whether no process of this job lives."""
    return not marked(job_id)


def kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
