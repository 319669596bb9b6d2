# SPDX-License-Identifier: Apache-2.0
"""Resident agents as the launcher sees them: those that earlier jobs left, and those that this job requests.

A record, accessible only to this user (0600), contains an agent's address, and the certificate and key that both sides
present. The key was created only for that agent and sent to its node inside SSH. A record is valid as long as a login
would be the same: same ssh config, known hosts, settings and agent. If anything differs or fails, the launcher logs in
to the node as usual.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_cluster.config.settings import SshSettings
from paddle_cluster.connection.bootstrap import Bootstrap, packed_agent
from paddle_cluster.connection.tls_stream import TlsStream
from paddle_cluster.plan.plan import Node, Plan
from paddle_cluster.ssh import config_lines
from paddle_cluster.system import job_certificate
from paddle_cluster.system.digests import DIGEST_SIZE, MEMORIES, cache_file, load_cached
from paddle_cluster.system.job_certificate import Certificate
from paddle_node.contract.classes import dataclass, field
from paddle_node.contract.records import Port, Secret, read_text
from paddle_node.linux.descriptors import memory_file

FOLDER = ".residents"  # below the state directories of the jobs
REACH_S = 0.5  # a connection that takes longer is no faster than a login
ANSWER_S = 3.0
SPARE_S = 60.0  # extra seconds beyond its time, for a job's end
NONCE_BYTES = 16


@dataclass(frozen=True)
class _Record:
    """The record of a waiting agent.

    Attributes:
        login: the digest of a login's inputs: when they change, the record is invalid.
    """

    address: str
    port: Port
    certificate: str
    key: Secret = field(repr=False)
    login: str


class Residents:
    """The resident agents of a job's nodes; any thread may call `connect`, only the loop's thread the other methods.

    Args:
        plan: a plan with RESIDENT_S.

    Attributes:
        wait_for_all: whether every node had the record of a resident agent, so that a login is unlikely.
    """

    def __init__(self, plan: Plan) -> None:
        settings = plan.settings
        self._wait_s = settings.engines.resident_s
        self._ssh = settings.ssh
        self._state = settings.state.jobs
        self._nodes = {node.node_id: node for node in plan.nodes if not node.host.is_local}
        self._known = {node_id: found for node_id in self._nodes if (found := self._load(node_id))}
        self.wait_for_all = len(self._known) == len(self._nodes)  # `connect` takes records away
        self._reached: dict[int, _Record] = {}
        self._busy: set[int] = set()
        self._made: dict[int, Certificate] = {}
        self._knocks: dict[int, tuple[socket.socket, str, int]] = {}
        self._way = ""  # the settings that logins depend on, except for the known hosts
        self._known_hosts: bytes | None = None
        self._reading = threading.Lock()

    def connect(self, node_id: int) -> tuple[TlsStream | None, str]:
        """Return a stream to the agent that waits on a node, if there is one; block for at most ANSWER_S seconds.

        Returns:
            The stream, or None and why a recorded agent is not available; the caller must then log in to the node.
        """
        self._reached.pop(node_id, None)
        record = self._known.pop(node_id, None)
        if record is None:
            return None, ""
        login = self._login(anew=False)
        if not login or record.login != login:
            return (
                None,
                "no resident agent can be reused: the agent, the ssh config or the known hosts have changed",
            )
        try:
            stream = _call(record, self._wait_s)
        except BusyError:
            self._busy.add(node_id)
            return None, "its resident agent serves another job: logging in"
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                self._path(node_id).unlink()
            return None, f"no resident agent at {record.address} port {record.port} ({error}): logging in"
        self._reached[node_id] = record
        return stream, ""

    def wish(self, node_id: int) -> dict[str, Any] | None:
        """Return the `hello` field that asks an agent to wait for the next job, or not to replace a waiting agent."""
        if node_id not in self._nodes or node_id in self._busy:
            return None
        if node_id in self._reached:
            return {}
        made = self._made[node_id] = job_certificate.make()
        return {"name": self._name(node_id), "wait_s": self._wait_s, **vars(made)}

    def offered(self, node_id: int, address: str, port: int) -> None:
        """Check in the background whether a waiting agent can be reached from this machine.

        Raises:
            ValueError: the address is invalid.
        """
        self._login(
            anew=True
        )  # this login may have added known hosts; later changes were not used by any login
        knock = _socket_to(address)
        knock.setblocking(False)
        knock.connect_ex((address, port))
        self._knocks[node_id] = (knock, address, port)

    def keep(self) -> None:
        """Save the records of the waiting agents at the end of the job."""
        for node_id in self._reached:
            with contextlib.suppress(OSError):
                os.utime(self._path(node_id))
        login = self._login(anew=False) if self._knocks else ""
        for node_id, (knock, address, port) in self._knocks.items():
            if login and _is_connected(knock) and node_id in self._made:
                made = self._made[node_id]
                record = _Record(address, port, made.certificate, made.key, login)
                cache_file(self._path(node_id), json.dumps(vars(record)).encode())
            knock.close()
        self._knocks.clear()

    def _login(self, anew: bool) -> str:
        """Return a digest of a login's inputs, or "" if they cannot be read: a login reports the reason.

        Args:
            anew: whether to read the known hosts again, instead of using the last result.
        """
        with self._reading:  # once, not once per waiting thread
            try:
                self._way = self._way or _way(self._ssh, self._state)
                if anew or self._known_hosts is None:
                    self._known_hosts = _known_hosts(self._ssh)
            except (OSError, ValueError):
                return ""
            return _digest(self._known_hosts + self._way.encode())

    def _load(self, node_id: int) -> _Record | None:
        path = self._path(node_id)
        try:
            if time.time() - path.stat().st_mtime > self._wait_s + SPARE_S:
                return None
        except OSError:
            return None
        content = load_cached(path)
        try:
            return None if content is None else read_text(_Record, content, "resident agent", str(path))
        except ValueError:  # written by another version
            return None

    def _path(self, node_id: int) -> Path:
        return self._state / FOLDER / self._name(node_id)

    def _name(self, node_id: int) -> str:
        """Return the name of the record and the agent: one per node as configured, in this state directory."""
        node: Node = self._nodes[node_id]
        about = [
            node.host.text,
            node.root_dir,
            node.python,
            str(self._state),
            socket.gethostname(),
            os.getuid(),
        ]
        return _digest(json.dumps(about).encode())


class BusyError(Exception):
    """Raised when a resident agent serves another job."""


def _call(record: _Record, wait_s: float) -> TlsStream:
    """Return a stream to an agent that has begun to answer.

    Raises:
        BusyError: it is serving another job.
        OSError, ValueError: no agent is there, or it does not know our key, or it has another key.
    """
    certificate = ssl.PEM_cert_to_DER_cert(record.certificate)
    context = _context(record, certificate)
    connection = _socket_to(record.address)
    try:
        connection.settimeout(REACH_S)
        connection.connect((record.address, record.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream = TlsStream(connection, context, server_side=False)
        nonce = os.urandom(NONCE_BYTES).hex()
        request: Mapping[str, Any] = {"nonce": nonce, "wait_s": wait_s}
        stream.call(certificate, json.dumps(request).encode() + b"\n", time.monotonic() + ANSWER_S)
        stream.begin(Bootstrap(nonce, b""), str)
    except ConnectionError as error:  # it listens, but closes connections that it does not serve
        connection.close()
        if isinstance(error, ConnectionRefusedError):
            raise
        raise BusyError from error
    except BaseException:
        connection.close()
        raise
    return stream


def _socket_to(address: str) -> socket.socket:
    """Return a socket for an IP address; `create_connection` would import the codec of international host names.

    Raises:
        ValueError: the address is invalid.
    """
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM)


def _context(record: _Record, certificate: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is compared
    context.load_verify_locations(cadata=certificate)
    with memory_file("resident", (record.certificate + record.key).encode()) as path:
        context.load_cert_chain(path)
    return context


def _way(ssh: SshSettings, state: Path) -> str:
    """Return a digest of everything that determines a login: settings, ssh config, user, and the agent to start."""
    agent = packed_agent(folder=state / MEMORIES).digest
    about = (repr(ssh), config_lines.digest(ssh.config), os.environ.get("USER"), agent)
    return _digest(repr(about).encode("utf-8", "surrogateescape"))


def _known_hosts(ssh: SshSettings) -> bytes:
    return ssh.known_hosts.read_bytes() if ssh.known_hosts.exists() else b""


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE).hexdigest()


def _is_connected(knock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(knock, select.POLLOUT)
    return bool(poll.poll(0)) and knock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
