# SPDX-License-Identifier: Apache-2.0
"""What the job's processes and this node use: memory, processors, network, GPUs; a `usage` frame every few seconds.

The first two come from one look at every process of /proc, which takes milliseconds; where there are so many that it
takes longer, looks are rarer: they never have more than 0.2 % of one processor. A process has what it started with it.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, List, Optional, Tuple

from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.node.gpu_usage import GpuUsage
from paddle_node.contract.records import Fields
from paddle_node.linux import proc, process_tree
from paddle_node.linux.process_tree import Found

FIRST_S = 1.0
EVERY_S = 5.0
SHARE = 0.002  # of one processor, at most
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SYS_NICS = "/sys/class/net"


class Usage:
    """Looks from time to time, once there is a process.

    Args:
        pids: the processes that run now, by name.
        tell: called with a kind, no process, and the fields.
    """

    def __init__(
        self, loop: Loop, pids: Callable[[], Dict[str, int]], tell: Callable[[str, str, Fields], None]
    ) -> None:
        self._loop = loop
        self._pids = pids
        self._tell = tell
        self._gpus: Optional[GpuUsage] = None
        self._next = Timer(0.0, lambda: None)
        self._at = 0.0
        self._ticks: Dict[Tuple[int, int], int] = {}
        self._node: Dict[str, Tuple[float, float]] = {}

    def begin(self, marks: Dict[str, str]) -> None:
        """Something was started: look soon, and then on and on.

        Args:
            marks: of the job, for what is started here.
        """
        if self._gpus is None:
            self._gpus = GpuUsage(self._loop, marks, EVERY_S)
            self._at = time.monotonic()
        self._next.cancel()
        self._next = self._loop.after(FIRST_S, self._look)

    def _look(self) -> None:
        began, spent_s = time.monotonic(), time.process_time()
        pids = self._pids()
        if pids and self._gpus is not None:
            self._gpus.begin()
            since_s = max(1e-3, began - self._at)
            self._at = began
            fields: Fields = {"processes": self._processes(pids, since_s), "gpus": self._gpus.newest}
            fields.update(_memory())
            fields.update(self._rates(began))
            self._tell("usage", "", fields)
        self._next = self._loop.after(max(EVERY_S, (time.process_time() - spent_s) / SHARE), self._look)

    def _processes(self, pids: Dict[str, int], since_s: float) -> List[List[object]]:
        """[name, percent of one processor, resident bytes], each with its descendants."""
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

    def _spent(self, one: Found, before: Dict[Tuple[int, int], int]) -> int:
        """Ticks since the last look, or since its start."""
        identity = (one.pid, one.start)
        self._ticks[identity] = one.ticks
        return max(0, one.ticks - before.get(identity, 0))

    def _rates(self, now: float) -> Fields:
        """Of the node since the last look; None at the first one."""
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
        if last is None or of <= last[1] or count < last[0]:  # a counter began anew
            return None
        return round((count - last[0]) / (of - last[1]), 4)


def _memory() -> Fields:
    """Bytes of the machine's memory, and how many of them could not be had now."""
    facts = {line.partition(":")[0]: line.split() for line in proc.lines("/proc/meminfo")}
    total, free = (int(facts[name][1]) << 10 if name in facts else 0 for name in ("MemTotal", "MemAvailable"))
    return {"memory_bytes": max(0, total - free), "memory_total_bytes": total}


def _processor_ticks() -> Tuple[float, float]:
    """Of all processors since boot: busy, and all."""
    counts = [float(word) for word in "".join(proc.lines("/proc/stat")[:1]).split()[1:9]]
    return sum(counts) - sum(counts[3:5]), sum(counts)  # idle and iowait stand fourth and fifth


def _network_bytes() -> Tuple[float, float]:
    """Received and sent since boot, over the network cards; where there are none, over all but loopback."""
    counts: Dict[str, Tuple[float, float]] = {}
    for line in proc.lines("/proc/net/dev")[2:]:
        name, _, rest = line.partition(":")
        numbers = rest.split()
        if len(numbers) >= 9 and name.strip() != "lo":
            counts[name.strip()] = float(numbers[0]), float(numbers[8])
    # bridges and tunnels count once more what a card has
    cards = [name for name in counts if os.path.exists("%s/%s/device" % (_SYS_NICS, name))] or list(counts)
    return sum(counts[name][0] for name in cards), sum(counts[name][1] for name in cards)
