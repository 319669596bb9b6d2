# SPDX-License-Identifier: Apache-2.0
"""Where porters call: a TLS server of the launcher that lets in who knows the job's word, one connection a node.

Strangers cost a thread for some seconds each, as many as there is room for, and get nothing.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from paddle_cluster.connection.tls_stream import TlsStream
from paddle_cluster.engines.addresses import own_addresses
from paddle_cluster.system import job_certificate
from paddle_node.contract import checked_json

GREET_S = 10.0
AT_ONCE = 64
BACKLOG = 1024
WORD_BYTES = 32
REFUSED_S = 5.0  # so long nobody has listened here: then a porter takes the launcher for gone

Came = Callable[[int, str, TlsStream], None]


class Rendezvous:
    """Listens from construction to `close`.

    Args:
        came: gets rank, host name and stream of each porter's connection; on any thread.
        ports: the first free one of these is taken; empty: any.
        address: the only address to give to porters; empty: all addresses of this machine.

    Raises:
        OSError: there is no port to listen on.
    """

    def __init__(self, came: Came, ports: range = range(0), address: str = "") -> None:
        self._came = came
        self._address = address
        self._certificate = job_certificate.make()
        self._word = secrets.token_hex(WORD_BYTES)
        self._context = _server_context(self._certificate)
        self._listener = _first_free(ports)
        self._room = threading.Semaphore(AT_ONCE)
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="rendezvous", daemon=True).start()

    def invitation(self, hosts: Sequence[str], ranks: Sequence[str], patience_s: float) -> dict[str, Any]:
        """Return the secret data for a porter.

        Args:
            hosts: names or addresses of the nodes; they determine the order of the launcher's addresses.
            ranks: variables that may hold a porter's rank, the first of them first.
            patience_s: how long a porter retries a launcher that does not answer.
        """
        port = self._listener.getsockname()[1]
        return {
            "addresses": [(address, port) for address in own_addresses(hosts, self._address)],
            "certificate": self._certificate.certificate,
            "word": self._word,
            "ranks": list(ranks),
            "patience_s": patience_s,
            "refused_s": REFUSED_S,
        }

    def close(self) -> None:
        """Listen no more."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts, which closes it

    def _accept(self) -> None:
        with self._listener:
            while not self._closed.is_set():
                try:
                    connection, _ = self._listener.accept()
                except OSError:  # closed, or too many descriptors: then who called calls again
                    self._closed.wait(0.05)
                    continue
                if not self._room.acquire(timeout=GREET_S):
                    connection.close()
                    continue
                threading.Thread(target=self._greet, args=(connection,), name="greet", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        try:
            stream = TlsStream(connection, self._context)
            _keep_alive(connection)
            said = checked_json.as_object(stream.greet(time.monotonic() + GREET_S))
            rank, host = said["rank"], said["host"]
            knows = hmac.compare_digest(str(said["word"]).encode(), self._word.encode())
            if not knows or type(rank) is not int or not isinstance(host, str):
                raise ConnectionError("an unauthenticated peer")
        except (OSError, ValueError, LookupError):
            connection.close()
        else:
            self._came(rank, host[:255], stream)
        finally:
            self._room.release()


def _first_free(ports: range) -> socket.socket:
    for port in ports[:-1]:
        with contextlib.suppress(OSError):
            return _listener(port)
    return _listener(ports[-1] if ports else 0)


def _listener(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 may be off
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
