# SPDX-License-Identifier: Apache-2.0
"""Diagnoses why servers have not answered yet. Findings are reported while a client waits, and in its error.

Most findings are only logged, since the server might still start. An error is raised before the deadline only if
waiting cannot help: a different program uses the port, or the wire, the key or the ports differ.

ZeroMQ retries without reporting why a connection fails. A probe connects once over a separate socket and exchanges
ZMTP greetings (RFC 23), which distinguish ZeroMQ from other protocols, and an encrypted wire from a plain one. It
sends nothing else.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from collections.abc import Sequence
from enum import Enum
from functools import partial

from paddle.endpoints import address_of, listed
from paddle.errors import ConfigError, WireError
from paddle.pserver.transports.zmq import Liveness
from paddle.pserver.wire.configuration import PortRange, reported_range
from paddle.pserver.wire.message import Message
from paddle.report_times import ReportTimes
from paddle.threads import ServiceThread, left_to_finish
from paddle_node.contract.classes import NamedTuple

_log = logging.getLogger(__name__)

_FIRST_LOOK_S = 0.5
_PROBE_S = 0.8
_AGAIN = 0.5  # of the time waited so far
_LONGEST_S = 10.0
_PROBES = 16  # at a time
_KEY_DIFFERS = 20  # consecutive broken connections; damage in transit does not cause so many
_JOIN_S = 1.0
_NOTHING_SEEN = "no answer; check that it is running"
_KEY = "it closes connections while they are being established: its PADDLE_JOB_KEY or --wire may differ"
_SIGNATURE = b"\xff" + bytes(7) + b"\x01\x7f"
_VERSION = b"\x03\x00"
_GREETING = 64  # bytes: signature 10, version 2, mechanism 20, as-server 1, filler 31
_MECHANISM = slice(12, 32)
_SHOWN = 60
_CURVE, _PLAIN = "CURVE", "NULL"
_WIRES = {_CURVE: "curve", _PLAIN: "plain"}
_ADVICE = "give both sides the same PADDLE_JOB_KEY and --wire (PADDLE_WIRE)"
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL)


class Sight(Enum):
    """The kind of peer that a probe finds at an endpoint."""

    NOBODY = "nobody"
    CLOSES = "closes"
    MUTE = "mute"
    STRANGER = "stranger"
    OTHER_WIRE = "other wire"
    SAME_WIRE = "same wire"


_CERTAIN = (Sight.STRANGER, Sight.OTHER_WIRE)


class Finding(NamedTuple):
    """The kind of peer at an endpoint, and a message that describes it."""

    sight: Sight
    text: str


class Reaching:
    """The monitor of the servers that have not answered a client yet.

    Not thread-safe; probes run in separate threads.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        connections: Sequence[Liveness],
        *,
        is_encrypted: bool,
        timeout_s: float,
        ports: PortRange | None = None,
    ) -> None:
        """Begin to wait for the servers.

        Args:
            endpoints: "ip:port" of each server.
            connections: the state of the connection to each server.
            is_encrypted: whether this client's wire is encrypted.
            timeout_s: time in seconds for which the client waits for a first answer.
            ports: the number of ports that each server should have; None means not checked.
        """
        self._endpoints, self._connections = tuple(endpoints), tuple(connections)
        self._is_encrypted, self._ports = is_encrypted, ports
        self._hosts = [address_of(endpoint)[0] for endpoint in endpoints]
        self._unmet = set(range(len(endpoints)))
        self._first_look_s = min(_FIRST_LOOK_S, timeout_s / 8)
        self._probe_s = min(_PROBE_S, timeout_s / 4)
        self._look_at = dict.fromkeys(self._unmet, self._first_look_s)
        self._findings: dict[int, Finding] = {}
        self._probes: dict[int, ServiceThread[Finding]] = {}
        self._ranges: dict[str, tuple[str, PortRange]] = {}  # host -> (server, its port range)
        self._report_times = ReportTimes(timeout_s)
        self._was_told = False

    @property
    def is_over(self) -> bool:
        """Return whether every server has answered."""
        return not self._unmet

    def met(self, index: int, reply: Message) -> None:
        """Record the first answer of a server.

        Raises:
            ConfigError: the server's numbers of ports differ from those that the user specified.
        """
        self._unmet.discard(index)
        theirs = reported_range(reply)
        endpoint = self._endpoints[index]
        if theirs is not None:
            self._ranges.setdefault(self._hosts[index], (endpoint, theirs))
            if self._ports not in (None, theirs):
                raise ConfigError(
                    f"pserver {endpoint} was started with {theirs}, but this process has {self._ports}: "
                    "start both with the same port options"
                )
        if self._was_told and self.is_over:
            _log.warning("all pservers have answered after %.0f s", self._report_times.waited_s)

    def probe_missing(self) -> None:
        """Probe the addresses of missing servers, and report the findings at intervals; does not block.

        Raises:
            WireError: waiting cannot help.
        """
        for index in [index for index, probe in self._probes.items() if not probe.is_alive]:
            finding = self._probes.pop(index).finish()
            if index in self._unmet:
                self._check(index, finding)
                self._findings[index] = finding
        waited_s = self._report_times.waited_s
        for index in sorted(self._unmet):
            is_due = waited_s >= self._look_at[index] and index not in self._probes
            if is_due and not self._connections[index].was_up and len(self._probes) < _PROBES:
                is_new = index not in self._findings
                pause_s = self._first_look_s if is_new else min(_AGAIN * waited_s, _LONGEST_S)
                self._look_at[index] = waited_s + pause_s
                self._probe(index)
        if self._report_times.pass_moment():
            self._log_findings()

    def hint(self, index: int) -> str:
        """Return the findings about a server that did not answer, and the names of others that did not answer."""
        if index not in self._unmet:
            return "check that it is running"
        others = [self._endpoints[other] for other in sorted(self._unmet - {index})]
        return self._text(index) + (f" (nor did {listed(others)} answer)" if others else "")

    def close(self) -> None:
        """Wait for running probes to end, for about a second."""
        deadline = time.monotonic() + _JOIN_S + self._probe_s
        for thread in self._probes.values():
            thread.join(max(deadline - time.monotonic(), 0.0))

    def _probe(self, index: int) -> None:
        attempt = partial(
            probe, self._endpoints[index], is_encrypted=self._is_encrypted, timeout_s=self._probe_s
        )
        self._probes[index] = ServiceThread(attempt, name=f"pserver-probe-{index}", failed=left_to_finish)

    def _check(self, index: int, finding: Finding) -> None:
        """Accept a finding only when two probes agree: a single one may coincide with a short network failure."""
        if finding != self._findings.get(index) or self._connections[index].was_up:
            return
        endpoint = self._endpoints[index]
        if finding.sight in _CERTAIN:
            raise WireError(f"pserver {endpoint}: {finding.text}", endpoint)
        if self._breaks_off(index, finding) and self._connections[index].broken_off >= _KEY_DIFFERS:
            raise WireError(f"pserver {endpoint}: {_KEY}", endpoint)

    def _breaks_off(self, index: int, finding: Finding) -> bool:
        return (
            self._is_encrypted
            and finding.sight is Sight.SAME_WIRE
            and self._connections[index].broken_off > 0
        )

    def _text(self, index: int) -> str:
        if self._connections[index].was_up:
            return "connected, but it does not answer: it is too busy, stopped, or not a pserver"
        finding = self._findings.get(index)
        if finding is None:
            return _NOTHING_SEEN
        text = _KEY if self._breaks_off(index, finding) else finding.text
        neighbour, theirs = self._ranges.get(self._hosts[index], ("", None))
        if theirs is None:
            return text
        return f"{text} The pserver {neighbour} on that host has {theirs}"

    def _log_findings(self) -> None:
        groups: dict[str, list[str]] = {}
        for index in sorted(self._unmet):
            address, text = self._endpoints[index], self._text(index)
            groups.setdefault(text, []).append(address)
        for text, endpoints in groups.items():
            self._was_told = True
            _log.warning("waiting for pserver %s: %s (%s)", listed(endpoints), text, self._report_times)


def probe(endpoint: str, *, is_encrypted: bool, timeout_s: float) -> Finding:
    """Connect to an "ip:port" and identify the process that listens there.

    Args:
        endpoint: endpoint of a server.
        is_encrypted: whether this client's wire is encrypted.
        timeout_s: maximum time in seconds for connecting, and for the greeting; only the system limits name resolution.
    """
    host, port = address_of(endpoint)
    try:
        sock = socket.create_connection((host, port), timeout_s)
    except socket.gaierror as error:
        return Finding(
            Sight.NOBODY,
            f"the name {host!r} cannot be resolved ({error.strerror}); check its spelling and "
            "this machine's name servers",
        )
    except OSError as error:
        return Finding(Sight.NOBODY, _no_connection(error, timeout_s))
    with sock:
        return _greeted(sock, is_encrypted, timeout_s)


def _no_connection(error: OSError, timeout_s: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return (
            "connection refused: nothing is listening on that port; check that the server is "
            "running and that the port is right; `paddle.py run` starts the servers of a job"
        )
    if isinstance(error, TimeoutError):
        return (
            f"no answer to a connection within {timeout_s:.1f} s: the address is wrong, the machine is off, or a "
            "firewall drops packets"
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    way = "there is no route to it" if error.errno in _UNREACHABLE else "cannot connect to it"
    return f"{reason.lower()}: {way}; check the address"


def _greeted(sock: socket.socket, is_encrypted: bool, timeout_s: float) -> Finding:
    ours = _CURVE if is_encrypted else _PLAIN
    heard = _exchange(sock, timeout_s)
    if heard is None:
        return Finding(
            Sight.CLOSES,
            "it accepts connections and closes them immediately, like a proxy whose server is "
            "down; check that the server is running",
        )
    if not heard:
        return Finding(
            Sight.MUTE,
            "it accepts connections but sends nothing: the process is stopped, too busy, or not a pserver",
        )
    if heard[0] != _SIGNATURE[0] or (len(heard) > 9 and not heard[9] & 1):
        return Finding(
            Sight.STRANGER, f"the process that listens there is not a pserver; it sent {heard[:_SHOWN]!r}"
        )
    if len(heard) < _GREETING:
        return Finding(
            Sight.MUTE, "it started a ZeroMQ handshake but did not continue; check that it is a pserver"
        )
    theirs = heard[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")
    if theirs == ours:
        return Finding(
            Sight.SAME_WIRE,
            "ZeroMQ listens there, but no connection is established; check that it is a pserver",
        )
    if theirs not in _WIRES:
        return Finding(
            Sight.STRANGER,
            f"the process that listens there is not a pserver: ZeroMQ with {theirs[:_SHOWN]!r}",
        )
    return Finding(
        Sight.OTHER_WIRE,
        f"expected PADDLE_WIRE={_WIRES[ours]}, as in this process, but the server uses {_WIRES[theirs]}; {_ADVICE}",
    )


def _exchange(sock: socket.socket, timeout_s: float) -> bytes | None:
    """Return the peer's greeting, b"" if there is none, or None if the connection was closed instead.

    The probe sends the signature and the version: ZeroMQ then sends its whole greeting and waits for the probe's
    mechanism. It answers immediately; a silent peer gets an empty line, which text protocols answer.
    """
    heard = _read_reply(sock, _SIGNATURE + _VERSION, timeout_s / 2)
    return _read_reply(sock, b"\r\n\r\n", timeout_s / 2) if heard == b"" else heard


def _read_reply(sock: socket.socket, said: bytes, timeout_s: float) -> bytes | None:
    heard = b""
    deadline = time.monotonic() + timeout_s
    try:
        sock.sendall(said)
        while len(heard) < _GREETING and (left_s := deadline - time.monotonic()) > 0:
            sock.settimeout(left_s)
            more = sock.recv(_GREETING - len(heard))
            if not more:
                return heard or None
            heard += more
    except TimeoutError:
        return heard
    except OSError:
        return heard or None
    return heard
