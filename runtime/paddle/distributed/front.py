# SPDX-License-Identifier: Apache-2.0
"""The process that the user started: it has a keeper run the workers, hands signals on to it, and cleans after it.

Whichever of the two is killed, the other one ends everything: orphans go to it. If both are, the kernel kills the
workers themselves.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence

from paddle.distributed import alarm, endings
from paddle.distributed.keeper import FAILED, GRACE_S, SERVERS_S, Keeper
from paddle.distributed.worker import Worker
from paddle_node.linux.prctl import become_subreaper

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_MARGIN_S = 5.0


def say(line: str) -> None:
    """Tell the user a line; a screen that is gone is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"launch: {line}\n")
        sys.stderr.flush()


def run(workers: Sequence[Worker]) -> int:
    """Run workers; return the exit code: 0 all are done, 1 one failed, 128 + number of a signal that ended us."""
    become_subreaper()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    ours, theirs = socket.socketpair()
    with ours, theirs, alarm.signals_on_socket((*STOPS, signal.SIGCHLD)) as alarms:
        keeper = os.fork()
        if keeper == 0:
            code = FAILED
            try:
                ours.close()
                code = _keep(workers, theirs)
            except Exception as error:  # noqa: BLE001 - whatever it is must be told, and the workers ended
                say(f"the process that keeps the others failed: {error!r}")
            finally:
                os._exit(code)  # what our callers do on their way out is the other process's
        theirs.close()
        code = _wait_for(keeper, ours, alarms)
        left = endings.kill_all(alarms)
    if left:
        say(f"NOT CLEANED: pid {', '.join(map(str, left))} cannot be killed")
    return code


def _keep(workers: Sequence[Worker], orders: socket.socket) -> int:
    os.setsid()  # Ctrl+C and the end of the terminal come through the other process alone
    become_subreaper()
    with alarm.signals_on_socket((*STOPS, signal.SIGCHLD)) as alarms:
        return Keeper(workers, orders, alarms, say).run()


def _wait_for(keeper: int, orders: socket.socket, alarms: socket.socket) -> int:
    """Hand signals on until the keeper is gone; once a stop was asked for, it has a deadline."""
    deadline = None
    while True:
        pid, status = os.waitpid(keeper, os.WNOHANG)
        if pid:
            break
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([alarms], [], [], wait_s)[0]:
            os.kill(keeper, signal.SIGKILL)
            deadline = None
            continue
        stops = bytes(number for number in alarm.take(alarms) if number in STOPS)
        if stops:
            deadline = deadline or time.monotonic() + SERVERS_S + GRACE_S + endings.KILL_S + _MARGIN_S
            with contextlib.suppress(OSError):
                orders.send(stops)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        say(f"the process that keeps the others was {endings.how(code)}; they are stopped")
        return FAILED
    return code
