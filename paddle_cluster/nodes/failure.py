# SPDX-License-Identifier: Apache-2.0
"""Records of a job's failures and survived incidents. `causes` determines which failure was the cause."""

from __future__ import annotations

import signal
import time
from enum import StrEnum

from paddle_cluster.errors import ExitCode
from paddle_node.contract.classes import dataclass, field

RESTART = "restart"
LEFT_OUT = "left out"


class FailureKind(StrEnum):
    """The kind of failure; the values appear in `failure.json`."""

    NODE_LOST = "lost node"
    CUT_OFF = "broken path"  # between two nodes that both answer the launcher
    FROZEN = "frozen"  # alive but idle, and its time to recover has passed
    STALLED = "stalled"  # frozen too, but it might have recovered
    HUNG = "hung"  # no step for too long
    EXIT = "exit"
    LEFT = "ended early"  # exited with code 0 while others waited for it
    NOT_STARTED = "not started"
    NOT_READY = "not ready"
    REFUSED = "refused"


@dataclass(frozen=True)
class Failure:
    """A failure of a process or a node.

    Attributes:
        node: the node's name on the screen; for embedded nodes, not a host.
        process: "trainer-2", or empty if the node itself failed.
        what: the failure, as a phrase for messages: "exit code 3", "signal 9 (SIGKILL)", "no message for 10 s".
        tail: the last lines of the process's log.
        log: the path of the whole log on the submitting machine, or empty.
        code, signal: the exit code or signal, if the process ended.
        at: when the failure was detected, in seconds since 1970 by this machine's clock.
        addresses: the addresses at which other processes reach it, without ports.
        stacks: its stacks, if they could be obtained.
        late: whether it happened after the job was asked to stop.
    """

    kind: FailureKind
    node: str
    process: str
    what: str
    tail: tuple[str, ...] = ()
    log: str = ""
    node_id: int = -1
    code: int | None = None
    signal: int | None = None
    at: float = 0.0
    addresses: frozenset[str] = frozenset()
    stacks: str = ""
    late: bool = False

    @property
    def role(self) -> str:
        """Return the role of the failed process, "pserver" or "trainer"; "node" for a node."""
        return self.process.partition("-")[0] or "node"

    @property
    def rank(self) -> int | None:
        """Return the rank of the process; None for a node."""
        rank = self.process.partition("-")[2]
        return int(rank) if rank.isdigit() else None

    @property
    def exit_code(self) -> ExitCode:
        """Return the launcher's exit code for this failure: 5 for a node or pserver, 1 for a trainer."""
        return ExitCode.PROCESS_FAILED if self.role == "trainer" else ExitCode.LOST

    def name(self) -> str:
        """Return the name for messages, such as "trainer 2 on node-c" or "node node-c"."""
        if not self.process:
            return f"node {self.node}"
        return f"{self.process.replace('-', ' ', 1)} on {self.node}"

    def headline(self) -> str:
        """Return one line about the failure: what failed, where and how."""
        return f"{self.name()}: {self.what}"


def describe_exit(code: int | None, signal_number: int | None, out_of_memory: str = "") -> str:
    """Describe how a process ended, such as "exit code 3" or "signal 11 (SIGSEGV)".

    Args:
        out_of_memory: which counter of out-of-memory kills rose: "cgroup", "machine", or empty.
    """
    text = f"exit code {code}"
    if signal_number:
        known = {number.value: f" ({number.name})" for number in signal.Signals}
        text = f"signal {signal_number}{known.get(signal_number, '')}"
    if out_of_memory == "cgroup":
        link = "from" if signal_number else "after one of its processes was killed by"
        return f"{text} {link} the kernel's out-of-memory killer"
    if out_of_memory:
        return f"{text} while the kernel of that machine was killing processes for lack of memory"
    return text


@dataclass(frozen=True)
class Incident:
    """A failure that the job survived, by a restart or by continuing without a node.

    Attributes:
        kind: RESTART or LEFT_OUT.
        at: seconds since 1970.
    """

    kind: str
    text: str
    at: float = field(default_factory=time.time)
