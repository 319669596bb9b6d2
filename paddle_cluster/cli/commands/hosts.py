# SPDX-License-Identifier: Apache-2.0
"""`paddle.py hosts`: shows the settings of all nodes, and where each value comes from. Opens no connection."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence

from paddle_cluster.cli import cluster_of
from paddle_cluster.config.resolve import resolve
from paddle_cluster.engines.engine import entry
from paddle_cluster.errors import ConnectError, ExitCode
from paddle_cluster.plan import plan, plan_text
from paddle_cluster.plan.plan import Plan
from paddle_cluster.screen.writer import answer, columns
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.sizes import counted, spans
from paddle_cluster.text.wrapping import fitted_table, wrapped
from paddle_node.contract.classes import asdict, dataclass, replace

USAGE = f"""\
{PROGRAM} hosts [--conf=FILE] [--hosts=HOST[,HOST]] [--hostfile=FILE]
      [--include=HOST[,HOST]] [--exclude=HOST[,HOST]] [--nnodes=N]
      [--engine=ENGINE] [--mode=v2|fluid|collective] [--nproc_per_node=N]
      [--json]

Prints the nodes that a job with these options would use: number, login, roles,
Python and directory of each, and where each value comes from (conf.py, your SSH
configuration, an option). Connects to nothing.

  --json   print JSON
"""
HEADERS = (
    "node",
    "host",
    "login",
    "roles",
    "python",
    "root_dir",
    "key",
    "variables",
    "named in",
    "settings in",
)


@dataclass(frozen=True)
class NodeFacts:
    """The facts about a node that are known before a connection is opened.

    Attributes:
        login: user@address:port as the SSH configuration resolves it; empty if the engine does not log in.
        via: jump hosts and ProxyCommand on the route, in order.
        key: the node's own private key, or empty.
        variables: names of the node's own variables.
        named_in: the line or option that names the host.
        settings_in: the line of HOST_SETTINGS, or empty.
        error: why a login is not possible, or empty.
    """

    node_id: int
    host: str
    login: str
    via: tuple[str, ...]
    roles: tuple[str, ...]
    python: str
    root_dir: str
    key: str
    variables: tuple[str, ...]
    named_in: str
    settings_in: str
    error: str = ""


def run(argv: Sequence[str]) -> ExitCode:
    """Print the settings of every node and where each value comes from; return 0, or 3 if a login is not possible.

    Raises:
        UsageError: an argument is not valid for this command.
        ConfError: conf.py is invalid.
    """
    given = cluster_of.job_arguments("hosts", [one for one in argv if one != "--json"])
    resolved = resolve(given, os.environ)
    planned = plan.build(resolved, "JOB")
    facts = _with_logins(planned, list(_facts(planned)))
    names = resolved.sources.names
    if "--json" in argv:
        found = {
            "hosts_of": resolved.sources.hosts,
            "conf": None if resolved.conf is None else str(resolved.conf),
            "remarks": [*resolved.sources.remarks, *_repeated(facts)],
            "python_of": names["PYTHON"],
            "root_dir_of": names["ROOT_DIR"],
            "nodes": [asdict(one) for one in facts],
        }
        answer(json.dumps(found, indent=2))
    else:
        answer("\n".join(_lines(planned, facts, columns())))
    return ExitCode.PREFLIGHT if any(one.error for one in facts) else ExitCode.DONE


def _facts(planned: Plan) -> Iterator[NodeFacts]:
    cluster, sources = planned.settings.cluster, planned.settings.sources
    for node_id, host in enumerate(cluster.hosts):
        trainers = [rank for rank, at in enumerate(planned.trainer_nodes) if at == node_id]
        pservers = [rank for rank, at in enumerate(planned.pserver_nodes) if at == node_id]
        roles = [f"pserver {rank}" for rank in pservers]
        roles += [f"trainer{'s' if len(trainers) > 1 else ''} {spans(trainers)}"] if trainers else []
        node = planned.node(node_id) if roles else None
        own = cluster.own.get(node_id)
        yield NodeFacts(
            node_id,
            host.text,
            node.local_address or "" if node else "",
            (),
            tuple(roles),
            node.python if node else "",
            node.root_dir if node else "",
            str(own.key) if own and own.key else "",
            tuple(name for name, _ in own.env) if own else (),
            sources.lines[node_id],
            own.where if own else "",
        )


def _repeated(facts: Sequence[NodeFacts]) -> Iterator[str]:
    """Yield a remark for each node with the SSH login of an earlier one."""
    first: dict[tuple[str, ...], str] = {}
    for one in facts:
        if "@" in one.login and one.host != first.setdefault((*one.via, one.login), one.host):
            yield f"{one.host} is the same machine as {first[*one.via, one.login]}; list each machine only once"


def _with_logins(planned: Plan, facts: list[NodeFacts]) -> list[NodeFacts]:
    """Add each node's SSH route, if the engine is ssh."""
    engine, found = entry(planned.settings).of(planned, is_job=False), []
    for one in facts:
        try:
            *via, login = engine.route(planned.settings.cluster.hosts[one.node_id]) or (one.login,)
        except ConnectError as error:
            found.append(replace(one, error=f"{error.reason} {error.hint}".strip()))
            continue
        found.append(replace(one, login=login, via=tuple(via)))
    return found


def _lines(planned: Plan, facts: Sequence[NodeFacts], width: int) -> Iterator[str]:
    yield from wrapped(plan_text.host_sources_text(planned).partition("\n")[0], width)
    for remark in (*planned.settings.sources.remarks, *_repeated(facts)):
        yield from wrapped(remark, width)
    rows: list[tuple[str, ...]] = [
        (
            str(one.node_id),
            one.host,
            one.login + "".join(f" via {hop}" for hop in one.via),
            ", ".join(one.roles) or "none",
            one.python,
            one.root_dir,
            one.key,
            " ".join(one.variables),
            one.named_in,
            one.settings_in,
        )
        for one in facts
    ]
    # an empty cell would count as equal to the others
    marked = {at for at in (6, 7, 9) if any(row[at] for row in rows)}
    rows = [tuple(cell or ("-" if at in marked else "") for at, cell in enumerate(row)) for row in rows]
    drawn, below = fitted_table(HEADERS, rows, {at for at, one in enumerate(facts) if one.error}, width)
    yield from drawn
    yield from below
    names = planned.settings.sources.names
    usual = [f"PYTHON: {names['PYTHON']}", f"ROOT_DIR: {names['ROOT_DIR']}"]
    yield from wrapped(f"without HOST_SETTINGS: {', '.join(usual)}", width)
    for one in facts:
        if one.error:
            yield from wrapped(f"PROBLEM: {one.host}: {one.error}", width)
    roles = [counted(len(planned.pserver_nodes), "pserver")] * bool(planned.pserver_nodes)
    yield f"{' and '.join([*roles, counted(len(planned.trainer_nodes), 'trainer')])}; no connection was made"
