# SPDX-License-Identifier: Apache-2.0
"""The handshake between ranks: encrypts a new connection, and lets each side prove that it has the job's key.

Sealed connections use TLS 1.2 with an anonymous key exchange (RFC 7919 group, AES-256-GCM), since nodes have no
certificates. Authentication rests on the proof alone: both sides send a keyed hash of the connection's `tls-unique`
value (RFC 5929), which a man in the middle cannot make equal on its two connections.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import select
import socket
import ssl
from enum import Enum

from paddle.collective.connection.stream import Steps, Stream, prepare
from paddle.errors import WireError
from paddle_node.linux.descriptors import memory_file

HANDSHAKE_S = 10.0
_GREETING = b"PADDLE-COLLECTIVE-1\n"
_CIPHERS = "ADH-AES256-GCM-SHA384:@SECLEVEL=0"  # level 1 and above refuse ciphers without a certificate
_NONCE = 32
# ffdhe2048 of RFC 7919.
_GROUP = b"""-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""


class Side(Enum):
    """The role of a process in a handshake: the connecting or the accepting side."""

    CALLING = b"calling"
    CALLED = b"called"

    @property
    def other(self) -> Side:
        """Return the opposite role."""
        return Side.CALLED if self is Side.CALLING else Side.CALLING


def handshake(sock: socket.socket, side: Side, secret: bytes | None, sealed: bool) -> Steps[Stream]:
    """Authenticate a connection, and encrypt it if `sealed`; a generator for `stream.finish` that returns the `Stream`.

    The caller must stop the generator after `HANDSHAKE_S`.

    Args:
        sock: a new connection; closed if the handshake fails or is stopped.
        secret: the job's secret; None skips authentication.
        sealed: whether to encrypt; needs a secret.

    Raises:
        WireError: the other end is not a rank of this job, or has different settings.
        OSError: the connection broke.
    """
    prepare(sock)
    try:
        if sealed:
            if side is Side.CALLED:
                yield select.POLLIN  # a peer that sends nothing costs no TLS memory
            sock = _tls(side).wrap_socket(
                sock, server_side=side is Side.CALLED, do_handshake_on_connect=False
            )
            yield from _greet(sock)
        stream = Stream(sock)
        yield from _prove(stream, side, secret, sealed)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        sock.close()
        raise ConnectionResetError("the connection was closed") from None
    except ssl.SSLError as error:
        sock.close()
        raise WireError(f"cannot encrypt the connection ({error.reason}); {_ADVICE}") from None
    except BaseException:
        sock.close()
        raise
    return stream


_ADVICE = "check that all ranks have the same PADDLE_JOB_KEY and PADDLE_WIRE"


def _greet(sock: ssl.SSLSocket) -> Steps[None]:
    while True:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            yield select.POLLIN
        except ssl.SSLWantWriteError:
            yield select.POLLOUT
        else:
            return


def _prove(stream: Stream, side: Side, secret: bytes | None, sealed: bool) -> Steps[None]:
    ours = secrets.token_bytes(_NONCE)
    kind = b"K" if secret else b"-"
    yield from stream.sending(_GREETING + kind + ours)
    greeting = yield from stream.taking(len(_GREETING))
    if greeting != _GREETING:
        raise WireError(f"the peer is not a rank of a collective job; it sent {greeting!r}")
    answer = yield from stream.taking(1 + _NONCE)
    if answer[:1] != kind:
        raise WireError(f"only one of the two peers has a PADDLE_JOB_KEY; {_ADVICE}")
    if secret is None:
        return
    theirs = answer[-_NONCE:]
    binding = _binding(stream) if sealed else b""
    nonces = ours + theirs if side is Side.CALLING else theirs + ours
    yield from stream.sending(_proof(secret, side, nonces, binding))
    shown = yield from stream.taking(_NONCE)
    if not hmac.compare_digest(shown, _proof(secret, side.other, nonces, binding)):
        raise WireError(f"the peer does not have this job's key; {_ADVICE}")


def _proof(secret: bytes, side: Side, nonces: bytes, binding: bytes) -> bytes:
    return hashlib.blake2b(nonces + binding, key=secret, digest_size=_NONCE, person=side.value).digest()


def _binding(stream: Stream) -> bytes:
    assert isinstance(stream.sock, ssl.SSLSocket)
    binding = stream.sock.get_channel_binding("tls-unique")
    if not binding:
        raise WireError("this Python's TLS has no tls-unique value; use PADDLE_WIRE=plain")
    return binding


def _tls(side: Side) -> ssl.SSLContext:
    """Return a TLS context for one connection.

    A shared context would allow sessions to resume without authentication.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if side is Side.CALLED else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # there are no certificates; see above
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_CIPHERS)
    if side is Side.CALLED:
        _load_group(context)
    return context


def _load_group(context: ssl.SSLContext) -> None:
    with memory_file("ffdhe2048", _GROUP) as path:
        context.load_dh_params(path)
