# SPDX-License-Identifier: Apache-2.0
"""Explains why a login to a node failed and what to do about it, in one sentence each."""

from __future__ import annotations

import errno
import os
import socket

from paramiko.ssh_exception import (
    AuthenticationException,
    BadAuthenticationType,
    ChannelException,
    PasswordRequiredException,
    SSHException,
)

from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh import reasons
from paddle_cluster.ssh.known_hosts import (
    CertifiedHostError,
    ChangedHostKeyError,
    RevokedHostKeyError,
    UncheckedHostKeyError,
    UnknownHostKeyError,
    fingerprint,
)
from paddle_cluster.ssh.private_keys import ManyKeysError, PartialError
from paddle_cluster.ssh.reasons import Reason, where
from paddle_cluster.ssh.resolver import NameTimeoutError, SilentError
from paddle_cluster.ssh.route import HostConfig
from paddle_cluster.ssh.transport import NothingInCommonError
from paddle_node.contract.classes import dataclass

PROHIBITED = 1  # the code of a channel that the server's configuration forbids

_NO_BANNER = ("banner", "EOF in transport thread", "No existing session")


@dataclass(frozen=True)
class Attempt:
    """A login attempt with the library's client, as described in messages.

    Attributes:
        node: the node as the user wrote it.
        hop: the login to a jump host or to the node itself.
        via: the jump host before it, or None.
        is_jump: whether the hop is a jump host on the route.
        timeout_s: the timeout of each step.
    """

    node: str
    hop: HostConfig
    via: HostConfig | None
    is_jump: bool
    timeout_s: float


def is_worth_another_try(error: Exception) -> bool:
    """Return whether a login may have failed because the server is busy (MaxStartups), so that a retry can help."""
    if isinstance(error, ConnectionResetError | EOFError):
        return True
    plain = type(error) is SSHException
    return (
        plain
        and any(text in str(error) for text in _NO_BANNER)
        and not isinstance(error.__cause__, TimeoutError)
    )


def explain(error: Exception, attempt: Attempt) -> ConnectError:
    """Convert an error of the SSH library or the kernel into one with a reason and a hint."""
    what, hint, outcome = _reason(error, attempt)
    if attempt.is_jump:
        what = f"jump host {attempt.hop.text}: {what}"
    return ConnectError(attempt.node, what, hint, outcome)


def _reason(error: Exception, attempt: Attempt) -> Reason:
    if isinstance(error, UnknownHostKeyError):
        own, hop = attempt.hop.known_hosts, attempt.hop
        return reasons.unknown_key(hop, fingerprint(error.key), own[0], (*own, *hop.global_known_hosts))
    if isinstance(error, RevokedHostKeyError):
        return reasons.revoked_key(fingerprint(error.key), f"at {error.line.where}")
    if isinstance(error, UncheckedHostKeyError):
        return reasons.unchecked_key(fingerprint(error.key), error.why)
    if isinstance(error, ChangedHostKeyError):
        return _changed_key(error)
    if isinstance(error, CertifiedHostError):
        return reasons.certified(fingerprint(error.key), error.line.where)
    if isinstance(error, NothingInCommonError):
        return reasons.nothing_in_common(where(attempt.hop), error.kind, error.offered)
    if isinstance(error, PasswordRequiredException):
        return _refused(
            attempt, "a private key is encrypted", reasons.add_to_agent([*map(str, attempt.hop.keys)])
        )
    if isinstance(error, ManyKeysError):
        return _refused(attempt, str(error), reasons.MANY_KEYS)
    if isinstance(error, BadAuthenticationType) and "publickey" not in error.allowed_types:
        has_accepted_key = isinstance(error, PartialError)
        return reasons.prompts(attempt.hop, error.allowed_types, _keys(attempt), has_accepted_key)
    if isinstance(error, AuthenticationException):
        return _refused(attempt, str(error))
    if isinstance(error, NameTimeoutError):
        return Reason(
            f"cannot resolve the name {attempt.hop.host}: {error}.",
            "Check the name servers (/etc/resolv.conf), or write an address.",
        )
    if isinstance(error, socket.gaierror):
        return reasons.unresolved(attempt.hop.host, str(error.strerror))
    if isinstance(error, ChannelException) and error.code == PROHIBITED and attempt.via is not None:
        return reasons.no_forwarding(attempt.via.text, error.text)
    if isinstance(error, ChannelException):
        return reasons.out_of_reach(where(attempt.hop), error.text)
    return _network(error, attempt)


def _network(error: Exception, attempt: Attempt) -> Reason:
    target = where(attempt.hop)
    if attempt.hop.proxy_command and is_worth_another_try(error):
        is_silent = isinstance(error.__context__, TimeoutError) or "No existing session" in str(error)
        return (
            reasons.no_answer(target, attempt.timeout_s)
            if is_silent
            else reasons.ended_early(f"its ProxyCommand `{attempt.hop.proxy_command}`")
        )
    if isinstance(error, SilentError):
        return reasons.no_ssh(target, attempt.timeout_s, "no answer")
    if isinstance(error, TimeoutError):
        return reasons.no_answer(target, attempt.timeout_s)
    if isinstance(error, ConnectionRefusedError):
        return reasons.closed_port(target)
    if isinstance(error, SSHException) and any(text in str(error) for text in _NO_BANNER):
        return reasons.no_ssh(target, attempt.timeout_s, str(error))
    if isinstance(error, SSHException) and "No authentication methods" in str(error):
        return _refused(
            attempt,
            "no private key is configured",
            f"Create one: ssh-keygen -t ed25519 and then {reasons.copying(attempt.hop)}; or name an existing one in "
            "SSH_IDENTITY_FILES, HOST_SETTINGS or your ssh config.",
        )
    if isinstance(error, EOFError | ConnectionResetError):
        return reasons.hung_up(target)
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return reasons.no_route(target, os.strerror(error.errno))
    kind = "" if type(error) is SSHException else f"{type(error).__name__}: "
    return Reason(f"{target}: {kind}{error}.")


def _changed_key(error: ChangedHostKeyError) -> Reason:
    same_type = [line for line in error.lines if line.key_type == error.key.get_name()]
    places = ", ".join(line.where for line in same_type or error.lines)
    return reasons.changed_key(fingerprint(error.key), places, bool(same_type))


def _refused(attempt: Attempt, why: str, hint: str = "") -> Reason:
    return reasons.refused(attempt.hop, "; ".join((why, *attempt.hop.missing_keys)), _keys(attempt), hint)


def _keys(attempt: Attempt) -> list[str]:
    return [*map(str, attempt.hop.keys), *["those of your ssh agent"] * bool(attempt.hop.agent)]
