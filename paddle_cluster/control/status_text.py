# SPDX-License-Identifier: Apache-2.0
"""Formats jobs for `paddle.py status`, as text for people and as JSON for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from paddle_cluster.control import node_queue, views
from paddle_cluster.control.node_jobs import Known
from paddle_cluster.control.store import KnownJob
from paddle_cluster.control.views import LISTED, ago, shortened, state_text
from paddle_cluster.nodes.findings import names
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.sizes import counted
from paddle_cluster.text.wrapping import speed_text, step_text, table, visible

STALE_S = 15.0
ODD = 8  # maximum number of troubled ones to list otherwise
_SHOWN_LINE = 100


def job_table(jobs: Sequence[KnownJob], now: float, most: int | None = None) -> list[str]:
    """Format a table with one line per job, newest first; of jobs with the same name, only the newest is listed."""
    newest = {job.title: job for job in reversed(jobs)}
    rows = [
        (
            job.title if newest[job.title] is job else job.job_id,
            f"queued, place {node_queue.place(jobs, job)}" if node_queue.is_waiting(job) else job.describe(),
            ago(now - job.record.submitted_at),
            str(len(job.record.nodes)),
            progress_of(job.status),
            job.record.source or job.record.collected,
        )
        for job in jobs[:most]
    ]
    return table(("job", "state", "age", "nodes", "progress", "workspace"), rows, set())


def detail(job: KnownJob, now: float, *, everything: bool = False) -> list[str]:
    """Describe one job with its nodes and processes; a large job is summarized, with a list of its problems.

    Args:
        everything: whether to include every node and process, even of a large job.
    """
    record, status = job.record, job.status
    lines = [
        f"{job.title}: {job.describe()}",
        *_labeled("  id: ", job.job_id if record.name else ""),
        f"  submitted {ago(now - record.submitted_at)} ago by {record.user}, {record.launcher.describe()}"
        + (", detached" if record.detached else "")
        + (" (rebuilt from its nodes)" if record.rebuilt else ""),
        *_labeled("  workspace: ", record.source),
        *_labeled("  conf: ", record.conf),
        *_labeled("  logs: ", record.collected and f"{record.collected}/log"),
        *_labeled("  state: ", str(job.directory)),
    ]
    lines += health(job, now)
    nodes, processes, failures = (_list(status, name) for name in ("nodes", "processes", "failures"))
    if everything or (len(nodes) <= LISTED and len(processes) <= 2 * LISTED):
        lines += _listed(nodes, processes, now)
    else:
        failed = {one.get("process") for one in failures}
        odd = [
            one
            for one in processes
            if one.get("name") in failed or (not job.ended and (one.get("code") or one.get("signal")))
        ]
        lines += [_count("nodes", nodes), *_summed_up(processes)]
        lines += _listed([one for one in nodes if one.get("error")][:ODD], odd[:ODD], now)
        lines.append(f"  details of each: {PROGRAM} status {job.title} --all")
    causes: dict[str, list[str]] = {}
    for one in failures:
        name = f"{visible(str(one.get('process') or 'node'))} on {visible(str(one.get('node')))}"
        causes.setdefault(visible(str(one.get("what"))), []).append(name)
    lines += [f"  failed: {names(found, 0)}: {what}" for what, found in causes.items()]
    if not failures:
        lines += [f"  {visible(str(line))}" for line in status.get("why") or ()]
    left = [visible(str(line)) for line in status.get("left") or ()]
    return lines + [f"  {line}" for line in (left if everything else shortened(left, job.title))]


def _listed(
    nodes: Sequence[Mapping[str, Any]], processes: Sequence[Mapping[str, Any]], now: float
) -> list[str]:
    """Return one line per node, then one per process, then the last output of each process."""
    lines = []
    if nodes:
        lines += views.status_table(views.NODES, nodes, now)
    if processes:
        lines += views.status_table(views.PROCESSES, processes, now)
        said = [(str(one.get("name")), str(one.get("last_line") or "")) for one in processes]
        lines += [f"  last line of {name}: {visible(line)[:_SHOWN_LINE]}" for name, line in said if line]
    return lines


def _summed_up(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line per role, and the progress of the trainers."""
    lines = []
    for role in dict.fromkeys(str(one.get("role")) for one in processes):
        found = [one for one in processes if str(one.get("role")) == role]
        line = _count(f"{role}s", found)
        steps = [one for one in found if _has_step(one)]
        if steps:
            last, first = (choose(steps, key=_step) for choose in (min, max))
            speeds = [speed for one in steps if (speed := views.running_speed(one)) is not None]
            line += (
                f"; slowest: {last.get('name')} on {last.get('node')}, at {_step_text(last)}; fastest "
                f"at {_step_text(first)}"
            ) + (f"; {speed_text(sum(speeds))}" if speeds else "")
        lines.append(visible(line))
    return lines


def _count(what: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Format the number of processes by state, such as " 256 trainers: 255 running, 1 exited, code 1"."""
    states = Counter(state_text(one) for one in found)
    return visible(
        f"  {len(found)} {what}: " + "; ".join(f"{count} {state}" for state, count in states.most_common())
    )


def _step(fields: Mapping[str, Any]) -> tuple[int, int]:
    return int(fields.get("pass_id") or 0), int(fields["batch_id"])


def _has_step(fields: Mapping[str, Any]) -> bool:
    return isinstance(fields.get("batch_id"), int)


def _step_text(fields: Mapping[str, Any]) -> str:
    return step_text(fields.get("pass_id"), fields["batch_id"])


def as_json(job: KnownJob) -> dict[str, Any]:
    """Return a job as JSON values: job.json, status.json, and whether its launcher is running."""
    return {**job.record.as_json(), "running": job.running, "state": job.describe(), "status": job.status}


def on_nodes(known: Known, now: float) -> list[str]:
    """Describe the jobs that nodes reported, and the agents that wait for one."""
    rows = [
        (
            job.job_id,
            job.node.name,
            "running" if not job.over else f"ended: {job.ended}" if job.ended else "died",
            ", ".join(job.node.roles) or counted(len(job.running), "process"),
            ago(now - job.since) if job.since else "",
            job.launcher.describe() if job.launcher.pid else "",
            job.node.job_dir,
        )
        for job in sorted(known.jobs, key=lambda job: (job.job_id, job.node.node_id))
    ]
    lines = []
    if rows:
        lines = table(("job", "node", "state", "processes", "age", "launcher", "job directory"), rows, set())
    else:
        lines = ["no job is known on the nodes that answered"]
    lines += [f"{one.node.name}: {one.describe()}" for one in known.residents]
    return lines + [f"! {answer.node.name}: {visible(answer.error)}" for answer in known.failed]


def health(job: KnownJob, now: float) -> list[str]:
    """Return warnings if the launcher has exited or has stopped updating the job's state."""
    if job.ended:
        return []
    heard = job.status.get("updated_at")
    heard_s = now - heard if isinstance(heard, (int, float)) else None
    last = "" if heard_s is None else f"; the status below is {ago(heard_s)} old"
    if job.running is None:
        return [
            f"  its launcher runs on {job.record.launcher.host}, which cannot be checked from this machine{last}"
        ]
    if not job.running:
        return [
            f"  its launcher exited without a message; its nodes stop within {job.record.lease_s:g} s{last}",
            f"  check: {PROGRAM} status --nodes {job.job_id}; stop it: {PROGRAM} stop {job.job_id}",
        ]
    if heard_s is not None and heard_s > STALE_S:
        return [
            f"  its launcher has written nothing for {ago(heard_s)}: it may be hung or stopped, or its disk may be full"
        ]
    return []


def progress_of(status: Mapping[str, Any]) -> str:
    """Return the progress of the slowest trainer as text; "" if no trainer has reported any."""
    steps = [one for one in _list(status, "processes") if _has_step(one)]
    if not steps:
        return ""
    return _step_text(min(steps, key=_step))


def _list(status: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = status.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _labeled(label: str, text: str) -> list[str]:
    return [label + visible(text)] if text else []
