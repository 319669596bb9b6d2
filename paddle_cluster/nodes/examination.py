# SPDX-License-Identifier: Apache-2.0
"""Connects to every node, queries its properties and its routes to other nodes, chooses addresses, and checks them.

Every job begins with an examination, and `paddle.py doctor` runs nothing else. As much as possible runs in parallel:
the greeting already contains the queries, and all nodes probe their routes simultaneously.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle_cluster.config.options import Mode
from paddle_cluster.files.package import compiled_kernels
from paddle_cluster.nodes import preflight
from paddle_cluster.nodes.checks.machines import shared_folders
from paddle_cluster.nodes.checks.reply import Demands, Reply, needs
from paddle_cluster.nodes.loop import Loop
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.preflight import PreflightResult
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan import addresses
from paddle_cluster.plan.addresses import Choice
from paddle_cluster.plan.plan import Plan, values_in_files
from paddle_node.contract.classes import dataclass, replace
from paddle_node.contract.probed import Busy
from paddle_node.contract.to_launcher import Probed

EACH_S = 0.05  # seconds of this machine's CPU per node: a login, its answers


@dataclass(frozen=True)
class Examined:
    """The result of an examination: the nodes' answers, the findings, and the chosen addresses.

    Attributes:
        mode: the mode for which the nodes were checked.
        fits_any_script: whether a job with --mode=collective would start, regardless of the conclusion.
    """

    replies: tuple[Reply, ...]
    result: PreflightResult
    choice: Choice
    mode: Mode = Mode.V2
    fits_any_script: bool = False


class Examination:
    """The phases `connect` and `preflight` of a job.

    Args:
        connect: begins to connect to a node; its agent must be greeted and queried as soon as it is connected.
        enter: called with the name of each phase.
    """

    def __init__(
        self,
        plan: Plan,
        roster: Roster,
        loop: Loop,
        connect: Callable[[NodeRecord], None],
        enter: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._roster = roster
        self._loop = loop
        self._connect = connect
        self._enter = enter

    def run(self) -> Examined:
        """Run both phases, within the connect and preflight timeouts, and return the result."""
        settings = self._plan.settings
        self._enter("connect")
        for record in self._roster.all():
            self._connect(record)
        self._loop.until(
            lambda: all(record.contact.error or record.contact.login_s for record in self._roster.all()),
            settings.engines.start_timeout_s + self._answer_limit_s(),
        )
        self._enter("preflight")
        self._loop.until(
            lambda: all(record.reports.answer is not None for record in self._roster.live()),
            self._answer_limit_s(),
        )
        self._probe_routes()
        choice = self._take_addresses()
        self._set_folders_apart()
        replies = tuple(self._replies())
        demands = demanded(self._plan, choice.addresses)
        result = preflight.judge(replies, demands)
        any_script = replace(demands, modules=(), bootstrap=False)
        fits = bool(result.problems) and not preflight.judge(replies, any_script).problems
        return Examined(replies, result, choice, self._plan.mode, fits)

    def _answer_limit_s(self) -> float:
        """Return the timeout for answers; it grows with the number of nodes."""
        return self._plan.settings.limits.preflight_timeout_s + EACH_S * len(self._plan.nodes)

    def _answers(self) -> dict[int, Probed]:
        return {
            record.node.node_id: record.reports.answer
            for record in self._roster.live()
            if record.reports.answer is not None
        }

    def _probe_routes(self) -> None:
        answers = self._answers()
        places = addresses.places(answers)
        tries = to_try(list(answers), self._plan.pserver_nodes, self._plan.trainer_nodes)
        asked = [self._roster.nodes[node_id] for node_id in answers]
        for record in asked:
            peers: list[list[Any]] = []
            for peer in tries[record.node.node_id]:
                ports = answers[peer].listen_ports
                peers += [[peer, place, ports[place]] for place in places[peer] if place in ports]
            record.send("reach", peers=peers)
        self._loop.until(
            lambda: all(record.reports.routes is not None or record.link is None for record in asked),
            self._answer_limit_s(),
        )

    def _take_addresses(self) -> Choice:
        answers = self._answers()
        found = {node_id: self._roster.nodes[node_id].reports.routes or () for node_id in answers}
        choice = addresses.choose(answers, found, self._plan.settings.cluster.nic)
        for node_id, address in choice.addresses.items():
            self._roster.nodes[node_id].reports.take_address(address, choice.addresses)
        return choice

    def _set_folders_apart(self) -> None:
        """Give nodes that share ROOT_DIR separate job directories, below node_<id>/; they may share one cache."""
        if self._plan.settings.job.workspace is not None:
            return
        for group in shared_folders(list(self._replies())):
            for node_id in group:
                record = self._roster.nodes[node_id]
                node = record.node
                job_dir = f"{node.root_dir.rstrip('/')}/node_{node_id}/{self._plan.job_id}"
                record.set_apart(job_dir)

    def _replies(self) -> list[Reply]:
        every = needs(self._plan)
        known = [(record, record.reports.answer or Probed()) for record in self._roster.all()]
        return [
            Reply(
                name=record.name,
                python=record.node.python,
                error=_error(record, self._answer_limit_s()),
                outcome=getattr(record.contact.error, "outcome", Reply.outcome),
                answer=answer._replace(busy_ports=self._configured(answer.busy_ports)),
                node_id=record.node.node_id,
                routes=record.reports.routes or (),
                neighbours=record.reports.neighbours,
                clock_offset_s=record.reports.clock.offset_s,
                clock_error_s=record.reports.clock.error_s,
                login_s=record.contact.login_s,
                hostname=record.reports.hostname,
                is_local=record.node.host.is_local,
                need=every[record.node.node_id],
            )
            for record, answer in known
        ]

    def _configured(self, busy: Sequence[Busy]) -> tuple[Busy, ...]:
        """Return the busy ports among those configured for pservers; for other ports, free ones are chosen."""
        return tuple(one for one in busy if one.port in self._plan.pserver_ports.configured)


def demanded(plan: Plan, addresses: Mapping[int, str]) -> Demands:
    """Return the requirements of a plan for its nodes, given the nodes' addresses."""
    settings = plan.settings
    return Demands(
        modules=preflight.needed_modules(settings.job.mode, settings.job.bootstrap),
        port_is_explicit=settings.cluster.port_is_explicit,
        allow_mismatch=settings.job.allow_mismatch,
        bootstrap=settings.job.bootstrap,
        use_gpu=settings.cluster.use_gpu,
        deployed=settings.job.workspace is not None,
        kernels=None if settings.job.mode is Mode.COLLECTIVE else compiled_kernels(),
        values_in_files=values_in_files(plan, addresses),
    )


def _error(record: NodeRecord, within_s: float) -> str:
    if record.contact.error is not None:
        return str(record.contact.error).removeprefix(f"{record.name}: ")
    return f"no answer from this node within {within_s:.0f} s" if record.reports.answer is None else ""


ALL_PAIRS = 16  # up to this many nodes, every node probes every other
FIRST = 8  # of the pservers and trainers, whose routes to each other are always probed


def to_try(
    node_ids: Sequence[int], pservers: Sequence[int], trainers: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Return the nodes that each node probes: all others if there are few, else O(log n).

    With many nodes, node i probes nodes i+1, i+2, i+4, ... of the ring. Any partition into two halves breaks many of
    these probes, and an isolated node fails all of its own.

    Args:
        node_ids: the nodes that can be queried; others are left out.
        pservers, trainers: node IDs by rank.
    """
    ids = list(dict.fromkeys(node_ids))
    if len(ids) <= ALL_PAIRS:
        return {one: tuple(other for other in ids if other != one) for one in ids}
    tries = {one: dict.fromkeys(_ring(ids, place)) for place, one in enumerate(ids)}
    known = set(ids)
    first_servers = [one for one in pservers[:FIRST] if one in known]
    first_trainers = [one for one in trainers[:FIRST] if one in known]
    for server in first_servers:
        for trainer in first_trainers:
            if server != trainer:
                tries[server][trainer] = None
                tries[trainer][server] = None
    return {one: tuple(others) for one, others in tries.items()}


def _ring(ids: Sequence[int], place: int) -> list[int]:
    steps = []
    step = 1
    while step < len(ids):
        steps.append(ids[(place + step) % len(ids)])
        step *= 2
    return steps
