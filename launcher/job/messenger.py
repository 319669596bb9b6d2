# SPDX-License-Identifier: Apache-2.0
"""Tells the pservers that a trainer is gone for good, so that nobody waits for it any more.

A short-lived process on the first pserver's node does it, with the job's key: it takes the lost trainer's place and
leaves at once.
"""

from __future__ import annotations

from dataclasses import replace

from launcher.config.options import Mode
from launcher.job.starter import Starter
from launcher.nodes.roster import Roster
from launcher.plan.plan import Plan, Process

LOG = "log/leave.log"


def send_word_of(gone: Process, plan: Plan, roster: Roster, starter: Starter) -> None:
    """Start the process that leaves in place of a trainer; its end is a message like any other."""
    if plan.mode is Mode.COLLECTIVE:
        return
    node = plan.node(plan.pserver_nodes[0])
    name = f"leave-{gone.rank}"
    roster.messengers[name] = f"the pservers could not be told that trainer {gone.rank} is gone"
    argv = (node.python, "-P", "-m", "paddle", "pserver-leave")
    starter.send(replace(gone, name=name, node_id=node.node_id, argv=argv, log=LOG, ports=()), {})
