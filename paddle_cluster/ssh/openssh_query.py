# SPDX-License-Identifier: Apache-2.0
"""Runs `ssh -G HOST` to resolve the ssh configuration."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence

from paddle_cluster.errors import ConnectError
from paddle_cluster.ssh.config_reader import LISTS, Options
from paddle_cluster.ssh.openssh_options import PROGRAM
from paddle_cluster.ssh.openssh_words import not_looked_up

OLDEST = (8, 0)
ASK_S = 20.0  # for `ssh -G`, which runs the commands of `Match exec`
_VERSION = re.compile(r"OpenSSH_(?:\w+_)?([0-9]+)\.([0-9]+)")

_asking = threading.Lock()


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


@contextlib.contextmanager
def readable(text: str) -> Iterator[str]:
    """Yield the path of a file with this text that exists as long as this process."""
    fd = os.memfd_create("ssh_config")
    try:
        os.write(fd, text.encode("utf-8", "surrogateescape"))
        yield f"/proc/{os.getpid()}/fd/{fd}"
    finally:
        os.close(fd)


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
