# SPDX-License-Identifier: Apache-2.0
"""The agent proper, which reads the launcher's frames and acts on them, in one loop that never blocks.

Any end of the conversation (a `bye`, an expired lease, the guard's exit, TERM) first ends the job's processes and then
this process. So does a lost connection, unless the launcher can reconnect: the stream then continues where it ended.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

from paddle_node.agent.files.tailer import Tailer
from paddle_node.agent.files.trees import Trees
from paddle_node.agent.job_requests import JobRequests
from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.link.outbox import MOST_PACE_S, Outbox
from paddle_node.agent.link.reconnect_listener import ReconnectListener
from paddle_node.agent.link.sign_of_life import SignOfLife
from paddle_node.agent.node.probe import Probe
from paddle_node.agent.node.reach import Reach
from paddle_node.agent.node.usage import Usage
from paddle_node.agent.processes import control_group
from paddle_node.agent.processes.processes import Processes
from paddle_node.agent.processes.stopper import Scope, Stop
from paddle_node.contract import to_agent
from paddle_node.contract.frames import Decoder, FrameError, Message, encode
from paddle_node.contract.names import JOB_ID, NODE_ID
from paddle_node.contract.records import read
from paddle_node.contract.replay import ACK_EACH
from paddle_node.contract.to_agent import TO_AGENT
from paddle_node.linux import process_tree
from paddle_node.linux.process_tree import FoundProcess

if TYPE_CHECKING:
    from paddle_node.agent.relay.relay import Relay

FIRST_LEASE_S = 30.0  # until `hello` sets it
PRIVATE = 0o077  # the umask of a job, unless its launcher sets another
ALONE_GRACE_S = 1.0  # seconds that processes have after TERM when the launcher is lost
FAREWELL_S = 2.0
LIVELY_S = 10.0  # a launcher that sent data this recently reconnects soon, if it still runs
RECONNECT_S = 5.0  # how long to wait for it then; one that was silent before has until its lease expires
READ_SIZE = 1 << 18
NAME_LIMIT = 1 << 10
POLL_S = 0.05


def supervise(received: bytes, guard_alive: int, marks: int, signs: int) -> bool:
    """Serve the launcher on descriptors 0 and 1 until it disconnects; return whether to leave a resident agent running.

    Args:
        received: data received so far, beginning with the launcher's `hello`; ours was already sent.
        guard_alive: a descriptor that becomes readable when the guard exits.
        marks: a descriptor to which the job's marks are written, for the guard.
        signs: a descriptor to which heartbeats are written, for the guard.
    """
    gc.freeze()  # forks share these pages as long as they are not written to
    gc.enable()
    return Supervisor(guard_alive, marks, signs, 0, 1).run(received)


class Supervisor:
    """The event loop and the complete state of one node's agent; used by one thread."""

    def __init__(self, guard_alive: int, guard_marks: int, signs: int, stdin: int, stdout: int) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._guard_alive = guard_alive
        self._guard_marks = guard_marks
        self._loop = Loop()
        self._sign_of_life = SignOfLife(self._loop, signs)
        self._decoder = Decoder("launcher", TO_AGENT)
        self._outbox = Outbox(self._loop, stdout, self._connection_ended)
        self._reconnect_listener: Optional[ReconnectListener] = None
        self._connected = True
        self._acknowledged = 0
        self._marks: Dict[str, str] = {}
        self._processes = Processes(self._loop, self._outbox, self._marks, self._logged)
        self._usage = Usage(self._loop, self._processes.pids, self._outbox.newest)
        self._trees: Optional[Trees] = None
        self._relay: Optional[Relay] = None
        self._tailer: Optional[Tailer] = None
        self._probe: Optional[Probe] = None
        self._job_dir = ""
        self._python = "python3"
        self._lease_s = FIRST_LEASE_S
        self._spare_s = 0.0
        self._lease_timer: Optional[Timer] = None
        self._drain_timer: Optional[Timer] = None
        self._heard_at = time.monotonic()
        self._alone = False
        self._parted = False  # our goodbye was sent
        self._stopped: Optional[Dict[str, Any]] = None  # the last `stopped` of all processes
        self._job_requests = JobRequests(self._loop, self._outbox)
        self._handlers: Dict[str, Callable[[Any, bytes], None]] = {
            "hello": self._on_hello,
            "probe": self._on_probe,
            "reach": self._on_reach,
            "reserve": lambda asked, body: self._job_requests.reserve(asked),
            "manifest": lambda asked, body: self._need_trees().manifest(asked, body),
            "blob": lambda asked, body: self._need_trees().blob(asked, body),
            "commit": lambda asked, body: self._need_trees().commit(asked),
            "relay": self._on_relay,
            "fetch": self._on_fetch,
            "start": self._on_start,
            "stop": lambda asked, body: self._stop(asked.procs, asked.grace_s),
            "stacks": lambda asked, body: self._processes.ask_stacks(asked.procs),
            "ack": lambda asked, body: self._need_tailer().sender.acked(asked.bytes),
            "verified": self._on_verified,
            "received": lambda asked, body: self._outbox.acknowledged(asked.position),
            "ping": lambda asked, body: self._outbox.send("pong", seq=asked.seq, clock=time.time()),
            "bye": self._on_bye,
            "jobs": lambda asked, body: self._job_requests.jobs(),
            "end_job": lambda asked, body: self._job_requests.end_job(asked),
            "clean": lambda asked, body: self._job_requests.clean(asked),
            "checkpoints": lambda asked, body: self._job_requests.checkpoints(asked.folder),
            "verify": lambda asked, body: self._job_requests.verify(asked),
        }

    def run(self, received: bytes) -> bool:
        """Serve the job, beginning with `received`, until it has ended; return whether to leave a resident agent."""
        for fd in (self._stdin, self._stdout, self._guard_alive):
            os.set_blocking(fd, False)
        self._loop.on_readable(self._stdin, self._read)
        self._loop.on_readable(self._guard_alive, self._guard_died)
        self._loop.on_signal(signal.SIGTERM, lambda: self._give_up("the node agent was stopped by signal 15"))
        self._watch_lease()
        self._take(received)
        self._loop.run()
        self._sign_of_life.end()
        self._job_requests.close()
        self._close_relay()
        for part in (self._trees, self._probe):
            if part is not None:
                part.close()
        control_group.remove(self._marks)
        return self._job_requests.stays and self._parted and not self._alone

    def _read(self) -> None:
        try:
            data = os.read(self._stdin, READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._connection_ended()
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        try:
            messages = self._decoder.feed(data)
        except FrameError as error:
            self._outbox.send("failed", request="", reason="protocol", detail=str(error))
            self._loop.on_readable(self._stdin, None)
            self._abandon()
            return
        received = self._decoder.received
        if self._reconnect_listener is not None and received - self._acknowledged >= ACK_EACH:
            self._acknowledged = received
            self._outbox.send("received", position=received)
        for message in messages:
            self._handle(message)

    def _connection_ended(self) -> None:
        """Handle the loss of the connection: wait for a launcher that may reconnect, while the job continues."""
        if not self._connected:
            return
        self._connected = False
        self._loop.on_readable(self._stdin, None)
        if self._parted and not self._alone and self._outbox.empty:  # it received our goodbye
            self._loop.stop()
        elif self._reconnect_listener is None or self._alone:
            self._abandon()
        elif time.monotonic() - (heard_at := self._heard_at) < LIVELY_S:
            self._loop.after(RECONNECT_S, lambda: self._abandon_if_unheard_since(heard_at))

    def _abandon_if_unheard_since(self, heard_at: float) -> None:
        if self._heard_at == heard_at:
            self._abandon()

    def _reconnected(self, stdin: int, stdout: int, arrived: int) -> None:
        """Continue over a new connection of the launcher, which has received the given number of bytes."""
        if self._alone:
            raise ValueError("the job on this node is being stopped")
        self._outbox.acknowledged(arrived)
        os.write(stdout, encode("reconnected", {"position": self._decoder.received}))
        self._outbox.disconnect()
        self._loop.on_readable(self._stdin, None)
        for given, ours in ((stdin, self._stdin), (stdout, self._stdout)):
            os.dup2(given, ours)
            os.set_blocking(ours, False)
        self._connected = True
        self._heard_at = time.monotonic()
        self._acknowledged = self._decoder.received
        self._loop.on_readable(self._stdin, self._read)
        self._outbox.reconnect(arrived)

    def _handle(self, message: Message) -> None:
        fields = message.fields
        try:
            asked = read(TO_AGENT[message.kind], fields, message.kind, "the launcher")
            self._handlers[message.kind](asked, message.body)
        except (ValueError, OSError) as error:
            reason = "os" if isinstance(error, OSError) else "value"
            named = [name for name in ("proc", "tree") if isinstance(fields.get(name), str)]
            known = {name: fields[name][:NAME_LIMIT] for name in named}
            self._outbox.send("failed", request=message.kind, reason=reason, detail=str(error), **known)

    def _on_hello(self, hello: to_agent.Hello, _body: bytes) -> None:
        if self._trees is not None:
            raise ValueError("a hello message was already received")
        root_dir = os.path.expanduser(hello.root_dir)
        if not os.path.isabs(root_dir):
            raise ValueError("root_dir must be absolute or begin with ~, got %r" % root_dir)
        marks = {JOB_ID: hello.job_id}
        if hello.node_id is not None:
            marks[NODE_ID] = str(hello.node_id)
        os.umask(PRIVATE if hello.umask is None else hello.umask & 0o777)
        self._python = os.path.expanduser(hello.python)
        self._lease_s = hello.lease_s
        self._outbox.pace_s = min(MOST_PACE_S, hello.pace_s)
        if hello.reconnect is not None:
            self._spare_s = hello.reconnect.spare_s
            self._outbox.keep()
            self._reconnect_listener = ReconnectListener(self._loop, hello.reconnect, self._reconnected)
        self._watch_lease()
        self._sign_of_life.begin(self._lease_s)
        self._marks.update(marks)
        self._job_requests.open(root_dir.rstrip("/"), self._marks, hello)
        text_of_marks = "".join("%s=%s\0" % mark for mark in self._marks.items())
        os.write(self._guard_marks, os.fsencode(text_of_marks))
        self._trees = Trees(self._loop, root_dir.rstrip("/"), self._outbox.send, self._tree_committed)
        self._probe = Probe(self._loop, root_dir, self._python)

    def _on_probe(self, asked: to_agent.Probe, _body: bytes) -> None:
        if self._probe is None:
            raise ValueError("expected a hello message first")
        self._probe.run(asked, lambda found: self._outbox.send("probed", **found))

    def _on_reach(self, asked: to_agent.Reach, _body: bytes) -> None:
        def reached(results: List[List[Any]]) -> None:
            neighbours = self._probe.neighbours() if self._probe is not None else []
            self._outbox.send("reached", results=results, neighbours=neighbours)

        Reach(self._loop, asked.peers, reached)

    def _on_relay(self, asked: to_agent.Relay, _body: bytes) -> None:
        """Open the routes to other nodes, or close them."""
        trees = self._need_trees()
        self._close_relay()
        if not asked.open:
            return
        try:
            from paddle_node.agent.relay.relay import Relay  # imports TLS, which many jobs do not need

            relay = Relay(self._loop, trees.shared, self._outbox.send)
            relay.open(asked)
        except (ImportError, OSError, ValueError) as error:  # the launcher sends the files itself
            self._outbox.send("relaying", address="", port=0, problem=str(error))
            return
        self._relay = relay

    def _on_fetch(self, asked: to_agent.Fetch, _body: bytes) -> None:
        if self._relay is None:
            raise ValueError("received a fetch message before a relay message")
        self._relay.fetch(asked.sources, self._need_trees().shared.request(asked.trees))

    def _close_relay(self) -> None:
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def _on_start(self, asked: to_agent.Start, body: bytes) -> None:
        if not self._job_dir:
            raise ValueError("received a start message before a commit message, which names the directory")
        if self._probe is not None:
            self._probe.leave_to_job(asked.env.get("POD_IP", ""))
        self._stopped = None
        pid = self._processes.start(self._job_requests.with_saved(asked), body, self._job_dir)
        self._job_requests.started(asked, pid)
        self._usage.begin(self._marks)

    def _on_bye(self, asked: to_agent.Bye, _body: bytes) -> None:
        self._job_requests.leaving("its launcher ended it")
        self._stop(None, asked.grace_s, lambda: self._drain(time.monotonic() + asked.drain_s))

    def _stop(
        self, procs: Optional[Sequence[str]], grace_s: float, then: Optional[Callable[[], None]] = None
    ) -> None:
        """Stop processes and report the result; with `then`, which ends the job, report it only if it has changed."""

        def done(left: List[FoundProcess], killed: int, unsure: str = "") -> None:
            self._loop.reap()  # so that `exited` comes before `stopped`
            self._processes.drain()
            found = process_tree.named(left, unsure)
            if then is None or killed or found != self._stopped:
                self._outbox.send("stopped", procs=procs, killed=killed, **found)
            self._stopped = found if procs is None else self._stopped
            if then is not None:
                then()

        if procs is None and self._job_requests.end_before_us(self._marks, grace_s, done):
            return
        sessions = {pid for name in procs or () for pid in self._processes.sessions(name)}
        scope = Scope(self._marks, self._processes.leaders, None if procs is None else sessions, procs)
        settled = [] if self._alone or not grace_s else procs
        self._processes.settle(settled, scope, lambda found: Stop(self._loop, scope, grace_s, done, found))

    def _on_verified(self, asked: to_agent.Verified, body: bytes) -> None:
        self._need_tailer().sender.verified(asked.last, body)
        if self._drain_timer is not None:
            self._drain_timer.fire()

    def _drain(self, deadline: float) -> None:
        """Send everything written so far, and exit after the launcher has compared it and all chores have ended."""
        if self._tailer is not None:
            self._tailer.finish()
        self._outbox.pump()
        settled = self._outbox.empty and (self._tailer is None or self._tailer.sender.is_verified)
        if settled:
            self._job_requests.settled()
        if (self._loop.has_chores or not settled) and time.monotonic() < deadline:
            self._drain_timer = self._loop.after(POLL_S, lambda: self._drain(deadline))
            return
        if not self._parted:
            self._parted = True
            self._outbox.finish("goodbye", **({} if self._tailer is None else self._tailer.left()))
        self._leave(time.monotonic() + FAREWELL_S)

    def _leave(self, deadline: float) -> None:
        """Exit when everything was sent; a launcher that can reconnect closes the connection by itself."""
        if self._reconnect_listener is not None:
            return
        if self._outbox.empty or time.monotonic() >= deadline:
            self._loop.stop()
        else:
            self._loop.after(POLL_S, lambda: self._leave(deadline))

    def _abandon(self) -> None:
        """Stop everything because the launcher is unreachable, notify any remaining reader, and exit."""
        if not self._alone:
            self._alone = True
            self._job_requests.leaving("its launcher had exited, or the job was stopped on this node")
            self._stop(None, ALONE_GRACE_S, self._loop.stop)

    def _watch_lease(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        quiet_s = time.monotonic() - self._heard_at
        limit_s = self._lease_s + self._spare_s
        if quiet_s >= limit_s:
            self._give_up("no message from the launcher for %.0f s" % self._lease_s)
        else:
            self._lease_timer = self._loop.after(limit_s - quiet_s, self._watch_lease)

    def _guard_died(self) -> None:
        self._loop.on_readable(self._guard_alive, None)
        self._give_up("the node agent's guard was killed")

    def _give_up(self, why: str) -> None:
        """Report the reason before the ends of processes, which would otherwise appear to be the cause."""
        if not self._alone:
            why += ": stopping the job on this node"
            self._outbox.send("failed", request="", reason="abandoned", detail=why)
        self._abandon()

    def _tree_committed(self, name: str, path: str, collect: Sequence[str]) -> None:
        if name == "workspace":
            self._job_dir = path
            if self._probe is not None:
                self._probe.remember()
            self._processes.group = control_group.make(self._marks)
            self._job_requests.begin(path, self._processes.group)
            self._tailer = Tailer(self._loop, path, self._outbox, self._job_requests.saved)
            self._outbox.next_chunk = self._tailer.sender.next_chunk
            self._tailer.watch(collect)

    def _logged(self, log: str, rotated: bool) -> None:
        if self._tailer is not None:
            self._tailer.written(log, rotated)

    def _need_tailer(self) -> Tailer:
        if self._tailer is None:
            raise ValueError("nothing can be collected before a commit message")
        return self._tailer

    def _need_trees(self) -> Trees:
        if self._trees is None:
            raise ValueError("expected a hello message first")
        if self._probe is not None:
            self._probe.leave_to_job()
        return self._trees
