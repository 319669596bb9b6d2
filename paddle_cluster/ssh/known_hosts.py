# SPDX-License-Identifier: Apache-2.0
"""Verifies host keys against the entries of known_hosts, and handles hosts without an entry.

A key that differs from a known one is rejected, regardless of the options. A new key is rejected or, if the user
requested it, appended; lines are never changed or removed. The files are read as by OpenSSH: hashed names, patterns,
several keys per host, @revoked. Certificates (@cert-authority) cannot be checked, which the error states.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeys

from paddle_cluster.ssh.config_lines import fits
from paddle_node.contract.classes import dataclass

REVOKED = "@revoked"
AUTHORITY = "@cert-authority"

_KRL = b"SSHKRL\n"
_appending = threading.Lock()


class HostKeyError(Exception):
    """Raised when a host presents a key that is not accepted."""

    def __init__(self, name: str, key: paramiko.PKey) -> None:
        super().__init__(f"the key of {name} is not accepted")
        self.name = name
        self.key = key


class UnknownHostKeyError(HostKeyError):
    """Raised when known_hosts has no key for the host."""


class CertifiedHostError(HostKeyError):
    """Raised when known_hosts has only a certificate authority for the host, not the host's own key."""

    def __init__(self, name: str, key: paramiko.PKey, line: KnownLine) -> None:
        super().__init__(name, key)
        self.line = line


class ChangedHostKeyError(HostKeyError):
    """Raised when known_hosts has different keys for the host."""

    def __init__(self, name: str, key: paramiko.PKey, lines: list[KnownLine]) -> None:
        super().__init__(name, key)
        self.lines = lines


class RevokedHostKeyError(HostKeyError):
    """Raised when known_hosts marks the key as @revoked."""

    def __init__(self, name: str, key: paramiko.PKey, line: KnownLine) -> None:
        super().__init__(name, key)
        self.line = line


class UncheckedHostKeyError(HostKeyError):
    """Raised when the file of revoked keys cannot be read, so that the key cannot be checked."""

    def __init__(self, name: str, key: paramiko.PKey, why: str) -> None:
        super().__init__(name, key)
        self.why = why


@dataclass(frozen=True)
class KnownLine:
    """A parsed line of a known_hosts file: one key of a host.

    Attributes:
        names: comma-separated patterns, or one hashed name.
        key: the key in base64.
    """

    path: Path
    number: int
    marker: str
    names: str
    key_type: str
    key: str

    @property
    def where(self) -> str:
        """Return the position of the line as file:line, the form that editors accept."""
        return f"{self.path}:{self.number}"

    def matches(self, name: str) -> bool:
        """Return whether the line is for a host, given as `host` or `[host]:port`; case-insensitive."""
        name = name.lower()
        if self.names.startswith("|1|"):
            try:
                return bool(HostKeys.hash_host(name, self.names) == self.names)
            except (ValueError, AssertionError):  # a damaged line is for no host
                return False
        return fits(name, self.names.lower().split(","))


class KnownHosts:
    """A cache of the entries of known_hosts files, each of which is read again only after a change. Thread-safe.

    Args:
        accept_new: whether to append the keys of hosts that no file lists to the user's first file.
    """

    def __init__(self, accept_new: bool) -> None:
        self._accept_new = accept_new
        self._lock = threading.Lock()
        self._files: dict[Path, _KnownFile] = {}

    def key_types(self, paths: Sequence[Path], name: str) -> list[str]:
        """Return the types of a host's known keys: the server must present one of these."""
        return [line.key_type for line in self._about(paths, name) if not line.marker]

    def check(
        self, paths: Sequence[Path], name: str, key: paramiko.PKey, system: Sequence[Path] = ()
    ) -> None:
        """Check the key that a host presented.

        Args:
            paths: the user's files; a missing one counts as empty.
            system: further files, to which no key is added.

        Raises:
            HostKeyError: the key is not accepted.
            OSError: a file cannot be read or written.
        """
        lines = self._about((*paths, *system), name)
        same = [line for line in lines if line.key == key.get_base64()]
        known = [line for line in lines if not line.marker]
        for line in same:
            if line.marker == REVOKED:
                raise RevokedHostKeyError(name, key, line)
        if any(not line.marker for line in same):
            return
        if known:
            raise ChangedHostKeyError(name, key, known)
        if not self._accept_new:
            for line in lines:
                if line.marker == AUTHORITY:
                    raise CertifiedHostError(name, key, line)
            raise UnknownHostKeyError(name, key)
        for path in paths[:1]:
            _append(path, f"{name} {key.get_name()} {key.get_base64()}\n")

    def _about(self, paths: Sequence[Path], name: str) -> list[KnownLine]:
        found = []
        for path in dict.fromkeys(paths):
            try:
                status = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            with self._lock:
                known = self._files.get(path)
                if known is None or known.version != version:
                    known = self._files[path] = _KnownFile(path, version)
            found += known.about(name)
        return found


class _KnownFile:
    """The lines of one file, indexed by name if unhashed: with thousands of nodes a linear search is too slow."""

    def __init__(self, path: Path, version: tuple[int, int, int]) -> None:
        self.version = version
        self._plain: dict[str, list[KnownLine]] = {}
        self._others: list[KnownLine] = []
        for line in _lines(path):
            if line.names.startswith("|") or any(character in line.names for character in "*?!"):
                self._others.append(line)
            else:
                for name in set(line.names.lower().split(",")):
                    self._plain.setdefault(name, []).append(line)

    def about(self, name: str) -> list[KnownLine]:
        """Return the lines that match a host name, in the order of the file."""
        found = [*self._plain.get(name.lower(), ()), *(line for line in self._others if line.matches(name))]
        return sorted(found, key=lambda line: line.number)


def _lines(path: Path) -> Iterator[KnownLine]:
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) >= 3 and not words[0].startswith("#"):
            yield KnownLine(path, number, marker, *words[:3])


def check_unrevoked(path: Path, name: str, key: paramiko.PKey) -> None:
    """Check that a file (RevokedHostKeys), with one public key per line, does not list the key that a host presented.

    Raises:
        RevokedHostKeyError: the file lists the key.
        UncheckedHostKeyError: the file cannot be read, or is a binary list (KRL).
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UncheckedHostKeyError(name, key, f"{path}: {error.strerror}") from error
    if content.startswith(_KRL):
        raise UncheckedHostKeyError(name, key, f"the default client cannot read the binary list {path}")
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if key.get_base64() in words:
            raise RevokedHostKeyError(name, key, KnownLine(path, number, REVOKED, name, *words[:2]))


def fingerprint(key: paramiko.PKey) -> str:
    """Return the fingerprint of a key as `ssh-keygen -l` prints it: its type and SHA256:..."""
    return f"{key.get_name()} {key.fingerprint}"


def known_name(host: str, port: int) -> str:
    """Return a host's name as spelled in known_hosts: `host`, or `[host]:port` for a port other than 22."""
    return host if port == 22 else f"[{host}]:{port}"


def _append(path: Path, line: str) -> None:
    with _appending:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "rb+") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            line_end = b"" if file.read() in (b"", b"\n") else b"\n"
            file.write(line_end + line.encode())
