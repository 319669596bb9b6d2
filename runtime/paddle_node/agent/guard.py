# SPDX-License-Identifier: Apache-2.0
"""The outer two of the agent's three processes; each waits for its child and kills the processes that it leaves.

They have no state and do nothing else, so that only a signal can end them; the inner process then detects their end and
cleans up. The guard also ends a job whose agent proper has sent no heartbeat for longer than its lease. The outermost
process, the watcher, has a different session from the guard and the agent proper. If these two are killed together, for
example by their process group, the watcher survives and inherits all processes that they started.
"""

import os
import select
import signal
import stat
import sys
import time

from paddle_node.agent.link.sign_of_life import LOOK_S, Vigil
from paddle_node.agent.processes import control_group
from paddle_node.contract.names import JOB_ID, NODE_ID, STATE_DIR
from paddle_node.linux import proc, process_tree
from paddle_node.linux.prctl import become_subreaper, end_with_parent

CLEAN_S = 5.0
FAREWELL_S = 15.0  # how long the agent proper may take to stop a job when its guard has exited
POLL_S = 0.05
STOPPED_S = 5.0  # how long the supervisor may stay stopped by a signal
FAILED = 70  # not 1, which is the exit status of a Python that cannot start
STAYS = 76  # the job ended normally, and its launcher wants a resident agent afterwards
ENDED = (0, STAYS << 8)  # the wait status of an agent proper that has stopped its job
STATE_PREFIX = "paddle-"


def guard(received: bytes, kept: int = 2) -> int:
    """Fork the guard, which forks the supervisor, and wait for it; return this process's exit code.

    Args:
        received: the bytes received from the launcher so far, starting with its `hello`.
        kept: a descriptor that stays open in this process only.
    """
    os.closerange(3, kept)  # descriptors that the login left open must not reach a job
    os.closerange(kept + 1, 1 + max(proc.open_descriptors()))
    # if ignored, children would disappear before they could be waited for
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    become_subreaper()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    inside_read, inside_write = os.pipe()  # ends when both inner processes have ended
    watcher = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.closerange(max(kept, 3), kept + 1)
        os.close(inside_read)
        _run_guard(received, watcher)
    os.close(inside_write)
    _let_go_of_the_stream()
    status = _watch(pid) or 0
    if status not in ENDED:  # the guard may have ended before it could clean up
        _await_end(inside_read)
        _clean({})
    if os.WIFSIGNALED(status):
        _say("the node agent's guard was killed by signal %d\n" % os.WTERMSIG(status))
        return FAILED
    return os.WEXITSTATUS(status)


def _run_guard(received: bytes, watcher: int) -> None:
    """Run the guard in the child of the first fork; never return."""
    code = FAILED
    try:
        os.setsid()
        end_with_parent(signal.SIGTERM)
        if os.getppid() == watcher:
            become_subreaper()
            code = _guard(received, Watcher(watcher))
    except Exception as error:  # noqa: BLE001 - the last resort of a process: the launcher shows what is on stderr
        _say("the node agent's guard failed: %s\n" % error)  # where even an import may fail
        import traceback

        traceback.print_exc()
    finally:
        _say("")
        os._exit(code)


class Watcher:
    """Sends SIGCONT to the guard's parent if it was stopped, because a stopped process cannot even exit."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopped_s = 0.0

    def note_wait(self, waited_s: float) -> None:
        """Count a further wait of the guard, in seconds, and check the watcher when it is due."""
        found = process_tree.process_of(self._pid)
        self._stopped_s = self._stopped_s + waited_s if found is not None and found.state == "T" else 0.0
        if self._stopped_s >= STOPPED_S:
            self.wake()

    def wake(self) -> None:
        """Continue the watcher with SIGCONT, if it exists."""
        if os.getppid() == self._pid:
            os.kill(self._pid, signal.SIGCONT)


def _guard(received: bytes, watcher: Watcher) -> int:
    alive_read, alive_write = os.pipe()  # ends when this process does
    marks_read, marks_write = os.pipe()
    signs_read, signs_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(alive_write)
        os.close(marks_read)
        os.close(signs_read)
        _run_supervisor(received, alive_read, marks_write, signs_write)
    os.close(alive_read)
    os.close(marks_write)
    os.close(signs_write)
    _let_go_of_the_stream()
    vigil = Vigil(signs_read)
    status = _watch(pid, vigil, watcher)
    if status is None:
        text = (
            "no heartbeat from the node agent for %.0f s (a file system may hang): stopping the "
            "job on this node\n"
        )
        _say(text % vigil.patience_s)
    marks = _marks(marks_read)
    # after a normal end, the agent proper has cleaned up; any process that it left below itself is our child now
    if status not in ENDED or process_tree.has_children():
        _clean(marks)
        control_group.remove(marks)
    _forget_state(marks)
    watcher.wake()
    return _explain(status)


def _run_supervisor(received: bytes, guard_alive: int, marks: int, signs: int) -> None:
    """Run the supervisor in the forked child; never return."""
    code = FAILED
    try:
        become_subreaper()
        from paddle_node.agent.supervisor import supervise

        code = STAYS if supervise(received, guard_alive, marks, signs) else 0
    except Exception:  # noqa: BLE001 - the last resort of a process: the launcher shows what is on stderr
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _pass_on(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return  # it has just ended: its job must still be cleaned up


def _let_go_of_the_stream() -> None:
    # the launcher must see the end of the stream when the supervisor ends it
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _watch(pid: int, vigil: "Vigil | None" = None, watcher: "Watcher | None" = None) -> "int | None":
    """Wait for a child's exit, passing TERM on; return its status, or None if its vigil expired first."""
    signal.signal(signal.SIGTERM, lambda *_: _pass_on(pid))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    status = _wait(pid, vigil, watcher)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the pid can be reused now
    return status


def _await_end(inside: int) -> None:
    """Let the agent proper stop the job, if it is alive."""
    select.select([inside], [], [], FAREWELL_S)


def _wait(pid: int, vigil: "Vigil | None", watcher: "Watcher | None") -> "int | None":
    while True:
        ended, status = os.waitpid(-1, os.WUNTRACED | (os.WNOHANG if vigil else 0))
        if vigil and not ended:
            began = time.monotonic()
            signal.sigtimedwait([signal.SIGCHLD], LOOK_S)
            waited_s = time.monotonic() - began
            if watcher:
                watcher.note_wait(waited_s)
            if vigil.note_wait(waited_s):
                return None
            continue
        if ended != pid:
            continue
        if not os.WIFSTOPPED(status):
            return status
        for timeout_s in (
            0.0,
            STOPPED_S,
        ):  # report the stop itself: a later change may end the wait early
            signal.sigtimedwait([signal.SIGCHLD], timeout_s)
        os.kill(pid, signal.SIGCONT)  # while stopped, it could neither end a job nor notice that it must


def _marks(pipe: int) -> "dict[str, str]":
    """Return the job's marks as the supervisor wrote them: NAME=value, each followed by a NUL byte."""
    os.set_blocking(pipe, False)
    try:
        text = os.read(pipe, 1 << 16)
    except OSError:
        return {}
    # killed while writing: only the process tree then shows the job's processes
    whole = text.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return dict(mark.split("=", 1) for mark in whole)


def _clean(marks: "dict[str, str]") -> None:
    deadline = time.monotonic() + CLEAN_S
    while time.monotonic() < deadline:
        found = process_tree.members(marks, os.getpid())
        if not found and process_tree.end_children(_reap):
            return
        for process in found:
            try:
                process_tree.send(process, signal.SIGKILL)
            except PermissionError:
                continue
        signal.sigtimedwait([signal.SIGCHLD], POLL_S)
        _reap()


def _forget_state(marks: "dict[str, str]") -> None:
    """Remove the state that the job's parameter servers saved in this node's memory: the job has ended here."""
    job_id, node_id = marks.get(JOB_ID), marks.get(NODE_ID)
    if not job_id or not node_id or "/" in job_id + node_id:
        return
    path = os.path.join(STATE_DIR, "%s%s-%s" % (STATE_PREFIX, job_id, node_id))
    try:
        found = os.lstat(path)
    except OSError:
        return
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        from paddle_node.agent.files import disk  # imported late, where time does not matter

        disk.remove_tree(path)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _explain(status: "int | None") -> int:
    if status is None:
        return FAILED
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _say(
            "the node agent was killed by signal %d; the job's processes on this node were killed\n" % number
        )
        return FAILED
    return os.WEXITSTATUS(status)


def _say(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # the first login has ended, and the agent has another connection
        pass
