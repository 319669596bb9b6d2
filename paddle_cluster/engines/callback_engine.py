# SPDX-License-Identifier: Apache-2.0
"""The engine over a cluster's own launcher (mpirun, srun, Kubernetes), which starts one callback agent per node.

A callback agent starts the same commands on a node as an SSH login, so higher layers need not distinguish the two.
Callback agents connect to a TLS server in the launcher, which admits peers that know the job's secret, one connection
per node. An unauthenticated peer occupies one of a limited number of threads for a few seconds, and receives nothing.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import secrets
import socket
import ssl
import tempfile
import threading
import time
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from paddle_cluster.config.values import shown_ports
from paddle_cluster.connection.bootstrap import FLAGS, Bootstrap, agent_bootstrap, reconnect_bootstrap
from paddle_cluster.connection.reconnect import ReconnectError
from paddle_cluster.connection.shell import agent_command
from paddle_cluster.connection.tls_stream import TlsStream
from paddle_cluster.engines.callback_agents import (
    AGENT_CODE,
    INVITATION,
    Call,
    CallbackAgent,
    CallbackAgents,
    own_addresses,
)
from paddle_cluster.engines.engine import Engine, Target
from paddle_cluster.errors import ConnectError, ThreadLimitError
from paddle_cluster.plan.plan import Plan
from paddle_cluster.system import job_certificate
from paddle_cluster.system.installation import NODE_DIR
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.records import read_text

CALLBACK_AGENT = NODE_DIR / "agent" / "callback_agent.py"

_LOAD = f"import os,zlib,base64;exec(zlib.decompress(base64.b64decode(os.environ.pop('{AGENT_CODE}'))))"
# Nodes may have their interpreters at different paths; any of them works. $0 begins the shell's error messages.
_SCRIPT = (
    'c=$1; shift; for p in python3 "$@"; do command -v "$p" >/dev/null 2>&1 && break; done; '
    'exec "$p" {flags} -c "$c"'
)


class CallbackEngine(Engine):
    """An engine whose agents are started by callback agents: at the first connection, until `close`."""

    def __init__(self, plan: Plan) -> None:
        settings = plan.settings
        self._plan = plan
        self._names = tuple(host.name for host in settings.cluster.hosts)
        self._reconnect_s = settings.limits.lease_s  # how long a callback agent tries to reconnect
        self._again_s = settings.ssh.connect_timeout_s
        self._pythons = tuple(dict.fromkeys(node.python for node in plan.nodes))  # for nodes without python3
        self._ports = settings.engines.ports
        self._address = settings.engines.address
        self._callback_agents: CallbackAgents
        self._lock = threading.RLock()
        # By node: the thread that waits for its callback agent.
        self._waiting: dict[int, threading.Condition] = {}
        self._idle: dict[int, TlsStream] = {}
        self._handed_out: list[tuple[int, TlsStream]] = []
        self._lost: dict[int, str] = {}  # why a node is permanently unreachable
        self._connected: set[int] = set()
        self._fault = ""  # why all nodes are permanently unreachable
        self._rendezvous: Rendezvous | None = None
        self._start_by = 0.0
        self._closed = False

    @classmethod
    def of(cls, plan: Plan, is_job: bool) -> CallbackEngine:
        """Return the engine of a plan."""
        return cls(plan)

    @abstractmethod
    def callback_agents(self) -> CallbackAgents:
        """Return the starter of the callback agents. Raises UsageError if the starter cannot be used."""

    def check(self) -> None:
        """Check that the program or library that starts the callback agents is installed.

        Raises UsageError if it is not.
        """
        self._callback_agents = self.callback_agents()

    def connect(self, node: Target) -> TlsStream:
        """Start an agent on a node; block until its callback agent has connected.

        Raises:
            ConnectError: the callback agent did not connect in time; the message contains the tool's output.
        """
        return self._open(node.node_id, agent_bootstrap(), node.python)

    def reconnect(self, node: Target) -> TlsStream:
        """Start the process that opens a new connection to the running agent.

        Raises:
            ConnectError: the node is currently unreachable.
            ReconnectError: its callback agent has ended, so no new connection is possible.
        """
        try:
            return self._open(node.node_id, reconnect_bootstrap(), node.python)
        except ConnectError as error:
            why = self._lost.get(node.node_id, self._fault)
            if not why:
                raise
            raise ReconnectError(why, is_final=True) from error

    def _open(self, node_id: int, bootstrap: Bootstrap, python: str) -> TlsStream:
        request = {"argv": ["/bin/sh", "-c", agent_command(bootstrap, python)]}
        stream = self._take(node_id)
        stream.begin(bootstrap, lambda: self._lost.get(node_id, self._fault))
        try:
            _send_request(stream, request)
        except OSError as error:
            stream.end()
            raise ConnectError(self._names[node_id], f"the connection ended: {error}.") from error
        return stream

    def _take(self, node_id: int) -> TlsStream:
        """Return the idle connection of a node's callback agent; wait for it if necessary."""
        with self._lock:
            self._start_once()
            again_by = time.monotonic() + self._again_s
            deadline = again_by if node_id in self._connected else max(again_by, self._start_by)
            while True:
                left_s = deadline - time.monotonic()
                # the connection of a killed callback agent may still be listed
                if self._fault or self._closed or node_id in self._lost:
                    raise self._missing(node_id)
                if node_id in self._idle:
                    break
                if left_s <= 0:
                    raise self._missing(node_id)
                self._waiting.setdefault(node_id, threading.Condition(self._lock)).wait(left_s)
            stream = self._idle.pop(node_id)
            self._handed_out.append((node_id, stream))
            return stream

    def _wake(self, node_ids: Iterable[int]) -> None:
        """Wake threads that wait for these nodes; the caller holds the lock."""
        for node_id in node_ids:
            if node_id in self._waiting:
                self._waiting[node_id].notify_all()

    def _missing(self, node_id: int) -> ConnectError:
        name = self._names[node_id]
        if node_id in self._lost:
            return ConnectError(name, f"{self._lost[node_id]}.")
        if self._fault or self._closed:
            return ConnectError(name, f"{self._fault or f'{self._callback_agents.name} was stopped'}.")
        within = f" within {self._callback_agents.start_s:.0f} s"
        what = "has not connected" + (" again" if node_id in self._connected else within)
        status = self._callback_agents.status_line()
        return ConnectError(
            name,
            f"the process that {self._callback_agents.name} should start on this node {what}"
            + (f"; {self._callback_agents.name} reports: {status}" if status else "."),
            "The node must be able to reach this machine over TCP on "
            + (
                f"port {shown_ports(self._ports)}"
                if self._ports
                else "any port (ENGINE_PORT in conf.py sets one)"
            )
            + (f" of {self._address}." if self._address else "; ENGINE_ADDRESS in conf.py sets the address."),
        )

    def _start_once(self) -> None:
        """Start the callback agents unless they were started before."""
        if self._start_by:
            return
        self._start_by = time.monotonic() + self._callback_agents.start_s
        try:
            self._rendezvous = Rendezvous(self._agent_connected, self._ports, self._address)
            self._callback_agents.start(self._invite, self._ended)
        except OSError as error:
            among = f" among {shown_ports(self._ports)} (ENGINE_PORT)" if self._ports else ""
            self._fault = f"no port is free for connections from nodes{among}: {error.strerror}"
        except RuntimeError:  # this machine refuses another thread: the other nodes do not wait
            self._fault = str(ThreadLimitError())
            raise

    def _invite(self, names: Sequence[str], ranks: Sequence[str]) -> CallbackAgent:
        assert self._rendezvous is not None
        invitation = self._rendezvous.invitation(names, ranks, self._reconnect_s)
        encoded = base64.b64encode(json.dumps(invitation).encode()).decode()
        code = base64.b64encode(zlib.compress(CALLBACK_AGENT.read_bytes())).decode()
        script = _SCRIPT.format(flags=" ".join(FLAGS))
        return CallbackAgent(
            ("/bin/sh", "-c", script, "agent", _LOAD, *self._pythons), {INVITATION: encoded, AGENT_CODE: code}
        )

    def _ended(self, why: str, rank: int | None = None) -> None:
        """Record that callback agents have ended permanently: that of one node, or all."""
        with self._lock:
            if rank is None:
                self._fault = self._fault or why
            else:
                self._lost[rank] = why
            streams = [stream for node_id, stream in self._handed_out if rank in (None, node_id)]
            self._wake([*self._waiting] if rank is None else [rank])
        for stream in streams:  # its processes on the nodes must not outlive the callback agent
            stream.close()

    def _agent_connected(self, rank: int, host: str, stream: TlsStream) -> None:
        """Add the connection of a callback agent."""
        with self._lock:
            if self._closed or not 0 <= rank < len(self._names):
                stream.end()
                return
            known = self._callback_agents.hosts
            where = next((at for at, name in enumerate(known) if _same(name, host)), rank)
            if where != rank and not _same(known[rank], host):
                tool = self._callback_agents.name
                self._fault = f"{tool} started rank {rank} on {visible(host)} instead of {known[rank]}"
            before = self._idle.pop(rank, None)  # cut: it has ended for the callback agent only
            self._idle[rank] = stream
            self._connected.add(rank)
            self._wake([rank] if not self._fault else [*self._waiting])
        if before is not None:
            before.end()

    def close(self) -> str:
        """End the callback agents and wait until all started processes have exited; this takes seconds.

        Returns:
            A description of what may remain, or "".
        """
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
            self._wake([*self._waiting])
        for stream in idle.values():
            with contextlib.suppress(OSError):
                _send_request(stream, {"argv": None})
            stream.end()
        if self._rendezvous is not None:
            self._rendezvous.close()
        return self._callback_agents.close()


def _send_request(stream: TlsStream, request: Mapping[str, Any]) -> None:
    if not stream.write(json.dumps(request).encode() + b"\n"):
        raise ConnectionError("the node agent accepts no data")


def _same(name: str, host: str) -> bool:
    """Return whether two names belong to the same host, with or without a domain."""
    return name.lower().partition(".")[0] == host.lower().partition(".")[0]


GREET_S = 10.0
AT_ONCE = 64
BACKLOG = 1024
WORD_BYTES = 32
REFUSED_S = 5.0  # without a listener for this time, a callback agent concludes that the launcher has exited

OnConnected = Callable[[int, str, TlsStream], None]


class Rendezvous:
    """The TLS server to which callback agents connect; listens from construction to `close`.

    Args:
        on_connected: function that receives the rank, host name and stream of each callback agent's connection, on any
            thread.
        ports: the first free one of these is used, or any port if empty.
        address: the address to give to callback agents, or empty for all of this machine's.

    Raises:
        OSError: no port is free to listen on.
    """

    def __init__(self, on_connected: OnConnected, ports: range = range(0), address: str = "") -> None:
        self._on_connected = on_connected
        self._address = address
        self._certificate = job_certificate.make()
        self._secret = secrets.token_hex(WORD_BYTES)
        self._context = _server_context(self._certificate)
        self._listener = _first_free(ports)
        self._room = threading.Semaphore(AT_ONCE)
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="rendezvous", daemon=True).start()

    def invitation(self, hosts: Sequence[str], ranks: Sequence[str], patience_s: float) -> dict[str, Any]:
        """Return the secret data that a callback agent needs to connect.

        Args:
            hosts: names or addresses of the nodes; they determine the order of the launcher's addresses.
            ranks: variables that may contain a callback agent's rank, in order of preference.
            patience_s: time in seconds for which a callback agent retries if the launcher does not answer.
        """
        port = self._listener.getsockname()[1]
        return {
            "addresses": [(address, port) for address in own_addresses(hosts, self._address)],
            "certificate": self._certificate.certificate,
            "word": self._secret,
            "ranks": list(ranks),
            "patience_s": patience_s,
            "refused_s": REFUSED_S,
        }

    def close(self) -> None:
        """Stop listening for callback agents; existing connections stay open."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which closes it

    def _accept(self) -> None:
        with self._listener:
            while not self._closed.is_set():
                try:
                    connection, _ = self._listener.accept()
                except OSError:  # closed, or too many descriptors: in this case the peer connects again
                    self._closed.wait(0.05)
                    continue
                if not self._room.acquire(timeout=GREET_S):
                    connection.close()
                    continue
                try:
                    threading.Thread(
                        target=self._greet, args=(connection,), name="greet", daemon=True
                    ).start()
                except RuntimeError:  # this machine refuses another thread: the peer connects again
                    self._room.release()
                    connection.close()

    def _greet(self, connection: socket.socket) -> None:
        try:
            stream = TlsStream(connection, self._context)
            _keep_alive(connection)
            greeting = read_text(Call, stream.greet(time.monotonic() + GREET_S), "callback agent", "a peer")
            if not hmac.compare_digest(greeting.word.encode(), self._secret.encode()):
                raise ConnectionError("the peer's secret does not match")
        except (OSError, ValueError):
            connection.close()
        else:
            self._on_connected(greeting.rank, greeting.host[:255], stream)
        finally:
            self._room.release()


def _first_free(ports: range) -> socket.socket:
    for port in ports[:-1]:
        with contextlib.suppress(OSError):
            return _listener(port)
    return _listener(ports[-1] if ports else 0)


def _listener(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 may be disabled
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
    return socket.create_server(("", port), backlog=BACKLOG)


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _server_context(certificate: job_certificate.Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    with tempfile.NamedTemporaryFile(
        "w", prefix=".paddle-", encoding="ascii"
    ) as file:  # the library reads files
        file.write(certificate.certificate + certificate.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context
