# SPDX-License-Identifier: Apache-2.0
"""What is asked of a node first, and how its answers get into its record: nothing is changed on any node yet."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

from launcher.connection.link import MessageEvent
from launcher.nodes import preflight
from launcher.nodes.roster import NodeRecord
from launcher.plan import machines
from launcher.plan.answers import read_probed, read_reached
from launcher.plan.plan import Node, Plan

_SPARE_S = 2.0  # of PREFLIGHT_TIMEOUT_S, for the answer's way


def probe_of(plan: Plan, node: Node, need_bytes: int, gpus: bool = False) -> dict[str, Any]:
    """The fields of `probe` for a node.

    Args:
        need_bytes: what it must have room for.
        gpus: ask nvidia-smi too, which may take a second or two.
    """
    settings = plan.settings
    is_pserver = node.node_id in plan.pserver_nodes
    is_trainer = node.node_id in plan.trainer_nodes
    return {
        "nic": settings.cluster.nic or None,
        "address": node.local_address,
        "ports": [
            *(plan.pserver_ports.asked if is_pserver else ()),
            *plan.service_ports.asked(node.node_id),
        ],
        "modules": list(preflight.needed_modules(plan.mode)),
        "need_bytes": need_bytes,
        "workspace": node.job_dir if settings.job.workspace is not None else None,
        "entry": (settings.job.entry.path or None)
        if settings.job.workspace is not None and is_trainer
        else None,
        "token": None if node.host.is_local else plan.job_id,
        "node_id": node.node_id,
        "gpus": gpus,
        "limit_s": max(1.0, settings.limits.preflight_timeout_s - _SPARE_S),
    }


def hello(record: NodeRecord, event: MessageEvent) -> None:
    """The agent speaks: who it is, and the first ping that compares clocks."""
    record.login_s = time.monotonic() - record.connecting_since
    record.hostname = str(event.fields.get("hostname") or "")
    record.clock_offset_s = float(event.fields.get("clock") or time.time()) - time.time()
    _ping(record)


def pong(record: NodeRecord, event: MessageEvent) -> None:
    """One more measurement of a node's clock, and the next one."""
    clock, seq = event.fields.get("clock"), event.fields["seq"]
    if clock is None or not record.clock.pong(int(seq), float(clock)):
        return
    if not math.isfinite(record.clock.offset_s):
        raise ValueError("its clock is no number")
    record.clock_offset_s = record.clock.offset_s
    _ping(record)


def probed(record: NodeRecord, event: MessageEvent, plan: Plan) -> None:
    """What preflight will judge; it is read once, here, so that a node that talks nonsense is named for it."""
    answer = read_probed(event.fields)
    record.probed = machines.set_ports_apart(answer, answer.busy_ports, plan.pserver_ports)


def reached(record: NodeRecord, event: MessageEvent) -> None:
    """Which peers the node can connect to, and whose marks it sees."""
    record.neighbours = tuple(int(node_id) for node_id in event.fields.get("neighbours") or ())
    record.reached = read_reached(event.fields)


def take_address(record: NodeRecord, address: str, plan: Plan) -> None:
    """The job's traffic goes there: the busy ports that count are that address's, and cores those that are allowed."""
    answer = record.probed
    if answer is None:
        return
    busy = answer.busy_at.get(address)
    if busy is not None:
        answer = machines.set_ports_apart(answer, busy, plan.pserver_ports)
    allowed = answer.machine.group.get("cores")
    cpus = min(answer.cpus, max(1, math.ceil(allowed))) if allowed else answer.cpus
    record.probed = replace(answer, address=address, cpus=cpus)


def _ping(record: NodeRecord) -> None:
    seq = record.clock.ping()
    if seq is not None:
        record.send("ping", seq=seq)
