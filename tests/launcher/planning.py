# SPDX-License-Identifier: Apache-2.0
"""What tests of plans share: hosts, addresses, a job's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle_cluster.plan.machines import Machines, checked
from paddle_cluster.plan.plan import (
    Plan,
    Process,
    Role,
    planned_endpoints,
    pserver_processes,
    trainer_processes,
)
from paddle_node.contract.to_launcher import Probed, read_message

JOB = "JOB20260102030405-a1b2c3"
THREE = "HOSTS = ['root@a', 'b:2222', '[fd00::7]']\n"
ADDRESSES = {0: "10.0.0.1", 1: "10.0.0.2", 2: "fd00::7"}
LOCAL = "HOSTS = ['local'] * 3\n"
Planned = Callable[..., Plan]


def answer_to_probe(**fields: Any) -> Probed:
    """The answer to `probe` of a node that sends these fields."""
    return checked(read_message("probed", fields, "a node"))


def all_processes(plan: Plan, machines: Machines | None = None) -> list[Process]:
    endpoints = planned_endpoints(plan, ADDRESSES)
    return [
        *pserver_processes(plan, ADDRESSES, machines),
        *trainer_processes(plan, ADDRESSES, endpoints, machines),
    ]


def column(processes: Sequence[Process], name: str) -> list[str | None]:
    return [process.env.get(name) for process in processes if process.role is Role.TRAINER]
