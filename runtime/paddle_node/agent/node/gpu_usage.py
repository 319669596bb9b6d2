# SPDX-License-Identifier: Apache-2.0
"""Monitors the node's NVIDIA GPUs with one nvidia-smi process in the background, if it is installed.

If a GPU hangs, nvidia-smi also hangs, and no new values are reported; the agent's loop only reads its output. The
process carries the job's marks and is the agent's child, so that it ends with the job's processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Dict, List, Optional

from paddle_node.agent.link.loop import Loop
from paddle_node.agent.processes import environment

_QUERY = "--query-gpu=index,utilization.gpu,memory.used,memory.total"
_MOST = 64  # GPUs
_READ = 1 << 16
_MIB = 1 << 20


class GpuUsage:
    """Reads the output of nvidia-smi.

    Attributes:
        newest: [utilization in percent or None if unknown, used bytes, total bytes] of each GPU.
    """

    def __init__(self, loop: Loop, marks: Dict[str, str], every_s: float) -> None:
        self.newest: List[List[Optional[float]]] = []
        self._loop = loop
        self._marks = marks
        self._every_s = every_s
        self._fd: Optional[int] = None
        self._tried = False
        self._rest = b""

    def begin(self) -> None:
        """Start nvidia-smi, if it is installed; later calls do nothing."""
        if self._tried:
            return
        self._tried = True
        env = environment.complete(os.environ, self._marks)
        program = environment.program("nvidia-smi", env)
        if program is None:
            return
        reads, writes = os.pipe()
        argv = [program, _QUERY, "--format=csv,noheader,nounits", "--loop=%d" % self._every_s]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, writes, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
        usual = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
        try:
            pid = os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=usual)
        except (OSError, NotImplementedError):  # not built for this machine, or out of processes
            os.close(reads)
            return
        finally:
            os.close(writes)
        os.set_blocking(reads, False)
        self._fd = reads
        self._loop.on_readable(reads, self._read)
        self._loop.on_exit(pid, lambda status: self._close())

    def _read(self) -> None:
        if self._fd is None:
            return
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._fd, _READ)
            if not data:
                self._close()
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()[-_READ:]
        for line in lines:
            self._take(line.decode("ascii", "replace"))

    def _take(self, line: str) -> None:
        """Parse a line: "0, 57, 1024, 81559"; a value that a GPU does not report is "[N/A]"."""
        words = [word.strip() for word in line.split(",")]
        if len(words) != 4 or not words[0].isdigit() or not int(words[0]) < _MOST:
            return
        index = int(words[0])
        percent, used, total = (float(word) if word.isdigit() else None for word in words[1:])
        self.newest += [[None, 0, 0]] * (index + 1 - len(self.newest))
        self.newest[index] = [percent, int(used or 0) * _MIB, int(total or 0) * _MIB]

    def _close(self) -> None:
        """Handle the end of nvidia-smi: no value is known any more."""
        if self._fd is not None:
            self._loop.on_readable(self._fd, None)
            os.close(self._fd)
            self._fd = None
        self.newest = []
