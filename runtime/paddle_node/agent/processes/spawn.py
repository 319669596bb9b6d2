# SPDX-License-Identifier: Apache-2.0
"""Starts a child process with defined signals, descriptors, session and environment.

Needs a process without threads: Python code runs between fork and exec.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from typing import Dict, Optional, Sequence

from paddle_node.agent.processes import control_group
from paddle_node.linux.prctl import end_with_parent

FAILURE_LIMIT = 4096  # bytes that a pipe accepts in one write
START_LIMIT_S = 10.0  # a hung file system must not block the agent


def spawn(
    argv: Sequence[str],
    env: Dict[str, str],
    cwd: str,
    output: int,
    report: Optional[int] = None,
    limit_s: float = START_LIMIT_S,
    group: str = "",
) -> int:
    """Start a process in a new session, wait until its program runs, and return its pid.

    Args:
        argv: the program and its arguments, not interpreted by a shell; the program is searched in env's PATH.
        env: the complete environment.
        cwd: the working directory.
        output: the descriptor that becomes its standard output and error.
        report: a descriptor that the process inherits under the same number.
        limit_s: maximum time in seconds to wait until the program runs.
        group: the directory of the control group that the process joins, or empty.

    Raises:
        TimeoutError: the program did not run in time.
        OSError: the process could not be started; errno and text are those of the failing call.
        ValueError: argv or env contains a NUL byte.
    """
    for name, text in [("argv", part) for part in argv] + list(env.items()):
        if "\0" in name + text:
            raise ValueError("NUL byte in %s" % name.replace("\0", "?"))  # without the text: it may be secret
    parent = os.getpid()
    failure_read, failure_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(argv, env, cwd, output, report, parent, failure_write, group)
    os.close(failure_write)
    try:
        problem = _read_failure(failure_read, limit_s)
    finally:
        os.close(failure_read)
    if problem is not None:
        if isinstance(problem, TimeoutError):  # it hangs in the kernel; the loop reaps it later
            os.kill(pid, signal.SIGKILL)
            what = (
                "the process did not start within %g s; check that the file systems of %s and of %s respond"
            )
            raise TimeoutError(what % (limit_s, cwd, argv[0]))
        os.waitpid(pid, 0)
        raise problem
    return pid


def _become(
    argv: Sequence[str],
    env: Dict[str, str],
    cwd: str,
    output: int,
    report: Optional[int],
    parent: int,
    failure: int,
    group: str,
) -> None:
    """Run the program in the forked child; never return."""
    try:
        os.setsid()
        _reset_signals()
        end_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)
        if group:
            control_group.join(group)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if report is not None:
            os.set_inheritable(report, True)
        os.chdir(cwd)
        os.execvpe(argv[0], list(argv), env)  # noqa: S606 - no shell is what we want
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None) or errno.EINVAL
        name = getattr(error, "filename", None) or argv[0]
        os.write(failure, ("%d %s" % (number, name)).encode("utf-8", "replace")[:FAILURE_LIMIT])
    finally:
        os._exit(127)


def _reset_signals() -> None:
    # `sh script &` leaves SIGINT ignored and Python ignores SIGPIPE; an ignored signal would survive exec
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _read_failure(fd: int, limit_s: float) -> Optional[OSError]:
    if not select.select([fd], [], [], limit_s)[0]:
        return TimeoutError()
    text = os.read(fd, FAILURE_LIMIT).decode("utf-8", "replace")
    if not text:
        return None
    number, name = text.split(" ", 1)
    return OSError(int(number), os.strerror(int(number)), name)
