# SPDX-License-Identifier: Apache-2.0
"""A plan as text for --dry_run: every process with its node, argv, environment, ports and log."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from launcher.environment import ADDED_ON_NODE
from launcher.plan import (
    Plan,
    Process,
    planned_addresses,
    planned_endpoints,
    pserver_processes,
    trainer_processes,
)

_SECRET = frozenset({"PADDLE_JOB_KEY"})


def describe(plan: Plan) -> str:
    """The whole plan, as far as it is known before any connection."""
    addresses = planned_addresses(plan)
    processes = [
        *pserver_processes(plan, addresses),
        *trainer_processes(plan, addresses, planned_endpoints(plan, addresses)),
    ]
    lines = [*_head(plan), ""]
    for process in processes:
        lines += [*_process(plan, process), ""]
    lines += _footnotes(plan)
    return "\n".join(lines) + "\n"


def _head(plan: Plan) -> Iterator[str]:
    settings = plan.settings
    yield f"job {plan.job_id}, mode {plan.mode}, wire {settings.wire}"
    if settings.package is not None:
        yield f"dispatch {settings.package}" + (
            f", by shard: {', '.join(settings.shard_dirs)}" if settings.shard_dirs else ""
        )
    else:
        yield "nothing is dispatched: the workspace is on the nodes"
    for node in plan.nodes:
        yield f"node {node.node_id}  {node.host.describe()}  {node.job_dir}"


def _process(plan: Plan, process: Process) -> Iterator[str]:
    node = plan.node(process.node_id)
    yield f"{process.name} on node {node.node_id} ({node.label})"
    yield f"  argv   {shlex.join(process.argv)}"  # for reading; nothing is run from this text
    if process.ports:
        yield f"  ports  {', '.join(str(port) for port in process.ports)}"
    yield f"  log    {process.log}"
    shown = dict(process.env) | {
        name: "***" if name in _SECRET else "(on the node)" for name in ADDED_ON_NODE
    }
    for name in sorted(shown):
        yield f"  env    {name}={shown[name]}"


def _footnotes(plan: Plan) -> Iterator[str]:
    yield "Addresses and thread counts become known when the nodes have answered."
    if plan.pserver_nodes and not plan.settings.port_is_explicit:
        yield "A pserver whose ports are taken moves on to the next ones and tells the trainers."
    yield "This was a dry run: no connection was made and nothing was written."
