# SPDX-License-Identifier: Apache-2.0
"""Public key authentication: offers private key files with their certificates, then the keys of the ssh agent."""

from __future__ import annotations

import base64
import binascii
import contextlib
import copy
import io
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from paramiko.agent import AgentKey, AgentSSH
from paramiko.pkey import PublicBlob
from paramiko.ssh_exception import (
    AuthenticationException,
    BadAuthenticationType,
    PasswordRequiredException,
    SSHException,
)

from paddle_cluster.ssh.reasons import OPENSSH
from paddle_cluster.ssh.route import HostConfig
from paddle_node.contract.classes import dataclass

LIST_S = 5.0  # seconds for the ssh agent to list its keys for the first time
SIGN_S = 30.0  # and to sign, or to list them while it signs for other logins: it may prompt the user
_BEGIN, _END = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"
_PKCS8 = b"-----BEGIN PRIVATE KEY-----"
_KINDS = {b"ssh-rsa": paramiko.RSAKey, b"ssh-ed25519": paramiko.Ed25519Key}


class ManyKeysError(AuthenticationException):  # type: ignore[misc]
    """Raised when the server closed the connection before all keys were offered."""


class PartialError(BadAuthenticationType):  # type: ignore[misc]
    """The server accepted a key, but requires more."""


@dataclass(frozen=True)
class _KeyFile:
    """A file named by IdentityFile.

    Attributes:
        public: the public key, or b"" if it cannot be read without a passphrase.
        private: the private key, or why there is none.
        certificate: the certificate in the adjacent file, or None.
    """

    public: bytes
    private: paramiko.PKey | SSHException
    certificate: PublicBlob | None = None


class KeyRing:
    """The private keys of the user, each read from its file only once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[Path, _KeyFile] = {}
        self._answered: set[str] = set()  # agents

    def authenticate(self, transport: paramiko.Transport, hop: HostConfig) -> None:
        """Offer one key after another until one is accepted.

        Raises:
            SSHException: why the last key was rejected.
        """
        refused = SSHException("No authentication methods available")
        limit_s = SIGN_S if hop.agent in self._answered else LIST_S
        with contextlib.closing(_Agent(hop.agent, limit_s)) as agent:
            if not agent.problem:
                self._answered.add(hop.agent)
            offered = 0
            for key in self._keys(hop, agent):
                if isinstance(key, SSHException):
                    refused = key
                    continue
                offered += 1
                try:
                    required = transport.auth_publickey(hop.user, key)
                    if not required:
                        return
                    refused = PartialError("accepted", required)
                    if "publickey" not in required:
                        break
                except SSHException as error:
                    refused = error
                if not transport.is_active():  # too many keys for this server
                    if offered > 1:
                        refused = ManyKeysError(f"the server closed the connection after {offered} keys")
                    break
        raise refused

    def _keys(self, hop: HostConfig, agent: _Agent) -> Iterator[paramiko.PKey | SSHException]:
        """Yield all keys to offer, or why one cannot be used."""
        named = []
        for path in hop.keys:
            with self._lock:  # an RSA key takes long to check: do it once, not once per waiting thread
                if path not in self._loaded:
                    self._loaded[path] = _load(path)
            named.append(self._loaded[path])
        certificates = [
            *_certificates(hop.certificates),
            *(one.certificate for one in named if one.certificate),
        ]
        public = {one.public for one in named if one.public}
        held = agent.keys()
        blobs = {key.asbytes() for key in held}
        for one in named:
            if isinstance(one.private, SSHException):
                if one.public not in blobs:
                    yield one.private
                continue
            yield from _with_certificates(one.private, certificates)
        if agent.problem:
            yield AuthenticationException(agent.problem)
        for key in held:
            if not hop.identities_only or key.asbytes() in public:
                yield from _with_certificates(key, certificates)


class _Agent(AgentSSH):  # type: ignore[misc]
    """The ssh agent at a socket; it has no keys if it does not answer.

    Attributes:
        problem: why the agent has no keys, if it did not answer in time.
    """

    def __init__(self, path: str, limit_s: float) -> None:
        super().__init__()
        self.problem = ""
        if path:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(limit_s)
            try:
                connection.connect(path)
                self._connect(connection)
                connection.settimeout(SIGN_S)
            except (OSError, SSHException) as error:
                if isinstance(error, TimeoutError):
                    self.problem = f"the ssh agent at {path} does not answer within {limit_s:g} s"
                connection.close()

    def keys(self) -> tuple[paramiko.PKey, ...]:
        """Return the agent's keys."""
        return tuple(self.get_keys())

    def close(self) -> None:
        """Close the connection to the agent."""
        self._close()


def _certificates(paths: Iterable[Path]) -> Iterator[PublicBlob]:
    for path in paths:
        with contextlib.suppress(OSError, ValueError, SSHException):
            yield PublicBlob.from_file(str(path))


def _with_certificates(key: paramiko.PKey, certificates: Iterable[PublicBlob]) -> Iterator[paramiko.PKey]:
    """Yield the key with each certificate for it, then the key alone."""
    for one in certificates:
        if _certified(one) == _fields(key.asbytes(), 1):
            certified = AgentKey(key.agent, key.blob) if isinstance(key, AgentKey) else copy.copy(key)
            certified.public_blob = one
            yield certified
    yield key


def _certified(certificate: PublicBlob) -> bytes | None:
    """Return the public key in a certificate, which starts with a nonce."""
    rest = _fields(certificate.key_blob, 2)
    count = {"ssh-rsa": 2, "ssh-ed25519": 1, "ecdsa-sha2": 2}
    for kind, fields in count.items():
        if certificate.key_type.startswith(kind) and rest is not None:
            after = _fields(rest, fields)
            return None if after is None else rest[: len(rest) - len(after)]
    return None


def _fields(blob: bytes, count: int) -> bytes | None:
    """Return the bytes after some length-prefixed fields, or None if these are incomplete."""
    for _ in range(count):
        size = int.from_bytes(blob[:4], "big") + 4
        if size > len(blob):
            return None
        blob = blob[size:]
    return blob


def _load(path: Path) -> _KeyFile:
    public = _public_half(path)
    try:
        content = path.read_bytes()
        if _PKCS8 in content:
            key = _from_pkcs8(content)
            return _KeyFile(key.asbytes(), key, next(_certificates([Path(f"{path}-cert.pub")]), None))
        key = paramiko.PKey.from_path(path)
        certificate, key.public_blob = key.public_blob, None
        return _KeyFile(key.asbytes(), key, certificate)
    except TypeError:  # the crypto library raises this without a passphrase
        return _KeyFile(public, PasswordRequiredException("Private key file is encrypted"))
    except (ValueError, OSError, paramiko.UnknownKeyType) as error:
        return _KeyFile(public, SSHException(_unusable(path, public, error)))
    except SSHException as error:
        return _KeyFile(public, error)


def _from_pkcs8(content: bytes) -> paramiko.PKey:
    """Return the private key in a PKCS#8 file, a format that paramiko identifies but does not read."""
    found = serialization.load_pem_private_key(content, None)
    form = serialization.PrivateFormat.OpenSSH
    text = found.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode("ascii")
    public = found.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return _KINDS.get(public.split()[0], paramiko.ECDSAKey).from_private_key(io.StringIO(text))


def _unusable(path: Path, public: bytes, error: Exception) -> str:
    if path.suffix == ".pub":
        return (
            f"{path} is a public key that the ssh agent does not hold; name the private key, "
            f"{path.with_suffix('')}"
        )
    if public[4:].startswith(b"sk-"):
        return f"{path} is a FIDO key, which the default client cannot use; {OPENSSH}"
    if path.suffix == ".ppk":
        return f"{path} is a key of PuTTY: convert it with `puttygen {path} -O private-openssh -o NEW`, and name NEW"
    why = error.strerror if isinstance(error, OSError) else f"see `ssh-keygen -yf {path}`"
    return (
        f"cannot use the private key {path}: {why}. Name a different key: IdentityFile in your ssh config, "
        "SSH_IDENTITY_FILES or HOST_SETTINGS in conf.py"
    )


def _public_half(path: Path) -> bytes:
    """Return a file's public key, from the adjacent .pub file or from the private key's unencrypted part; or b""."""
    with contextlib.suppress(OSError, ValueError):
        text = path.read_text(encoding="ascii")
        if text.startswith(_BEGIN):
            data = base64.b64decode(text.partition(_BEGIN)[2].partition(_END)[0])
            rest = _fields(data.removeprefix(_MAGIC), 3)  # cipher, key derivation function, its options
            return rest[8:][: int.from_bytes(rest[4:8], "big")] if rest else b""
        if path.suffix != ".pub":
            path = path.with_name(f"{path.name}.pub")
            text = path.read_text(encoding="ascii")
        with contextlib.suppress(binascii.Error, IndexError):
            return base64.b64decode(text.split()[1])
    return b""
