# SPDX-License-Identifier: Apache-2.0
"""Parses the standard error of `ssh`: the progress of a login, and why it failed.

Before the login is complete, all lines are from `ssh`; afterwards its own lines end in CR LF, and others are from the
node. All lines are untrusted: their length is limited, and they are escaped before they are shown.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh import reasons
from paddle_cluster.ssh.reasons import Reason, where
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import dataclass, regex

KEPT_LINES = 40
LONGEST_LINE = 2000  # bytes
KEPT = 1000  # bytes of the node's output
DEBUG = "debug1: "

# Messages at the end of a session, and those after the loss of a server's transport, which reports its own reason.
_NOISE = regex(
    r"Authenticated to .*|Transferred: sent .*|Bytes per second: .*|Killed by signal 1\.|@+||"
    r".*: terminating, [0-9]+ bad configuration options|"
    r"(?:Connection closed by|Connection to) UNKNOWN port .*|"
    r"kex_exchange_identification: Connection closed by remote host|stdio forwarding failed"
)
_NO_KEY = regex(r"^No (\S+) host key is known for ", re.MULTILINE)
_PROXY_ENDED = regex(r".*UNKNOWN port 65535")
_BUSY = "Exceeded MaxStartups"
CONFIG_MISTAKE = r"^.+ line [0-9]+: .*$|^Can't open user config.*$"


@dataclass
class _Server:
    """The server that is being logged in to."""

    host: str = ""
    port: int = 22
    user: str = ""


class SshOutput:
    """A parser of the standard error of one `ssh` process, line by line.

    Attributes:
        is_logged_in: whether the node's command was requested.
        is_let_in: whether the last server accepted the user.
        own: the last lines of `ssh` itself and of the jump hosts, without uninformative ones.
    """

    def __init__(self) -> None:
        self.is_logged_in = False
        self.is_let_in = False
        self.own: deque[str] = deque(maxlen=KEPT_LINES)
        self.host_key = ""
        self.greeting = ""
        self.keys: list[str] = []
        self.has_accepted_key = False
        self.is_proxied = False
        self.target = ""
        self.proxy_ended = False
        self.over_master = False
        self.server = _Server()
        self._others = b""
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Parse further output of `ssh`, in chunks of any size."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE:]
        for line in lines:
            if line.endswith(b"\r") or not self.is_logged_in:
                self._take(line[-LONGEST_LINE:].rstrip(b"\r").decode("utf-8", "replace"))
            else:
                self._others = (self._others + line + b"\n")[-KEPT:]

    @property
    def lacks_key(self) -> bool:
        """Return whether `ssh` knows no host key of a server."""
        return any(_NO_KEY.search(line) for line in self.own)

    @property
    def others(self) -> str:
        """Return the last lines that are output of the node rather than messages of `ssh`."""
        return (self._others + self._rest).decode("utf-8", "replace").strip()

    @property
    def last(self) -> str:
        """Return the last informative line of `ssh`."""
        return visible(self.own[-1].removeprefix("ssh: ").rstrip(".")) if self.own else ""

    def _take(self, line: str) -> None:
        self.proxy_ended |= _PROXY_ENDED.fullmatch(line) is not None
        if not line.startswith(DEBUG):
            if not _NOISE.fullmatch(line):
                self.own.append(line)
            return
        for pattern, note in _FACTS:
            found = pattern.fullmatch(line, len(DEBUG))
            if found is not None:
                if isinstance(note, str):
                    setattr(self, note, found[1] if found.groups() else True)
                else:
                    note(self, *found.groups())
                return

    def _note_connecting(self, host: str, port: str) -> None:
        self.server = _Server(host, int(port))

    def _note_authenticating(self, host: str, port: str, user: str) -> None:
        self.server = _Server(host, int(port), user)
        self.host_key = ""
        self.keys, self.has_accepted_key, self.is_let_in = [], False, False

    def _note_offered(self, key: str) -> None:
        self.keys.append(key)


_FACTS: tuple[tuple[re.Pattern[str], Callable[..., None] | str], ...] = (
    (regex(r"Connecting to (\S+) \[.*\] port ([0-9]+)\."), SshOutput._note_connecting),
    (regex(r"Authenticating to (\S+):([0-9]+) as '(.*)'"), SshOutput._note_authenticating),
    (regex(r"Server host key: (.+)"), "host_key"),
    (regex(r"Offering public key: (.+?) [\w@.-]+ (?:SHA256|MD5):.*"), SshOutput._note_offered),
    (regex(r"Server accepts key: .*"), "has_accepted_key"),
    (regex(r"kex_exchange_identification: banner line 0: (.*)"), "greeting"),
    (regex(r"Executing proxy command: .*"), "is_proxied"),
    (regex(r"channel_connect_stdio_fwd: (.*)"), "target"),
    (regex(r"Entering interactive session\."), "is_let_in"),
    (regex(r"auto-mux: Trying existing master.*"), "over_master"),
    (regex(r"(?:Sending command: |.*master session id: ).*"), "is_logged_in"),
)
"""Message of `ssh` about a login -> the method that records it, or the attribute that it sets."""


@dataclass(frozen=True)
class FailedLogin:
    """A failed login with the user's `ssh`, as described in messages.

    Attributes:
        node: the node as the user wrote it.
        timeout_s: the timeout of a connection; limit_s: that of the whole login, if it has expired.
        known_hosts: the files of known host keys; new ones are added to the first.
    """

    node: str
    timeout_s: float
    limit_s: float | None = None
    known_hosts: Sequence[Path] = (reasons.KNOWN_HOSTS,)


def explain(output: SshOutput, attempt: FailedLogin) -> tuple[ConnectError, bool]:
    """Explain why a login failed, and return whether a busy server may be the cause."""
    text = "\n".join(output.own)
    reason, is_busy = _late(output, attempt), False
    for pattern, explain_match in _TABLE if reason is None else ():
        found = re.search(pattern, text, re.MULTILINE)
        if found is not None:
            reason = explain_match(output, attempt, found)
            break
    if reason is None:
        reason, is_busy = _hung_up(output, attempt)
    what = visible(reason.what)
    if output.last and output.last not in what:
        what = f"{what.removesuffix('.')} (ssh: {output.last})."
    if output.proxy_ended and output.server.host:
        user = f"{output.server.user}@" if output.server.user else ""
        what = f"jump host {user}{where(output.server)}: {what}"
    return ConnectError(attempt.node, what, visible(reason.hint), reason.outcome), is_busy


def unresolved_config(node: str, said: bytes) -> ConnectError:
    """Return the error for a node whose configuration `ssh -G` cannot resolve, given the output of `ssh`."""
    output = SshOutput()
    output.feed(said + b"\n")
    if not output.own:
        return explain(output, FailedLogin(node, 0.0))[0]
    own = [line.rstrip(".") for line in output.own]
    placed = next((line for line in own if re.search(r" line [0-9]+\b", line)), own[0])
    what = visible(placed if placed == own[0] else f"{placed} ({own[0]})")
    return ConnectError(node, f"cannot read the ssh config: {what}.", "Correct it; `ssh -G HOST` checks it.")


Found = re.Match[str]


def _late(output: SshOutput, attempt: FailedLogin) -> Reason | None:
    if attempt.limit_s is None:
        return None
    if output.over_master and not output.server.host:
        return Reason(
            f"no answer within {attempt.limit_s:g} s over the already open connection (ControlMaster).",
            "Close it with `ssh -O exit HOST`, and set ServerAliveInterval for it in your ssh config.",
        )
    if not output.server.host:
        return Reason(
            f"the login was not complete within {attempt.limit_s:g} s.",
            "Check the name servers (/etc/resolv.conf), and `Match exec` and ProxyCommand in your ssh config.",
        )
    if output.host_key and not output.is_let_in:
        return Reason(
            f"{where(output.server)} answers, but the authentication was not complete within {attempt.limit_s:g} s.",
            "Check that your ssh agent answers: ssh-add -l.",
        )
    return reasons.no_answer(where(output.server), attempt.limit_s)


def _unknown_key(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    own, *others = attempt.known_hosts
    return reasons.unknown_key(output.server, output.host_key or found[1], own, (own, *others))


def _changed_key(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    lines = re.findall(r"^Offending (\S+) key in (.+)$", "\n".join(output.own), re.MULTILINE)
    sent = re.search(r"^The fingerprint for the (\S+) key sent", "\n".join(output.own), re.MULTILINE)
    same = [place for kind, place in lines if sent is not None and kind == sent[1]]
    places = ", ".join(same or [place for _, place in lines]) or "known_hosts"
    return reasons.changed_key(output.host_key, places, bool(same) or not lines)


def _revoked_key(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    return reasons.revoked_key(output.host_key, "in known_hosts or RevokedHostKeys")


def _unchecked_key(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    return reasons.unchecked_key(output.host_key, found[1])


def _refused(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    methods = found[1]
    if "publickey" not in methods:
        return reasons.prompts(output.server, methods.split(","), output.keys, output.has_accepted_key)
    if output.has_accepted_key:
        why = "a private key is encrypted, or needs interaction to sign"
        return reasons.refused(output.server, why, output.keys, reasons.add_to_agent(output.keys))
    unread = re.search(r'^Load key "(.*)": (.*)$', "\n".join(output.own), re.MULTILINE)
    if unread and not output.keys:
        why = f"ssh cannot read the private key {unread[1]}: {unread[2]}"
        hint = (
            f"Check it with `ssh-keygen -yf {unread[1]}`; lines that end in CR LF need `sed -i "
            f"'s/\\r$//' {unread[1]}`."
        )
        return reasons.refused(output.server, why, output.keys, hint)
    return reasons.refused(output.server, f"it accepts {methods}", output.keys)


def _too_many(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    return reasons.refused(output.server, "too many keys for this server", output.keys, reasons.MANY_KEYS)


def _open_key(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    why = f"ssh ignores the private key {found[2]}, whose mode is {found[1]}"
    return reasons.refused(
        output.server, why, output.keys, f"Make it readable only by you: chmod 600 {found[2]}."
    )


def _config(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    if output.is_proxied:  # the configuration was read before; a shell reports its errors in the same form
        return _hung_up(output, attempt)[0]
    return Reason(
        f"cannot read the ssh config: {found[0].rstrip('.')}.", "Correct it; `ssh -G HOST` checks it."
    )


def _unresolved(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    return reasons.unresolved(found[1], found[2].rstrip("."))


def _out_of_reach(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    if not output.target:
        return Reason(
            f"{_place(output, attempt)} accepted the login but did not open a session: {found[1]}.",
            reasons.CHECK_SESSIONS,
        )
    output.proxy_ended = False  # the jump host is not the cause, or is named
    if "prohibited" in found[1]:
        return reasons.no_forwarding(f"{output.server.user}@{where(output.server)}", found[1])
    return reasons.out_of_reach(output.target or attempt.node, found[1])


def _silent(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    if output.is_proxied:
        return reasons.no_answer(_place(output, attempt), attempt.timeout_s)
    return reasons.no_ssh(where(output.server), attempt.timeout_s, "no answer")


def _not_connected(output: SshOutput, attempt: FailedLogin, found: Found) -> Reason:
    host, port, why = found.groups()
    if "timed out" in why:
        return reasons.no_answer(f"{host}:{port}", attempt.timeout_s)
    if "refused" in why:
        return reasons.closed_port(f"{host}:{port}")
    return reasons.no_route(f"{host}:{port}", why)


def _place(output: SshOutput, attempt: FailedLogin) -> str:
    """Return the server; the node, if only a ProxyCommand knows the server."""
    return where(output.server) if output.server.host else attempt.node


def _hung_up(output: SshOutput, attempt: FailedLogin) -> tuple[Reason, bool]:
    """Explain a connection that ended without a message about the cause."""
    if output.greeting and _BUSY not in output.greeting:
        why = f"it sent {output.greeting!r}"
        return reasons.no_ssh(_place(output, attempt), attempt.timeout_s, why), False
    if not output.server.host:
        by = "its ProxyCommand" if output.is_proxied else "ssh"
        return reasons.ended_early(by), output.is_proxied
    return reasons.hung_up(where(output.server)), not output.own or "Connection" in output.own[-1]


_TABLE: tuple[tuple[str, Callable[[SshOutput, FailedLogin, Found], Reason]], ...] = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", _changed_key),
    (r"is marked as revoked|was revoked and you|revoked by file ", _revoked_key),
    (r"^Error checking host key \S+ \S+ in revoked keys file (.*)$", _unchecked_key),
    (_NO_KEY.pattern, _unknown_key),
    (r"Too many authentication failures", _too_many),
    (r"^Permissions (\S+) for '(.*)' are too open\.$", _open_key),
    (r"Permission denied \((.*)\)\.$", _refused),
    (CONFIG_MISTAKE, _config),
    (r"Could not resolve hostname (\S+): (.*)$", _unresolved),
    (r"^channel 0: open failed: (.*)$", _out_of_reach),
    (r"connect to host (\S+) port ([0-9]+): (.*)$", _not_connected),
    (r"timed out during banner exchange", _silent),
)
"""Message of `ssh` -> its meaning; the first match counts."""
