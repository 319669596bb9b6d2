# SPDX-License-Identifier: Apache-2.0
"""Measures the resource usage of the job's processes and of this node, and sends it in `usage` frames.

Frames contain memory, CPU, network and GPU usage. Memory and CPU usage come from one scan of all processes in /proc,
which takes milliseconds. With many processes, the scan takes longer and runs less often, using at most 0.2 % of one
CPU. A process's usage includes its descendants.

GPUs are monitored by one nvidia-smi process in the background, if it is installed. If a GPU hangs, nvidia-smi also
hangs, and no new values are reported; the agent's loop only reads its output. The process carries the job's marks and
is the agent's child, so that it ends with the job's processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Callable, Dict, List, Optional, Tuple

from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.processes import environment
from paddle_node.contract.records import Fields
from paddle_node.linux import proc, process_tree
from paddle_node.linux.process_tree import FoundProcess

_QUERY = "--query-gpu=index,utilization.gpu,memory.used,memory.total"
_MOST = 64  # GPUs
_READ = 1 << 16
_MIB = 1 << 20


class GpuUsage:
    """The usage of this node's GPUs, as nvidia-smi reports it.

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


FIRST_S = 1.0
EVERY_S = 5.0
SHARE = 0.002  # of one CPU, at most
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SYS_NICS = "/sys/class/net"


class Usage:
    """Measures resource usage every few seconds, once there is a process.

    Args:
        pids: returns the running processes, by name.
        send: called with a frame kind, an empty process name, and the fields.
    """

    def __init__(
        self, loop: Loop, pids: Callable[[], Dict[str, int]], send: Callable[[str, str, Fields], None]
    ) -> None:
        self._loop = loop
        self._pids = pids
        self._send = send
        self._gpus: Optional[GpuUsage] = None
        self._next = Timer(0.0, lambda: None)
        self._at = 0.0
        self._ticks: Dict[Tuple[int, int], int] = {}
        self._node: Dict[str, Tuple[float, float]] = {}

    def begin(self, marks: Dict[str, str]) -> None:
        """Start measuring soon after the first process was started.

        Args:
            marks: the job's marks, for the processes that this class starts.
        """
        if self._gpus is None:
            self._gpus = GpuUsage(self._loop, marks, EVERY_S)
            self._at = time.monotonic()
        self._next.cancel()
        self._next = self._loop.after(FIRST_S, self._measure)

    def _measure(self) -> None:
        began, spent_s = time.monotonic(), time.process_time()
        pids = self._pids()
        if pids and self._gpus is not None:
            self._gpus.begin()
            since_s = max(1e-3, began - self._at)
            self._at = began
            fields: Fields = {"processes": self._processes(pids, since_s), "gpus": self._gpus.newest}
            fields.update(_memory())
            fields.update(self._rates(began))
            self._send("usage", "", fields)
        self._next = self._loop.after(max(EVERY_S, (time.process_time() - spent_s) / SHARE), self._measure)

    def _processes(self, pids: Dict[str, int], since_s: float) -> List[List[object]]:
        """Return [name, percent of one CPU, resident bytes] of each process, descendants included."""
        seen = process_tree.snapshot()
        families = {name: process_tree.descendants(seen, [pid]) | {pid} for name, pid in pids.items()}
        before, self._ticks = self._ticks, {}
        found: List[List[object]] = []
        for name, family in families.items():
            there = [seen[pid] for pid in family if pid in seen]
            spent = sum(self._spent(one, before) for one in there) / _TICKS
            resident = sum(one.resident for one in there) * _PAGE
            found.append([name, round(100 * spent / since_s, 1), resident])
        return found

    def _spent(self, one: FoundProcess, before: Dict[Tuple[int, int], int]) -> int:
        """Return the ticks used since the last scan, or since the process started."""
        identity = (one.pid, one.start)
        self._ticks[identity] = one.ticks
        return max(0, one.ticks - before.get(identity, 0))

    def _rates(self, now: float) -> Fields:
        """Return the node's rates since the last scan; None for the first one."""
        busy, total = _processor_ticks()
        received, sent = _network_bytes()
        share = self._rate("cpu", busy, total)
        rates = {"received_bytes_per_s": received, "sent_bytes_per_s": sent}
        fields: Fields = {name: self._rate(name, count, now) for name, count in rates.items()}
        fields["cpu_percent"] = None if share is None else min(100.0, 100 * share)
        return fields

    def _rate(self, name: str, count: float, of: float) -> Optional[float]:
        last = self._node.get(name)
        self._node[name] = (count, of)
        if last is None or of <= last[1] or count < last[0]:  # a counter was reset
            return None
        return round((count - last[0]) / (of - last[1]), 4)


def _memory() -> Fields:
    """Return the machine's total memory in bytes, and the bytes that are not available now."""
    facts = {line.partition(":")[0]: line.split() for line in proc.lines("/proc/meminfo")}
    total, free = (int(facts[name][1]) << 10 if name in facts else 0 for name in ("MemTotal", "MemAvailable"))
    return {"memory_bytes": max(0, total - free), "memory_total_bytes": total}


def _processor_ticks() -> Tuple[float, float]:
    """Return the ticks of all CPUs since boot: busy, and total."""
    counts = [float(word) for word in "".join(proc.lines("/proc/stat")[:1]).split()[1:9]]
    return sum(counts) - sum(counts[3:5]), sum(counts)  # idle and iowait are the fourth and fifth


def _network_bytes() -> Tuple[float, float]:
    """Return bytes received and sent since boot over the network cards; without any, over all but loopback."""
    counts: Dict[str, Tuple[float, float]] = {}
    for line in proc.lines("/proc/net/dev")[2:]:
        name, _, rest = line.partition(":")
        numbers = rest.split()
        if len(numbers) >= 9 and name.strip() != "lo":
            counts[name.strip()] = float(numbers[0]), float(numbers[8])
    # bridges and tunnels count a card's traffic again
    cards = [name for name in counts if os.path.exists("%s/%s/device" % (_SYS_NICS, name))] or list(counts)
    return sum(counts[name][0] for name in cards), sum(counts[name][1] for name in cards)
