# SPDX-License-Identifier: Apache-2.0
"""Formats a plan as text for --dry_run: the settings that a role's processes share, and one line per process."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from paddle_cluster.config import requirements, workspace
from paddle_cluster.config.conf_file import shown_path
from paddle_cluster.config.engines import ENGINES
from paddle_cluster.config.options import Mode
from paddle_cluster.config.script_habits import (
    ADDRESS,
    SAMPLES,
    empty_variables,
    fixed_world_sizes,
    harmful,
    hidden_errors,
    reading,
    trains_alone,
    unset_ranks,
    unused_main,
)
from paddle_cluster.config.shell_scripts import started_launchers
from paddle_cluster.config.workspace import hiding_files, unprepared_commands
from paddle_cluster.plan.environment import ADDED_ON_NODE, too_long_message
from paddle_cluster.plan.plan import (
    Plan,
    Process,
    Role,
    planned_addresses,
    planned_endpoints,
    pserver_processes,
    trainer_processes,
    values_in_files,
)
from paddle_cluster.text.sizes import counted
from paddle_cluster.text.wrapping import table, visible
from paddle_node.contract.names import JOB_KEY

_HIDDEN = "***"
_UNSET = "(unset)"
_MADE_OF = {
    "TF_CONFIG": "(PADDLE_TRAINER_ENDPOINTS as workers, RANK as index)",
    "DMLC_TASK_ID": "(RANK with leading zeros)",
}
_MOST_ITEMS = 12
_MOST_GIVEN = 500  # characters of the trainers' arguments
_KEPT_AT_START, _KEPT_AT_END = 4, 1

# The heading of a column with several names; otherwise, the alphabetically first name.
_HEADINGS = ("RANK", "LOCAL_RANK", "NODE_RANK", "PADDLE_NODE_ID", "PADDLE_CURRENT_ENDPOINT", "POD_IP")


def describe(plan: Plan, files: Sequence[str] = ()) -> str:
    """Format the whole plan as text, as far as it is known before any connection.

    Args:
        files: lines about the files to send.
    """
    addresses = planned_addresses(plan)
    pservers = pserver_processes(plan, addresses)
    trainers = trainer_processes(plan, addresses, planned_endpoints(plan, addresses))
    lines = [*_head(plan), *files, ""]
    for processes in (pservers, trainers):
        if processes:
            lines += [*_group(plan, processes), ""]
    lines += _footnotes(plan)
    return "\n".join(lines) + "\n"


def opening(plan: Plan) -> str:
    """Return the first lines that a job prints: the source of its hosts, the trainers' arguments, and warnings."""
    entry = plan.settings.job.entry.text
    return "\n".join([host_sources_text(plan), f"{entry} gets {_given(plan)}", *_warnings(plan)])


def _given(plan: Plan) -> str:
    """Return the trainers' command-line arguments, shortened."""
    given = visible(shlex.join(plan.settings.job.passthrough)) or "no arguments"
    more = f" ... ({len(given) - _MOST_GIVEN} more characters)" if len(given) > _MOST_GIVEN else ""
    return given[:_MOST_GIVEN] + more


def _warnings(plan: Plan) -> Iterator[str]:
    """Yield a line about each habit of the workspace or the arguments that probably has an unwanted effect."""
    job = plan.settings.job
    entry, package = job.entry.text, job.package
    if not plan.mode.has_pserver_command and "resume" in dict(job.flags):
        yield (
            f"--resume is only passed on to {entry}: in {plan.mode} mode, the script itself loads what it saved in "
            "PADDLE_CHECKPOINT_DIR; --keep_as=NAME keeps those files on the nodes"
        )
    if package is None:
        return
    if job.name and (reader := reading(job.entry, package, "--name", job.passthrough)):
        yield (
            f"WARNING: --name={job.name} names the job. To pass it to {reader}, which also has --name, put it after --"
        )
    for file in hiding_files(package):
        yield f"WARNING: {file} hides the package {file.stem} from every process of the job: rename the file"
    for place, command, definition in unprepared_commands(job.entry, package):
        yield (
            f"WARNING: {place}: a job has no login shell, so `{command}` is probably not defined: before this line, "
            f"read the file that defines it, for example with `. {definition}`"
        )
    for place, text in (
        *hidden_errors(job.entry, package),
        *empty_variables(job.entry, package, job.variables.names),
    ):
        yield f"WARNING: {place}: {text}"
    if len(plan.trainer_nodes) > 1:
        for place, text in started_launchers(job.entry, package, len(plan.nodes)):
            yield f"WARNING: {place} {text}"
    if plan.mode is not Mode.V1 and (unused := unused_main(job.entry, package)):
        yield f"WARNING: {unused}, so the job probably does nothing"
    if plan.mode in (Mode.V2, Mode.FLUID) and len(plan.trainer_nodes) > 1:
        given = {token.lstrip("-").partition("=")[0] for token in job.passthrough}
        for place, text in unset_ranks(job.entry, package, given):
            yield f"WARNING: {place}: {text}"
    ranks = len(plan.trainer_nodes) if plan.mode is Mode.COLLECTIVE else 1
    if plan.mode is Mode.COLLECTIVE:
        for place, size in fixed_world_sizes(job.entry, package):
            if size != ranks:
                yield (
                    f"WARNING: {place}: world_size={size}, but the job has {counted(ranks, 'rank')}: leave out "
                    "world_size and rank, which PyTorch reads from WORLD_SIZE and RANK"
                )
    if ranks > 1:
        imported, files = workspace.sources(job.entry, package)
        if trains_alone(imported, files):
            yield (
                f"WARNING: each of {ranks} ranks will train alone: {entry} imports torch, but never calls "
                "torch.distributed.init_process_group"
            )
        harmless = {SAMPLES} if job.shard_dirs else set[str]()
        harmless |= {ADDRESS} if len(plan.nodes) == 1 else set()
        for place, text in harmful(imported, files, harmless):
            yield f"WARNING: {place}: {text}"


def host_sources_text(plan: Plan) -> str:
    """Return a text about the sources of the hosts and of other settings."""
    sources, file = plan.settings.sources, plan.settings.conf
    conf = shown_path(file) if file is not None else "the defaults (no conf.py)"
    some = f"{len(plan.nodes)} of the " if sources.total > len(plan.nodes) else ""
    rest = "" if conf == sources.hosts else f"; other settings from {conf}"
    remarks = [*sources.remarks, *_unused_resident(plan)]
    return "\n".join([f"{some}{counted(sources.total, 'node')} from {sources.hosts}{rest}", *remarks])


def _unused_resident(plan: Plan) -> Iterator[str]:
    has_residents = ENGINES[plan.settings.cluster.engine].has_residents and not plan.nodes[0].host.is_local
    if plan.settings.engines.resident_s and not has_residents:
        yield "RESIDENT_S has no effect here: agents stay only on nodes reached over SSH"


def _head(plan: Plan) -> Iterator[str]:
    settings = plan.settings
    name = f"{settings.job.name}, " if settings.job.name else ""
    yield f"job {name}{plan.job_id}, mode {plan.mode}, wire {settings.cluster.wire}"
    yield host_sources_text(plan)
    if settings.job.package is not None:
        yield f"dispatch {settings.job.package}" + (
            f", by shard: {', '.join(settings.job.shard_dirs)}" if settings.job.shard_dirs else ""
        )
    else:
        yield "nothing is dispatched: the workspace is already on the nodes"
    yield from _bootstrap(plan)
    for node in plan.nodes:
        yield f"node {node.node_id}  {node.host.describe()}  {node.job_dir}"


def _bootstrap(plan: Plan) -> Iterator[str]:
    """Yield lines about the packages that --bootstrap sends to the nodes."""
    if plan.settings.job.bootstrap:
        asked = requirements.of_workspace(plan.settings.job.package)
        more = f" and the packages in {asked.path}" if asked is not None else ""
        yield f"bootstrap {', '.join(requirements.NODE_PACKAGES)} of the lock file{more},"
        yield "  downloaded by pip for each node's platform, unpacked below ROOT_DIR/.paddle/environments"


def _group(plan: Plan, processes: Sequence[Process]) -> Iterator[str]:
    """Yield lines about all processes of one role."""
    columns: dict[str, list[str]] = {
        "process": [
            f"{process.name} on node {process.node_id} ({plan.node(process.node_id).label})"
            for process in processes
        ]
    }
    yield f"{len(processes)} {_word(processes)}"
    yield f"  argv   {_argv(processes, columns)}"
    same, others = _environment(plan, processes, columns)
    for name, value in sorted(same.items()):
        yield f"  env    {name}={_folded(value)}"
    _add(columns, "ports", [", ".join(str(port) for port in process.ports) for process in processes])
    _add(columns, "log", [process.log for process in processes])
    yield ""
    rows = list(zip(*columns.values(), strict=True))
    yield from table(tuple(columns), rows, frozenset())
    for name, aliases in others.items():
        yield f"  {name} is also {', '.join(aliases)}"


def _word(processes: Sequence[Process]) -> str:
    word = "trainer" if processes[0].role is Role.TRAINER else "pserver"
    return word if len(processes) == 1 else f"{word}s"


def _argv(processes: Sequence[Process], columns: dict[str, list[str]]) -> str:
    """Return the command line for display; it is never executed. A word that differs by process becomes a column."""
    words = []
    for position, texts in enumerate(zip(*(process.argv for process in processes), strict=True)):
        if len(set(texts)) == 1:
            words.append(shlex.quote(texts[0]))
            continue
        option, equals, _ = texts[0].partition("=")
        is_option = bool(equals) and all(text.startswith(option + equals) for text in texts)
        name = f"<{option.lstrip('-')}>" if is_option else f"<argv {position}>"
        columns[name] = [text.removeprefix(option + equals) if is_option else text for text in texts]
        words.append(f"{option}{equals}{name}" if is_option else name)
    return " ".join(words)


def _environment(
    plan: Plan, processes: Sequence[Process], columns: dict[str, list[str]]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the common variables and the aliases of columns; add variables that differ by process to the columns."""
    added = {name: _HIDDEN if name == JOB_KEY else "(on the node)" for name in ADDED_ON_NODE}
    made = {name: text for name, text in _MADE_OF.items() if name in processes[0].env}
    shown = [
        {**process.env, **made, **added}
        | dict.fromkeys(plan.settings.variables_of(process.node_id).names, _HIDDEN)
        for process in processes
    ]
    same: dict[str, str] = {}
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in sorted({name for env in shown for name in env}):
        values = tuple(env.get(name, _UNSET) for env in shown)
        if len(set(values)) == 1:
            same[name] = values[0]
        else:
            groups.setdefault(values, []).append(name)
    aliases = {}
    for values, names in sorted(groups.items(), key=lambda group: _place(group[1])):
        heading = next((name for name in _HEADINGS if name in names), names[0])
        columns[heading] = list(values)
        if len(names) > 1:
            aliases[heading] = [name for name in names if name != heading]
    return same, aliases


def _place(names: Sequence[str]) -> tuple[int, str]:
    """Return the sort key of a column with these names."""
    return min((_HEADINGS.index(name) for name in names if name in _HEADINGS), default=99), names[0]


def _add(columns: dict[str, list[str]], name: str, values: list[str]) -> None:
    if any(values):
        columns[name] = values


def _folded(value: str) -> str:
    """Shorten a list with many items."""
    items = value.split(",")
    if len(items) <= _MOST_ITEMS:
        return value
    left_out = len(items) - _KEPT_AT_START - _KEPT_AT_END
    return ",".join([*items[:_KEPT_AT_START], f"... {left_out} more ...", *items[-_KEPT_AT_END:]])


def _footnotes(plan: Plan) -> Iterator[str]:
    yield (
        "Addresses, interfaces, thread counts and GPUs become known when the nodes have answered; "
        "a port in use is replaced by the next free one."
    )
    if plan.pserver_ports.spare:
        yield (
            "If the pservers' port is in use on one node, all pservers get the next port that is "
            "free on every node."
        )
    elif plan.pserver_nodes and not plan.settings.cluster.port_is_explicit:
        yield "A pserver whose ports are in use takes the next free ones and informs the trainers."
    yield from map(too_long_message, values_in_files(plan, planned_addresses(plan)))
    if any(plan.settings.variables_of(node.node_id).names for node in plan.nodes):
        yield "Your own variables are shown as ***; only the processes receive them."
    yield from _warnings(plan)
    yield "This was a dry run: no connection was made and nothing was written."
