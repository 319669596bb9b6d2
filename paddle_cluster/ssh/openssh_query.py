# SPDX-License-Identifier: Apache-2.0
"""The command lines of `ssh`: the configuration that precedes the user's own, and queries with `ssh -G HOST`.

The settings of conf.py and of every login are in a configuration file, since only that also reaches the `ssh` of jump
hosts; it includes the user's file. The first value of each option counts.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pwd
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from paddle_cluster.config.hosts import Host, parse_host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.config.values import home
from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh.config_lines import SYSTEM_CONFIG
from paddle_cluster.ssh.config_reader import DEFAULT_KEYS, LISTS, Options
from paddle_cluster.ssh.openssh_messages import unresolved_config
from paddle_cluster.ssh.reasons import KNOWN_HOSTS
from paddle_node.contract.classes import regex
from paddle_node.linux.descriptors import memory_file

OLDEST = (8, 0)
ASK_S = 20.0  # seconds for `ssh -G`, which runs the commands of `Match exec`
_VERSION = regex(r"OpenSSH_(?:\w+_)?([0-9]+)\.([0-9]+)")

_asking = threading.Lock()
PROGRAM = "ssh"

# A server that is silent this long counts as lost; `ssh` then exits, even if the launcher no longer exists.
ALIVE_S = 10
ALIVE_COUNT = 2

# As for scp and sftp: a session for a program, not a person; nothing is forwarded, and no other command is run.
_SESSION = ("-T", "-x", "-a", "-e", "none")
_ALONE = ("ClearAllForwardings=yes", "PermitLocalCommand=no", "RemoteCommand=none")
_OF_8_7 = ("SessionType=default", "ForkAfterAuthentication=no", "StdinNull=no")


def config_text(settings: SshSettings, is_fresh: bool) -> str:
    """Return an ssh_config for all logins of a job, including those at jump hosts.

    Args:
        is_fresh: whether to avoid an existing connection (ControlPath): it may be the one that was lost.
    """
    return "".join(f"{line}\n" for line in _lines(settings, is_fresh))


def _lines(settings: SshSettings, is_fresh: bool) -> Iterator[str]:
    yield "BatchMode yes"
    yield f"StrictHostKeyChecking {'accept-new' if settings.accept_new_host_keys else 'yes'}"
    yield "UpdateHostKeys no"  # otherwise many processes would rewrite known_hosts at the same time
    yield f"ConnectTimeout {math.ceil(settings.connect_timeout_s)}"
    yield f"ServerAliveInterval {ALIVE_S}"
    yield f"ServerAliveCountMax {ALIVE_COUNT}"
    yield "VisualHostKey no"  # a picture would be taken for the reason of a failure
    yield "LogLevel DEBUG1"  # reports the server, the keys offered, and the end of the login
    if is_fresh:
        yield "ControlPath none"
    if settings.known_hosts != KNOWN_HOSTS:
        yield f"UserKnownHostsFile {_quoted(settings.known_hosts)}"
    for path in settings.identity_files:
        yield f"IdentityFile {_quoted(path)}"
    yield from included(settings.config)
    if settings.identity_files or settings.host_keys:  # otherwise named ones would be tried instead of these
        for name in DEFAULT_KEYS:
            if (path := home() / ".ssh" / name).is_file():
                yield f"IdentityFile {_quoted(path)}"


def argv(settings: SshSettings, config: str, host: Host, *command: str, jump: str) -> list[str]:
    """Return the command line that runs a command on a node, or only logs in.

    Args:
        config: the path of a file with `config_text`.
        command: one text for the shell on the node.
        jump: the jump hosts, in the form of SSH_JUMP, or empty for the ssh config's.
    """
    words = [PROGRAM, "-F", config, *_SESSION]
    has_session_options = _version(os.environ.get("PATH")) >= (8, 7)
    for option in (*_ALONE, *(_OF_8_7 if has_session_options else ()), *jump_option(jump, host)):
        words += ["-o", option]
    own = settings.key_of(host)
    if own is not None:
        words += ["-i", str(own).replace("%", "%%")]
    return [*words, *destination(host), *command]


def destination(host: Host) -> list[str]:
    """Return the arguments that name the user and the host of a login."""
    words = ["-l", host.user] if host.user else []
    words += ["-p", str(host.port)] if host.port else []
    return [*words, "--", host.name]


def jump_option(jump: str, host: Host) -> Iterator[str]:
    """Yield the option that replaces the configuration's jump hosts with SSH_JUMP, if set."""
    if not jump:
        return
    before = []
    for text in jump.split(","):
        hop = parse_host(text)
        if (hop.name, hop.port) == (host.name, host.port):
            break  # a jump host that is itself a node
        before.append(hop.describe())
    yield f"ProxyJump={','.join(before) or 'none'}"


def included(config: Path) -> Iterator[str]:
    """Yield lines that include the user's and the system's configuration as `ssh` does without `-F`."""
    for name in (config.absolute(), SYSTEM_CONFIG):  # a relative path would be searched in ~/.ssh
        yield f'Include "{name}"'
        yield "Host *"  # ends any section at the end of the file


def _quoted(path: Path) -> str:
    """Return a path as an option's value, with its percent signs escaped."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


def is_usable() -> bool:
    """Return whether PATH has OpenSSH 8.0 or newer, and this user has an account, which `ssh` needs."""
    with contextlib.suppress(KeyError), _asking:  # one query, not one per thread
        return bool(pwd.getpwuid(os.getuid())) and _version(os.environ.get("PATH")) >= OLDEST
    return False


@functools.cache
def _version(path: str | None) -> tuple[int, int]:
    """Return the version of `ssh` in the PATH of this process, the key of the cache; (0, 0) if it is unknown."""
    try:
        done = subprocess.run([PROGRAM, "-V"], stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S)
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    found = _VERSION.search((done.stderr + done.stdout).decode("utf-8", "replace"))
    return (int(found[1]), int(found[2])) if found is not None else (0, 0)


def ask(words: Sequence[str], about: str) -> Options:
    """Run `ssh -G` and return the resolved options: each name in lower case with its values.

    Args:
        words: the arguments of `ssh`.
        about: the node, for messages.

    Raises:
        ConnectError: the configuration cannot be used; the error names the file and the line.
    """
    try:
        done = subprocess.run(
            [PROGRAM, "-G", *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise not_started(about, error) from error
    found: Options = {}
    for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).extend(_file_names(value) if name in LISTS else [value])
    if done.returncode or "hostname" not in found:
        raise unresolved_config(about, done.stderr)
    return found


def _file_names(printed: str) -> Iterator[str]:
    """Return the names of a list, printed without quotes and separated by spaces."""
    for name in re.split(r" (?=[/~%$])", printed):
        yield from [name] if name[:1] in "/~%$" else name.split()


def readable(text: str) -> AbstractContextManager[str]:
    """Write a text to a file that exists inside the returned context, which yields the file's path."""
    return memory_file("ssh_config", text.encode("utf-8", "surrogateescape"))


def not_started(node: str, error: OSError | subprocess.TimeoutExpired) -> ConnectError:
    """Return the error for an `ssh` that did not start or did not finish."""
    if isinstance(error, FileNotFoundError):
        return ConnectError(
            node,
            'SSH_CLIENT is "openssh" in conf.py, but `ssh` is not in PATH.',
            "Install OpenSSH's client (openssh-client), or remove SSH_CLIENT.",
        )
    if isinstance(error, subprocess.TimeoutExpired):
        return ConnectError(
            node,
            f"`ssh -G`, which resolves the ssh config, did not finish within {ASK_S:g} s.",
            "Check `Match exec` in your ssh config.",
        )
    return ConnectError(node, f"cannot run ssh: {error}.", "Check `command -v ssh`, the first one in PATH.")
