# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the launcher, each with its exit code.

Errors carry data (node, address, path); only `cli` turns them into an exit code and a final screen.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of paddle.py, as in the table of docs/command-line.md."""

    DONE = 0
    PROCESS_FAILED = 1
    USAGE = 2
    PREFLIGHT = 3
    DISPATCH = 4
    LOST = 5
    NOT_CLEAN = 7
    HANGUP = 129
    INTERRUPTED = 130
    QUIT = 131
    TERMINATED = 143


def as_exit_code(code: int) -> ExitCode:
    """Convert a job's exit code to the exit code of a command that follows the job."""
    try:
        return ExitCode(code)
    except ValueError:
        return ExitCode.PROCESS_FAILED


class LauncherError(Exception):
    """Base class of all errors that the launcher explains to its user.

    Attributes:
        exit_code: the launcher's exit code when this error ends the job.
    """

    exit_code: ExitCode = ExitCode.PROCESS_FAILED


class AnswerLost(LauncherError):
    """Raised when a command's output cannot be written, for example because the disk is full."""


class UsageError(LauncherError):
    """Raised when the command line is invalid; no connection was made."""

    exit_code = ExitCode.USAGE


class WorkspaceHeldError(UsageError):
    """Raised when another job collects files into the same workspace.

    Attributes:
        holder: the other job's ID and launcher, as recorded in the lock; or "another job".
    """

    def __init__(self, holder: str, message: str) -> None:
        super().__init__(message)
        self.holder = holder


class ConfError(LauncherError):
    """Raised when conf.py is invalid; no connection was made.

    Attributes:
        where: `file:line` of the faulty assignment, or only the file.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where


class WorkspaceError(LauncherError):
    """Raised when the workspace contains an item that cannot be sent; no connection was made."""

    exit_code = ExitCode.USAGE


class ConnectError(LauncherError):
    """Raised when a node cannot be reached or rejects the login.

    Attributes:
        node: the host as the user wrote it.
        reason: one sentence: what happened.
        hint: one sentence: what to do next, or empty.
        outcome: the result in a word or two, for tables.
    """

    exit_code = ExitCode.PREFLIGHT

    def __init__(self, node: str, reason: str, hint: str = "", outcome: str = "no answer") -> None:
        super().__init__(f"{node}: {reason}" + (f" {hint}" if hint else ""))
        self.node = node
        self.reason = reason
        self.hint = hint
        self.outcome = outcome


class PreflightError(LauncherError):
    """Raised when a preflight check fails on one or several nodes; nothing was changed."""

    exit_code = ExitCode.PREFLIGHT


class ThreadLimitError(LauncherError):
    """Raised when this machine refuses to start another thread for the launcher."""

    exit_code = ExitCode.PREFLIGHT

    def __init__(self) -> None:
        import resource

        limits = {
            name: resource.getrlimit(number)[0] >> shift
            for name, number, shift in (("-u", resource.RLIMIT_NPROC, 0), ("-v", resource.RLIMIT_AS, 10))
            if resource.getrlimit(number)[0] != resource.RLIM_INFINITY
        }
        given = " and ".join(f"`ulimit {name}` is {limit}" for name, limit in limits.items())
        super().__init__(
            f"the launcher's machine does not allow any more threads ({given or 'pids.max of its cgroup is reached'}); "
            "raise the limit, or use fewer hosts at once"
        )

    @staticmethod
    def is_cause(error: BaseException) -> bool:
        """Return whether an error of `Thread.start` means that this machine refuses another thread."""
        return isinstance(error, RuntimeError) and "start new thread" in str(error)


class NodeError(LauncherError):
    """Base class of errors of one node after its login.

    Attributes:
        node: the host as the user wrote it.
    """

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node


class DispatchError(NodeError):
    """Raised when the workspace or the runtime cannot be transferred to a node."""

    exit_code = ExitCode.DISPATCH


class ProtocolError(NodeError):
    """Raised when an agent violates the protocol."""

    exit_code = ExitCode.LOST
