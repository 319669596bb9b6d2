# SPDX-License-Identifier: Apache-2.0
"""Says in one sentence why there is no way to a node, and in another what to do about it."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass

from paramiko.ssh_exception import (
    AuthenticationException,
    ChannelException,
    ConfigParseError,
    PasswordRequiredException,
    SSHException,
)

from launcher.errors import ConnectError
from launcher.ssh.known_hosts import (
    ChangedHostKeyError,
    RevokedHostKeyError,
    UnknownHostKeyError,
    fingerprint,
)
from launcher.ssh.resolver import NameTimeoutError
from launcher.ssh.route import Hop

BROKEN = (OSError, EOFError, SSHException)  # what the library raises on a connection that is gone

_NO_BANNER = ("banner", "EOF in transport thread", "No existing session")


@dataclass(frozen=True)
class Attempt:
    """What was tried, for messages.

    Attributes:
        node: the node as the user wrote it.
        hop: the login, a jump host's or the node's own.
        is_jump: whether the hop is a jump host on the way.
        timeout_s: of each step.
    """

    node: str
    hop: Hop
    is_jump: bool
    timeout_s: float


def is_worth_another_try(error: Exception) -> bool:
    """Whether a server that is merely busy with other logins (MaxStartups) may have caused it."""
    if isinstance(error, ConnectionResetError | EOFError):
        return True
    plain = type(error) is SSHException
    return (
        plain
        and any(text in str(error) for text in _NO_BANNER)
        and not isinstance(error.__cause__, TimeoutError)
    )


def explain(error: Exception, attempt: Attempt) -> ConnectError:
    """Turn what the SSH library or the kernel raised into an error with a reason and a hint."""
    reason, hint = _reason(error, attempt)
    if attempt.is_jump:
        reason = f"jump host {attempt.hop.text}: {reason}"
    return ConnectError(attempt.node, reason, hint)


def _reason(error: Exception, attempt: Attempt) -> tuple[str, str]:
    if isinstance(error, UnknownHostKeyError):
        return _unknown_key(error, attempt)
    if isinstance(error, RevokedHostKeyError):
        return (
            f"its host key {fingerprint(error.key)} is revoked at {error.line.where}.",
            "Do not log in there.",
        )
    if isinstance(error, ChangedHostKeyError):
        return _changed_key(error)
    if isinstance(error, PasswordRequiredException):
        return _refused(attempt, "a private key is encrypted", "Add it to your ssh agent: ssh-add KEY.")
    if isinstance(error, AuthenticationException):
        login = f"{attempt.hop.user}@" if attempt.hop.user else ""
        return _refused(
            attempt,
            str(error),
            "If the user is right, put a public key into its ~/.ssh/authorized_keys: "
            f"ssh-copy-id {login}{attempt.hop.host}.",
        )
    if isinstance(error, NameTimeoutError):
        return (
            f"the name {attempt.hop.host} is not resolved: {error}.",
            "Check the name servers (/etc/resolv.conf), or write an address.",
        )
    if isinstance(error, socket.gaierror):
        return (
            f"the name {attempt.hop.host} is not resolved: {error.strerror}.",
            "Check HOSTS and your ssh config.",
        )
    if isinstance(error, ChannelException):
        return (
            f"the jump host before it cannot reach {attempt.hop.host}:{attempt.hop.port}: {error.text}.",
            "Check that the node is up and sshd listens there.",
        )
    if isinstance(error, ConfigParseError):
        return f"the ssh config cannot be read: {error}.", ""
    return _network(error, attempt)


def _network(error: Exception, attempt: Attempt) -> tuple[str, str]:
    where = f"{attempt.hop.host}:{attempt.hop.port}"
    if isinstance(error, TimeoutError):
        return f"no answer from {where} within {attempt.timeout_s:g} s.", "Check that the node is up."
    if isinstance(error, ConnectionRefusedError):
        return f"{where} refuses connections.", "Check that sshd runs there, and its port."
    if isinstance(error, SSHException) and any(text in str(error) for text in _NO_BANNER):
        return (
            f"{where} accepts connections but does not speak SSH within {attempt.timeout_s:g} s: {error}.",
            "Check the port, and that sshd there is not overloaded (MaxStartups).",
        )
    if isinstance(error, SSHException) and "No authentication methods" in str(error):
        return _refused(
            attempt,
            "there was no key to try",
            "Name one in SSH_IDENTITY_FILES, HOST_SETTINGS or your ssh config.",
        )
    if isinstance(error, EOFError | ConnectionResetError):
        return f"{where} closed the connection during the login.", "See sshd's log there."
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"{where}: {os.strerror(error.errno)}.", "Check the node's address and your routes."
    return f"{where}: {type(error).__name__}: {error}.", ""


def _unknown_key(error: UnknownHostKeyError, attempt: Attempt) -> tuple[str, str]:
    port = "" if attempt.hop.port == 22 else f"-p {attempt.hop.port} "
    return (
        f"its host key is not in known_hosts: {fingerprint(error.key)}.",
        "Compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the machine itself; then accept "
        f"it with `ssh {port}{attempt.hop.user}@{attempt.hop.host} true`, or all new ones with --accept_new_host_keys.",
    )


def _changed_key(error: ChangedHostKeyError) -> tuple[str, str]:
    same_type = [line for line in error.lines if line.key_type == error.key.get_name()]
    where = ", ".join(line.where for line in same_type or error.lines)
    sent = fingerprint(error.key)
    if not same_type:
        return (
            f"its host key {sent} is not known; {where} has one of another type.",
            "Add it by hand if it is right.",
        )
    return (
        f"ITS HOST KEY HAS CHANGED: it sent {sent}, which is not the key at {where}.",
        "Somebody may listen in. If the machine was set up anew, remove that line and accept the new key.",
    )


def _refused(attempt: Attempt, why: str, hint: str) -> tuple[str, str]:
    keys = [str(path) for path in attempt.hop.keys]
    if os.environ.get("SSH_AUTH_SOCK"):
        keys.append("those of your ssh agent")
    tried = ", ".join(keys) or "none"
    return f"auth refused for {attempt.hop.user}@{attempt.hop.host} ({why}), keys tried: {tried}.", hint
