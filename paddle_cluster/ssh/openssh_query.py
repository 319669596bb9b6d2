# SPDX-License-Identifier: Apache-2.0
"""How `ssh` is called: its command line and the configuration before the user's own, and what `ssh -G HOST` resolves.

What conf.py says and what holds for every login stands in a configuration file, since that alone reaches the `ssh`
of jump hosts too; it includes the user's. For each option the first value counts.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pwd
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from paddle_cluster.config.hosts import Host, parse_host
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh.config_lines import SYSTEM_CONFIG
from paddle_cluster.ssh.config_reader import DEFAULT_KEYS, LISTS, Options
from paddle_cluster.ssh.openssh_words import not_looked_up
from paddle_node.linux.descriptors import memory_file

OLDEST = (8, 0)
ASK_S = 20.0  # for `ssh -G`, which runs the commands of `Match exec`
_VERSION = re.compile(r"OpenSSH_(?:\w+_)?([0-9]+)\.([0-9]+)")

_asking = threading.Lock()
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
    """Return the arguments that name the user and the host of a login."""
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


def is_usable() -> bool:
    """Whether PATH has an OpenSSH of 8.0 or newer, and this user an account, which it needs."""
    with contextlib.suppress(KeyError), _asking:  # one question, not one for each thread
        return bool(pwd.getpwuid(os.getuid())) and _is_new_enough(shutil.which(PROGRAM) or "")
    return False


@functools.cache
def _is_new_enough(path: str) -> bool:
    if not path:
        return False
    try:
        done = subprocess.run([path, "-V"], stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = _VERSION.search((done.stderr + done.stdout).decode("utf-8", "replace"))
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST


def ask(words: Sequence[str], about: str) -> Options:
    """Return the output of `ssh -G`: each option in lower case with its values.

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
        raise not_looked_up(about, done.stderr)
    return found


def _file_names(printed: str) -> Iterator[str]:
    """Return the names of a list, printed without quotes and separated by spaces."""
    for name in re.split(r" (?=[/~%$])", printed):
        yield from [name] if name[:1] in "/~%$" else name.split()


def readable(text: str) -> AbstractContextManager[str]:
    """Return the path of a file with this text, which exists inside the context."""
    return memory_file("ssh_config", text.encode("utf-8", "surrogateescape"))


def not_started(node: str, error: OSError | subprocess.TimeoutExpired) -> ConnectError:
    """Return the error if `ssh` did not start, or did not finish."""
    if isinstance(error, FileNotFoundError):
        return ConnectError(
            node,
            'SSH_CLIENT is "openssh" in conf.py, but `ssh` is not in PATH.',
            "Install OpenSSH's client (openssh-client), or remove SSH_CLIENT.",
        )
    if isinstance(error, subprocess.TimeoutExpired):
        return ConnectError(
            node,
            f"`ssh -G`, which resolves the ssh config, did not end within {ASK_S:g} s.",
            "See `Match exec` in your ssh config.",
        )
    return ConnectError(node, f"cannot run ssh: {error}.", "Check `command -v ssh`, the first one in PATH.")
