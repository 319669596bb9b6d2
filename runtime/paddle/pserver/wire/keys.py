# SPDX-License-Identifier: Apache-2.0
"""The keys of a job's encrypted connections, and the access control of a server process (CURVE).

    job key --blake2b, person "server"--> server's key pair      trainers know its public half beforehand
            --blake2b, person "client"--> trainers' key pair     one for all trainers; the server admits only it

Both key pairs are derived from the job key. A server admits only peers with the trainers' key, before it reads anything
from them. Neither the keys nor the job key are ever shown.
"""

from __future__ import annotations

import hashlib
from functools import partial

import zmq
from zmq.utils.z85 import decode as unz85
from zmq.utils.z85 import encode as z85

from paddle.errors import ConfigError
from paddle.threads import ServiceThread
from paddle_node.contract.classes import dataclass

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """A CURVE key pair, in ZeroMQ's Z85 text form."""

    public: bytes
    secret: bytes


@dataclass(frozen=True, slots=True, repr=False)
class WireKeys:
    """The two key pairs of a job: one for all servers, one for all trainers.

    Attributes:
        job: the job key itself, from which streams derive their keys: see `sealing`.
    """

    server: KeyPair
    client: KeyPair
    job: bytes

    @classmethod
    def asked(cls, wire: str, job_key: str | None) -> WireKeys | None:
        """Return the keys for a wire type, or None for "plain", which means no encryption.

        Raises:
            ConfigError: the wire is unknown, or there is no key for it.
        """
        if wire not in ("curve", "plain"):
            raise ConfigError(f"wire: expected curve or plain, got {wire!r}")
        if wire == "plain":
            return None
        if not job_key:
            raise ConfigError("wire curve needs the job's key: set PADDLE_JOB_KEY, or use wire plain")
        return cls.of(job_key)

    @classmethod
    def of(cls, job_key: str) -> WireKeys:
        """Derive both key pairs from the job key."""
        return cls(_key_pair(job_key, b"server"), _key_pair(job_key, b"client"), job_key.encode())


def _key_pair(job_key: str, person: bytes) -> KeyPair:
    secret = z85(hashlib.blake2b(job_key.encode(), digest_size=32, person=person).digest())
    return KeyPair(zmq.curve_public(secret), secret)


class Context:
    """A ZeroMQ context for the servers of one process, which admits only peers with the trainers' key."""

    def __init__(self, keys: WireKeys | None, io_threads: int = 1) -> None:
        self.keys = keys
        self.zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads)
        self._authenticator: ServiceThread[None] | None = None
        if keys is not None:
            handler = self.zmq.socket(zmq.REP)
            handler.setsockopt(zmq.LINGER, 0)
            handler.bind(_ZAP_ENDPOINT)
            self._authenticator = ServiceThread(
                partial(_authenticate, handler, keys.client.public), name="pserver-keys"
            )

    def close(self) -> None:
        """Close the context and wait for its thread; all its sockets must already be closed."""
        self.zmq.term()
        if self._authenticator is not None:
            self._authenticator.join()


def _authenticate(handler: zmq.Socket[bytes], admitted: bytes) -> None:
    """Answer ZeroMQ's authentication requests (RFC 27) for new peers: only the job's client key is admitted."""
    expected = unz85(admitted)
    while True:
        try:
            version, request_id, _domain, _address, _identity, mechanism, *credentials = (
                handler.recv_multipart()
            )
            ok = mechanism == b"CURVE" and credentials == [expected]
            status = (b"200", b"OK") if ok else (b"400", b"this key is not of this job")
            handler.send_multipart([version, request_id, *status, b"trainer", b""])
        except zmq.ContextTerminated:
            handler.close()
            return
