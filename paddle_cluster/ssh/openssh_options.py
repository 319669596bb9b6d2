# SPDX-License-Identifier: Apache-2.0
"""How `ssh` is called: its command line for a node, and the configuration that goes before the user's own. Pure.

What conf.py says and what holds for every login stands in a configuration file, since that alone reaches the `ssh`
of jump hosts too; it includes the user's. For each option the first value counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from paddle_cluster.config.hosts import Host, parse_host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.ssh.config_lines import SYSTEM_CONFIG
from paddle_cluster.ssh.host_config import DEFAULT_KEYS

PROGRAM = "ssh"
USER_KNOWN_HOSTS = "~/.ssh/known_hosts"

# A server that is silent for so long has gone; then `ssh` ends, even where nobody is left to end it.
ALIVE_S = 10
ALIVE_COUNT = 2

# As scp and sftp have it: a session for a program and no person; nothing is forwarded, nothing else is run.
_SESSION = ("-T", "-x", "-a", "-e", "none")
_ALONE = ("ClearAllForwardings=yes", "PermitLocalCommand=no", "RemoteCommand=none")


def config_text(settings: SshSettings, is_fresh: bool) -> str:
    """An ssh_config for all logins of a job, those at jump hosts too.

    Args:
        is_fresh: over no connection that is there already (ControlPath): it may be the one that was lost.
    """
    return "".join(f"{line}\n" for line in _lines(settings, is_fresh))


def _lines(settings: SshSettings, is_fresh: bool) -> Iterator[str]:
    yield "BatchMode yes"
    yield f"StrictHostKeyChecking {'accept-new' if settings.accept_new_host_keys else 'yes'}"
    yield "UpdateHostKeys no"  # many at once would each write known_hosts anew
    yield f"ConnectTimeout {math.ceil(settings.connect_timeout_s)}"
    yield f"ServerAliveInterval {ALIVE_S}"
    yield f"ServerAliveCountMax {ALIVE_COUNT}"
    yield "LogLevel DEBUG1"  # says who is being logged in to, with which keys, and when that is done
    if is_fresh:
        yield "ControlPath none"
    if settings.known_hosts != Path(USER_KNOWN_HOSTS).expanduser():
        yield f"UserKnownHostsFile {_quoted(settings.known_hosts)}"
    for path in settings.identity_files:
        yield f"IdentityFile {_quoted(path)}"
    yield from included(settings.config)
    if settings.identity_files or settings.host_keys:  # named ones would else be tried in the place of these
        for name in DEFAULT_KEYS:
            if (path := Path.home() / ".ssh" / name).is_file():
                yield f"IdentityFile {_quoted(path)}"


def argv(settings: SshSettings, config: str, host: Host, *command: str, jump: str) -> list[str]:
    """What runs a command on a node, or nothing but a login.

    Args:
        config: the path of a file with `config_text`.
        command: one text for the shell there.
        jump: jump hosts for it, as SSH_JUMP has them, or empty: what the ssh config says.
    """
    words = [PROGRAM, "-F", config, *_SESSION]
    for option in (*_ALONE, *jump_option(jump, host)):
        words += ["-o", option]
    own = settings.key_of(host)
    if own is not None:
        words += ["-i", str(own).replace("%", "%%")]
    return [*words, *destination(host), *command]


def destination(host: Host) -> list[str]:
    """Arguments that say who logs in where."""
    words = ["-l", host.user] if host.user else []
    words += ["-p", str(host.port)] if host.port else []
    return [*words, "--", host.name]


def jump_option(jump: str, host: Host) -> Iterator[str]:
    """The option that has SSH_JUMP in the place of the configuration's jump hosts, if there is one."""
    if not jump:
        return
    before = []
    for text in jump.split(","):
        hop = parse_host(text)
        if (hop.name, hop.port) == (host.name, host.port):
            break  # a jump host that is a node itself
        before.append(hop.describe())
    yield f"ProxyJump={','.join(before) or 'none'}"


def included(config: Path) -> Iterator[str]:
    """Lines that read the user's configuration and the system's as `ssh` does without `-F`."""
    for name in (config.absolute(), SYSTEM_CONFIG):  # a relative one would be sought in ~/.ssh
        yield f'Include "{name}"'
        yield "Host *"  # whatever section the file ended with


def _quoted(path: Path) -> str:
    """A path as an option's value, without the %-forms that it would have there."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'
