# SPDX-License-Identifier: Apache-2.0
"""The texts with which both SSH clients explain why a login to a node failed and what to do about it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from paddle_cluster.config.values import home
from paddle_node.contract.classes import NamedTuple

MANY_KEYS = (
    "Keep only the right key in SSH_IDENTITY_FILES of conf.py, whose keys are tried first. If it is not set, name the "
    "right key in your ssh config, with `IdentitiesOnly yes`."
)
CHECK_SESSIONS = "Check MaxSessions of sshd there."
UNKNOWN_KEY = "host key unknown"
KNOWN_HOSTS = home() / ".ssh/known_hosts"
OPENSSH = 'Set SSH_CLIENT = "openssh" in conf.py to use your own `ssh`'


class Reason(NamedTuple):
    """The explanation of a failed login: what happened, what to do next (or ""), and a short outcome for tables."""

    what: str
    hint: str = ""
    outcome: str = "no answer"


class Login(Protocol):
    """The interface of a login for messages: its user and server."""

    @property
    def user(self) -> str:
        """The user on the server; empty if unknown."""

    @property
    def host(self) -> str:
        """The server's name or address."""

    @property
    def port(self) -> int:
        """The port of the SSH server."""


def where(login: Login) -> str:
    """Return the server of a login as "host:port", for messages."""
    return f"{login.host}:{login.port}"


def unknown_key(login: Login, key: str, known_hosts: Path, files: Sequence[Path] = ()) -> Reason:
    """Explain that known_hosts has no key for the host, and give the fingerprint of the presented key.

    Args:
        known_hosts: the file to which new keys are added.
        files: all files that were read, if known.
    """
    options = "" if login.port == 22 else f"-p {login.port} "
    if known_hosts != KNOWN_HOSTS:
        options += f"-o UserKnownHostsFile={shlex.quote(str(known_hosts))} "
    if str(known_hosts) == os.devnull:
        return Reason(
            f"its host key is not known: {key}. Host keys are not stored (UserKnownHostsFile {known_hosts}).",
            "StrictHostKeyChecking has no effect here: give --accept_new_host_keys, which accepts all new keys, or "
            "name a file as SSH_KNOWN_HOSTS in conf.py.",
            UNKNOWN_KEY,
        )
    found = [str(path) for path in files if path.exists()]
    read = f" ({', '.join(found) or f'{files[0]} does not exist'})" if files else ""
    return Reason(
        f"its host key is not in known_hosts{read}: {key}.",
        "Compare it with the output of `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on "
        f"that machine. Then accept it with `ssh {options}{login.user}@{login.host} true`, or "
        "accept all new keys with --accept_new_host_keys.",
        UNKNOWN_KEY,
    )


def certified(key: str, place: str) -> Reason:
    """Explain that known_hosts has an authority for the host, but no key."""
    return Reason(
        f"its host key {key} is certified by the authority at {place}, which the default client cannot check.",
        f"{OPENSSH}, which checks host certificates, or add the key itself to known_hosts.",
        UNKNOWN_KEY,
    )


def changed_key(sent: str, places: str, is_same_type: bool) -> Reason:
    """Explain that known_hosts has different keys for the host, at these positions."""
    if not is_same_type:
        return Reason(
            f"its host key {sent} is not known; {places} has a key of a different type.",
            "If the key is correct, add it to known_hosts by hand.",
            UNKNOWN_KEY,
        )
    path, _, line = places.rpartition(":")
    how = f" (sed -i {line}d {shlex.quote(path)})" if line.isdecimal() and "," not in path else ""
    return Reason(
        f"ITS HOST KEY HAS CHANGED: it sent {sent}, which is not the key at {places}.",
        f"Someone may be intercepting the connection. If the machine was reinstalled, remove that line{how} and run "
        "again with --accept_new_host_keys.",
        "host key changed",
    )


def revoked_key(key: str, place: str) -> Reason:
    """Explain that known_hosts marks the key as @revoked."""
    return Reason(f"its host key {key} is revoked {place}.", "Do not log in there.", "host key revoked")


def unchecked_key(key: str, why: str) -> Reason:
    """Explain that the file of revoked keys cannot be read."""
    return Reason(
        f"its host key {key} cannot be compared with RevokedHostKeys: {why}.",
        f"Correct RevokedHostKeys in your ssh config; binary lists need your own `ssh`: {OPENSSH}.",
        UNKNOWN_KEY,
    )


def add_to_agent(keys: Sequence[str]) -> str:
    """Return the advice for an encrypted key that may be one of these files."""
    return f"Add it to your ssh agent: ssh-add {keys[0] if len(keys) == 1 else 'KEY'}."


def copying(login: Login, keys: Iterable[str] = ()) -> str:
    """Return the command that adds the user's public key, that of the first of these files if any, to a login."""
    key = next((f"-i {shlex.quote(one)} " for one in keys if os.path.exists(f"{one}.pub")), "")
    port = "" if login.port == 22 else f"-p {login.port} "
    return f"ssh-copy-id {key}{port}{f'{login.user}@' if login.user else ''}{login.host}"


def refused(login: Login, why: str, keys: Iterable[str], hint: str = "") -> Reason:
    """Explain that the server accepted none of the keys."""
    keys = list(keys)
    at = f"{login.user}@" if login.user else ""
    rule = "PermitRootLogin prohibit-password in its sshd_config must allow root, or log in as another user"
    if login.user != "root":
        rule = "AllowUsers and AllowGroups in its sshd_config must not exclude the user"
    return Reason(
        f"authentication refused for {at}{login.host} ({why}), keys tried: {', '.join(keys) or 'none'}.",
        hint
        or (
            f"If the user is correct, add a public key to its ~/.ssh/authorized_keys: {copying(login, keys)}. If the "
            "key is already there, remove other users' write permission, which makes sshd ignore the file: chmod go-w "
            f"~ ~/.ssh ~/.ssh/authorized_keys. {rule}; the login shell must exist."
        ),
        "login refused",
    )


def prompts(login: Login, methods: Iterable[str], keys: Iterable[str], has_accepted_key: bool) -> Reason:
    """Explain that the server also, or only, accepts methods that ask the user."""
    if has_accepted_key:
        return refused(
            login,
            f"after the key, it requires {' or '.join(methods)}",
            keys,
            "The launcher answers no prompts: remove this requirement for your key (AuthenticationMethods of sshd), "
            'or log in yourself and let jobs use that connection (SSH_CLIENT = "openssh" with ControlMaster).',
        )
    return refused(
        login,
        f"it accepts only {', '.join(methods) or 'nothing'}",
        keys,
        "The launcher never asks for passwords: let sshd there accept public keys (PubkeyAuthentication).",
    )


def unresolved(host: str, why: str) -> Reason:
    """Explain that the host name cannot be resolved."""
    return Reason(
        f"cannot resolve {host}: {why}.",
        "Correct the name in HOSTS, SSH_JUMP or your ssh config, or write an address; "
        f"`getent hosts {host}` checks a name.",
    )


def out_of_reach(target: str, why: str) -> Reason:
    """Explain that the login to a jump host succeeds, but the node cannot be reached from it."""
    return Reason(
        f"the preceding jump host cannot reach {target}: {why}.",
        "Check that the node is up and that sshd listens there.",
    )


def no_forwarding(target: str, why: str) -> Reason:
    """Explain that the login to a jump host succeeds, but it does not forward connections to nodes."""
    return Reason(
        f"its jump host {target} does not forward connections: {why}.",
        "Check AllowTcpForwarding, PermitOpen and DisableForwarding of its sshd, and its authorized_keys "
        "(restrict, no-port-forwarding).",
    )


def nothing_in_common(target: str, kind: str, offered: Iterable[str]) -> Reason:
    """Explain that the server offers only algorithms that the default client does not support."""
    return Reason(
        f"{target} offers only {kind} that the default client does not support, or your ssh config excludes: "
        f"{', '.join(offered)}.",
        f"{OPENSSH}.",
    )


def no_answer(target: str, limit_s: float) -> Reason:
    """Explain that the server sent no answer in time."""
    return Reason(f"no answer from {target} within {limit_s:g} s.", "Check that the node is up.")


def closed_port(target: str) -> Reason:
    """Explain that no process listens on the port."""
    return Reason(
        f"{target} refuses connections.",
        "Check that sshd is running there, and which port it listens on: user@host:2222, or Port in ~/.ssh/config. "
        "The host local is this machine without sshd.",
    )


def no_ssh(target: str, limit_s: float, why: str) -> Reason:
    """Explain that the port accepts connections but does not speak SSH, or the server is overloaded."""
    return Reason(
        f"{target} accepts connections, but sent no SSH greeting within {limit_s:g} s: {why}.",
        "Check the port, and that sshd there is not overloaded (MaxStartups).",
    )


def hung_up(target: str) -> Reason:
    """Explain that the server closed the connection before the login was complete."""
    return Reason(f"{target} closed the connection during the login.", "Check sshd's log there.")


def ended_early(program: str) -> Reason:
    """Explain that the program that provides the connection exited."""
    return Reason(
        f"{program} exited before the login was complete.",
        "Run it by itself: it prints why.",
    )


def no_route(target: str, why: str) -> Reason:
    """Explain that the kernel has no route."""
    return Reason(f"{target}: {why}.", "Check the node's address and your routes.")
