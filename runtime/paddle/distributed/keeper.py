# SPDX-License-Identifier: Apache-2.0
"""The supervisor of one launch: the user's process has one child, the keeper, which runs the workers.

The keeper starts the workers, waits for them, and stops the remaining ones; it is detached from the terminal. Each
event is a byte on one of two sockets: a child exited, or the user's process wants the keeper to stop or has exited. The
first worker that fails ends the launch; the servers are stopped when all trainers are done. If either of the two
processes is killed, the other one inherits the orphans and stops everything. If both are killed, the kernel kills the
workers.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from paddle_node.contract.classes import dataclass, field
from paddle_node.linux import process_tree
from paddle_node.linux.prctl import become_subreaper, end_with_parent

KILL_S = 5.0  # how long killed processes may take to disappear
AGAIN_S = 0.2  # until a second signal to processes that were just being started or that had children in the meantime
DONE, FAILED, ABANDONED = 0, 1, 1
GRACE_S = 10.0  # between TERM and KILL
LONELY_S = 2.0  # the same after the parent process was killed, when a quick end is expected

DRAIN = signal.SIGUSR1
LOG_LINES, LOG_BYTES = 20, 16384  # maximum part of the log of a failed process that is shown to the user
SERVERS_S = 2.0  # servers exit on their own when all trainers have reported their end
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_MARGIN_S = 5.0


@contextlib.contextmanager
def signals_on_socket(numbers: Sequence[signal.Signals]) -> Iterator[socket.socket]:
    """Return a context in which signals are delivered as bytes with their numbers. Only for the main thread.

    Signals that are ignored, such as HUP under `nohup`, stay ignored, except for CHLD, which reports exits of children.
    """
    ours, python = socket.socketpair()
    ours.setblocking(False)
    python.setblocking(False)
    heard = [
        number
        for number in numbers
        if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, _noted) for number in heard}
    descriptor = signal.set_wakeup_fd(python.fileno(), warn_on_full_buffer=False)
    try:
        yield ours
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        ours.close()
        python.close()


def take(place: socket.socket) -> bytes:
    """Return the bytes that have arrived at a non-blocking socket; b"" if there are none."""
    try:
        return place.recv(4096)
    except BlockingIOError:
        return b""


def _noted(number: int, frame: object) -> None:
    """Do nothing: Python itself writes the number to the socket."""


def reap() -> tuple[dict[int, int], bool]:
    """Return the exit codes of exited children by process ID (negative for a signal), and whether others remain."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = os.waitstatus_to_exitcode(status)


def has_children() -> bool:
    """Return whether any descendant of this process remains.

    This process adopts orphans, so every descendant is below one of its children.
    """
    _, others = reap()
    return others


def how(code: int) -> str:
    """Describe an exit code: "exit code 3", or "killed by SIGTERM" for a negative one."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}" + (" (possibly out of memory)" if -code == signal.SIGKILL else "")


def send_to_all(*numbers: signal.Signals, but: Collection[int] = ()) -> set[int]:
    """Send signals to all descendants; return their process IDs.

    Args:
        but: processes to omit.
    """
    below = [one for one in _below() if one.pid not in but]
    for one in below:
        with contextlib.suppress(PermissionError):
            for number in numbers:
                process_tree.send(one, number)
    return {one.pid for one in below}


def _below() -> list[process_tree.FoundProcess]:
    """Return the living descendants of this process, found by parent IDs, never by name."""
    return process_tree.members({}, os.getpid()) if sys.platform == "linux" else []


def kill_all(alarms: socket.socket) -> list[int]:
    """Kill all descendants and return the processes that did not exit within KILL_S.

    Args:
        alarms: a socket that receives a byte whenever a child exits.
    """
    deadline = time.monotonic() + KILL_S
    while has_children():
        left = deadline - time.monotonic()
        if left <= 0:
            return [one.pid for one in _below()]
        send_to_all(signal.SIGKILL)
        select.select([alarms], [], [], min(AGAIN_S, left))
        take(alarms)
    return []


@dataclass(frozen=True)
class Worker:
    """A process to start and supervise.

    Attributes:
        name: "trainer 3", "pserver 0".
        env: the complete environment, which may contain secrets and is never shown.
        log: the file for its stdout and stderr; None means it inherits those of the keeper.
        is_server: whether the worker is a server, which is stopped when the other workers are done.
        drains: whether other nodes also use this server: it then receives USR1, and exits when no trainer needs it.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    log: Path | None
    is_server: bool = False
    drains: bool = False


def dying_with(parent: int, blocked: Collection[signal.Signals] = ()) -> Callable[[], None]:
    """Return a function that a child runs between fork and exec, so that the kernel kills it when its parent dies.

    Args:
        parent: the process ID of the parent, which may be this process.
        blocked: signals that stay pending until the program unblocks them.
    """

    def tie() -> None:
        end_with_parent(signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        if os.getppid() != parent:  # the parent exited before the tie existed
            os._exit(1)

    return tie


class Keeper:
    """Supervises several workers until all have exited.

    Args:
        orders: a socket: each byte is the number of a signal that asks for a stop; end of file means that the user's
            process has exited.
        alarms: the signals of this process as bytes.
        say: prints one line for the user.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        orders: socket.socket,
        alarms: socket.socket,
        say: Callable[[str], None],
    ) -> None:
        self._workers = workers
        self._orders = orders
        self._alarms = alarms
        self._say = say
        self._running: dict[int, Worker] = {}
        self._places = [alarms, orders]
        self._signalled: set[int] = set()

    def run(self) -> int:
        """Start the workers and supervise them until all have exited; return the launch's exit code."""
        try:
            self._start()
        except OSError as error:
            self._say(f"cannot start a process: {error}")
            code = FAILED
        else:
            code = self._watch()
        if code == DONE:
            code = self._end_servers()
        self._end()
        return code

    def _start(self) -> None:
        for worker in self._workers:
            tie = dying_with(os.getpid(), (DRAIN,) if worker.drains else ())
            log = None if worker.log is None else worker.log.open("wb")
            try:
                process = subprocess.Popen(
                    worker.argv,
                    env=worker.env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=None if log is None else subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=tie,
                )
            finally:
                if log is not None:
                    log.close()
            process.returncode = 0  # this process is reaped here, not by its object
            self._running[process.pid] = worker

    def _watch(self) -> int:
        """Wait until a worker fails, all trainers are done, or a stop is requested."""
        while True:
            if self._tell_failures(self._ended()):
                return FAILED
            if all(worker.is_server for worker in self._running.values()):
                return DONE
            order = self._wait(None)
            if order is not None:
                return 128 + order if order else ABANDONED

    def _end_servers(self) -> int:
        """Wait for servers to exit on their own; a failure of one counts.

        Servers that drain may take any time, since trainers of other nodes may still need them.
        """
        draining = [pid for pid, worker in self._running.items() if worker.drains]
        for pid in draining:
            os.kill(pid, DRAIN)  # ended processes are not reaped yet: no ID has been reused
        deadline = None if draining else time.monotonic() + SERVERS_S
        while self._running and (deadline is None or time.monotonic() < deadline):
            order = self._wait(deadline)
            if order is not None:
                return 128 + order if order else ABANDONED
            if self._tell_failures(self._ended()):
                return FAILED
        return DONE

    def _end(self) -> None:
        """Send TERM, wait for the grace period or a second stop request, and send KILL, until no descendant remains."""
        deadline = time.monotonic() + (GRACE_S if self._orders in self._places else LONELY_S)
        while has_children() and time.monotonic() < deadline:
            self._ask_to_end()
            if self._wait(min(deadline, time.monotonic() + AGAIN_S)):
                break
        left = kill_all(self._alarms)
        if left:
            self._say(f"NOT CLEANED: cannot kill pid {', '.join(map(str, left))}")

    def _ask_to_end(self) -> None:
        """Send TERM once to each process, and CONT so that stopped processes receive it."""
        self._signalled |= send_to_all(signal.SIGTERM, signal.SIGCONT, but=self._signalled)

    def _ended(self) -> list[tuple[Worker, int]]:
        ended, _ = reap()
        return [(self._running.pop(pid), code) for pid, code in ended.items() if pid in self._running]

    def _tell_failures(self, ended: Sequence[tuple[Worker, int]]) -> bool:
        failed = [(worker, code) for worker, code in ended if code != 0]
        if not failed:
            return False
        self._ask_to_end()  # before any message, because a terminal may be slow
        for worker, code in failed:
            self._say(f"{worker.name} failed: {how(code)}")
            if worker.log is not None:
                self._say(f"the last lines of {worker.log}:")
                for line in last_lines(worker.log):
                    self._say(f"  {line}")
        if self._running:
            self._say("stopping the other processes")
        return True

    def _wait(self, deadline: float | None) -> int | None:
        """Wait for an event until a deadline; return the signal of a stop request, 0 if the user's process exited."""
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select(self._places, [], [], wait_s)
        orders = bytes(number for number in take(self._alarms) if number != signal.SIGCHLD)
        if self._orders in ready:
            said = self._orders.recv(16)
            if not said:
                self._places = [self._alarms]
                return 0
            orders += said
        return orders[0] if orders else None


def last_lines(path: Path) -> list[str]:
    """Return the last lines of a file, from its last 16 KiB at most; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_BYTES))
            text = file.read(LOG_BYTES).decode(errors="replace")
    except OSError:
        return []
    lines = text.splitlines()
    return (lines[1:] if size > LOG_BYTES else lines)[-LOG_LINES:]


def say(line: str) -> None:
    """Print a line for the user; ignore a closed terminal."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"launch: {line}\n")
        sys.stderr.flush()


def run(workers: Sequence[Worker]) -> int:
    """Run workers and return the exit code: 0 if all succeeded, 1 if one failed, 128 + n after signal n."""
    become_subreaper()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    ours, theirs = socket.socketpair()
    with ours, theirs, signals_on_socket((*STOPS, signal.SIGCHLD)) as alarms:
        child = os.fork()
        if child == 0:
            code = FAILED
            try:
                ours.close()
                code = _keep(workers, theirs)
            except Exception as error:  # noqa: BLE001 - whatever it is must be told, and the workers ended
                say(f"the process that supervises the others failed: {error!r}")
            finally:
                os._exit(code)  # cleanup by the callers belongs to the other process
        theirs.close()
        code = _wait_for(child, ours, alarms)
        left = kill_all(alarms)
    if left:
        say(f"NOT CLEANED: cannot kill pid {', '.join(map(str, left))}")
    return code


def _keep(workers: Sequence[Worker], orders: socket.socket) -> int:
    os.setsid()  # Ctrl+C and the loss of the terminal are delivered through the other process only
    become_subreaper()
    with signals_on_socket((*STOPS, signal.SIGCHLD)) as alarms:
        return Keeper(workers, orders, alarms, say).run()


def _wait_for(child: int, orders: socket.socket, alarms: socket.socket) -> int:
    """Forward signals until the keeper has exited, which has a deadline once a stop was requested."""
    deadline = None
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([alarms], [], [], wait_s)[0]:
            os.kill(child, signal.SIGKILL)
            deadline = None
            continue
        stops = bytes(number for number in take(alarms) if number in STOPS)
        if stops:
            deadline = deadline or time.monotonic() + SERVERS_S + GRACE_S + KILL_S + _MARGIN_S
            with contextlib.suppress(OSError):
                orders.send(stops)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        say(f"the process that supervises the others was {how(code)}; stopping the others")
        return FAILED
    return code
