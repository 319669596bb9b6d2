# SPDX-License-Identifier: Apache-2.0
"""Resolves the settings of a job from conf.py, the environment and the command line, in increasing precedence.

It makes no connection and writes no file.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from paddle_cluster.config import entry as entries
from paddle_cluster.config import host_settings
from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.conf_file import CONF_VARIABLE, ConfFile, Layers, conf_path, read_conf
from paddle_cluster.config.engines import ENGINES, NodeRequest
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.host_settings import HostSettings
from paddle_cluster.config.hosts import LOCAL, Host, HostList, count_question
from paddle_cluster.config.options import BY_KEY, Mode
from paddle_cluster.config.remarks import remarks
from paddle_cluster.config.settings import GROUPS, OPENBLAS_POLLING, THREAD_VARIABLES, Settings, Sources
from paddle_cluster.config.values import ValueMismatchError, inside, mismatch
from paddle_cluster.config.variables import files as variable_files
from paddle_cluster.config.variables import read as read_variables
from paddle_cluster.errors import ConfError, UsageError
from paddle_cluster.system.state_dir import places
from paddle_cluster.text.sizes import counted
from paddle_node.contract.classes import regex, replace
from paddle_node.contract.flags import PSERVER_FLAGS, value_of

_LISTS = regex(
    r"/|(?:hosts|nodes|machines|inventory)$|(?:host|node|machine)s?_?(?:file|list)|\.(?:txt|ini|cfg)$"
)
_CONFIG = regex(r"--?config(=|$)")
_IN_CONF = frozenset(row.flag for row in BY_KEY.values())  # checked with the names in conf.py
_NO_HOSTS = {
    "all": "leave it out to use all hosts of conf.py",
    "this": "for this machine, give --hosts=local",
}
_BARE = "; a flag without a value is True"
_RESUME = regex(r"latest|auto|[0-9]+(\.[\w.-]+)?")
MOST_A_MACHINE = 4096  # trainers
MAX_LOCAL = 250  # each has its own address, from 127.0.0.2 on


def resolve(arguments: Arguments, environ: Mapping[str, str]) -> Settings:
    """Merge conf.py, the environment and the command line, and return the complete settings.

    Raises:
        ConfError: a layer contains errors; the message has one line per error, with file:line, variable or option.
    """
    only = ",".join(arguments["hosts"] or ())
    if os.path.isfile(only) and _LISTS.search(only):  # a file can also have the name of a host
        raise ConfError("--hosts", f"{only} is a file; give --hostfile={only}")
    path = conf_path(arguments, environ)
    if path and not (arguments["conf"] or os.path.lexists(path)) and environ.get(CONF_VARIABLE):
        raise ConfError(f"environment variable {CONF_VARIABLE}", f"{path}: no such file; correct or unset it")
    arguments = _with_mode(arguments)
    layers = Layers(read_conf(path) if path else ConfFile(), arguments, environ)
    engine = ENGINES[arguments["engine"]]
    is_named_here = arguments["hostfile"] is None and engine.hosts is None
    read = layers.read(key for key in BY_KEY if key != "HOSTS" or is_named_here)
    found = _hosts(layers, read)
    roles = _roles(layers, found, read)
    own: dict[int, HostSettings] = {}
    if given := read["HOST_SETTINGS"]:
        others_are_known = not is_named_here or arguments["hosts"] is not None
        where = partial(layers.conf.where, "HOST_SETTINGS")
        try:
            own = host_settings.of_nodes(given, found, where, others_are_known)
        except ValueMismatchError as error:
            layers.report("HOST_SETTINGS", error)
    for name, message in _problems(found, read, arguments):
        is_elsewhere = name == "HOSTS" and not found.is_conf
        layers.add(
            *((found.source, message) if is_elsewhere else (layers.conf.where(name), f"{name}: {message}"))
        )
    layers.raise_any()
    ids = _chosen(arguments, found)
    listed, numbers = found.of(ids), {node_id: number for number, node_id in enumerate(ids)}
    own = {numbers[node_id]: one for node_id, one in own.items() if node_id in numbers}
    roles = _renumbered(layers, roles, numbers)
    each, least = arguments["nproc_per_node"], arguments["min_trainers"]
    slots = listed.slots if arguments["mode"] is Mode.COLLECTIVE and each is None else {}
    trainers = sum(slots.get(node_id, each or 1) for node_id in roles["TRAINERS"])
    if least is not None and least > trainers:
        layers.add("--min_trainers", f"expected at most {trainers}, the number of trainers, got {least}")
    for name, problem in _wrong_flags(arguments):
        layers.add(name, problem)
    layers.raise_any()
    variables = {node_id: [(*one, said.where) for one in said.env] for node_id, said in own.items()}
    for_all, for_hosts = read_variables(arguments, environ, listed.hosts[0].is_local, variables)
    chosen = {name for one in (for_all, *for_hosts.values()) for name in one.names}
    derived = {
        "cluster.hosts": listed.hosts,
        "cluster.pservers": () if arguments["mode"] is Mode.COLLECTIVE else roles["PSERVERS"],
        "cluster.trainers": roles["TRAINERS"],
        "cluster.port_is_explicit": arguments.flag("port") is not None,
        "cluster.own": own,
        "cluster.slots": slots,
        "ssh.host_keys": tuple(
            (listed.hosts[node_id].describe(), key)
            for node_id, key in {**listed.keys, **{node_id: one.key for node_id, one in own.items()}}.items()
            if key is not None
        ),
        "job.mode": arguments["mode"],
        "job.mode_is_explicit": "mode" in arguments.given,
        "job.entry": _entry(arguments),
        "job.passthrough": arguments.passthrough,
        "job.flags": arguments.flags,
        "job.threads": tuple(
            (name, environ[name]) for name in (*THREAD_VARIABLES, OPENBLAS_POLLING[0]) if environ.get(name)
        ),
        "job.variables": for_all,
        "job.host_variables": for_hosts,
        "job.env_files": variable_files(arguments),
        "job.nproc_per_node": each or 1,
        "engines.slurm_job": environ.get("SLURM_JOB_ID", ""),
        "engines.waits_for_nodes": listed.is_requested,
        "engines.start_timeout_s": read[engine.start_timeout],
        "conf": path and path.absolute(),
        "sources": Sources(
            hosts=listed.source,
            total=listed.total,
            lines=listed.lines,
            names=layers.origins,
            remarks=(
                *_unused_settings(layers, read["HOST_SETTINGS"], listed),
                *remarks(arguments, listed, read, path, environ, chosen),
            ),
        ),
        "state": places(environ),
    }
    rows = {row.target: read[key] for key, row in BY_KEY.items() if row.target and key in read}
    return _settings({**rows, **derived})


def _unused_settings(layers: Layers, given: host_settings.Given, used: HostList) -> Iterator[str]:
    """Yield a warning about each entry of HOST_SETTINGS for a host that is neither in HOSTS nor in the job."""
    hosts = layers.conf.values.get("HOSTS")
    listed = [str(one) for one in hosts] if isinstance(hosts, list | tuple) else []
    names = {part for one in listed for part in (one, one.rpartition("@")[2].partition(":")[0])}
    for index, (reference, _) in enumerate(given):
        if names and isinstance(reference, str) and reference not in names and not used.ids(reference):
            where = layers.conf.where("HOST_SETTINGS", index)
            yield f"WARNING: {where}: HOST_SETTINGS[{reference!r}] has no effect: HOSTS has no such host"


def _hosts(layers: Layers, read: Mapping[str, Any]) -> HostList:
    """Return all hosts: from --hostfile, the engine, or HOSTS or --hosts."""
    arguments, conf = layers.arguments, layers.conf
    if arguments["hostfile"] is not None:
        from paddle_cluster.config.hostfile import read_hostfile

        return read_hostfile(arguments["hostfile"])
    engine_hosts = ENGINES[arguments["engine"]].hosts
    if engine_hosts is not None:
        given = conf.where("HOSTS") if "HOSTS" in conf.values else ""
        return engine_hosts(NodeRequest(arguments["nnodes"], layers.environ, read, conf.where, given))
    hosts, origin = read["HOSTS"], layers.origins["HOSTS"]
    if origin == "--hosts":
        if advice := _NO_HOSTS.get(hosts[0].text if len(hosts) == 1 else ""):
            raise ConfError(origin, f"{advice}; for a host with this name, write user@{hosts[0].text}")
        if question := next(filter(None, map(count_question, hosts)), ""):
            raise ConfError(origin, question)
        return HostList(hosts, (origin,) * len(hosts), origin)
    lines = tuple(conf.where("HOSTS", index) for index in range(len(hosts)))
    return HostList(hosts, lines, conf.shown, is_conf=True)


def _settings(found: Mapping[str, Any]) -> Settings:
    """Return Settings from a mapping of target -> value."""
    parts = defaultdict[str, dict[str, Any]](dict)
    for target, value in found.items():
        group, _, field = target.rpartition(".")
        parts[group][field] = value
    for name, group_type in GROUPS.items():
        group, _, field = name.rpartition(".")
        parts[group][field] = group_type(**parts[name])
    return Settings(**parts[""])


def _roles(layers: Layers, listed: HostList, read: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the node IDs of PSERVERS and TRAINERS, and record errors in the layers."""
    roles = {}
    for name in ("PSERVERS", "TRAINERS"):
        if layers.arguments["hosts"] and read[name] is not None:
            layers.add(
                layers.conf.where(name),
                f"{name} names entries of this file's HOSTS, but --hosts gives other hosts; remove "
                "it, or write a conf.py for these hosts",
            )
            continue
        try:
            roles[name] = _selected(read[name], listed)
        except ValueMismatchError as error:
            layers.report(name, error)
    return roles


def _renumbered(
    layers: Layers, roles: Mapping[str, Sequence[int]], numbers: Mapping[int, int]
) -> dict[str, tuple[int, ...]]:
    """Return the roles of the selected hosts with their new IDs; record a role without hosts as an error."""
    found = {}
    for name, nodes in roles.items():
        found[name] = tuple(numbers[node_id] for node_id in nodes if node_id in numbers)
        if not found[name] and (name == "TRAINERS" or layers.arguments["mode"] is not Mode.COLLECTIVE):
            layers.add(
                layers.conf.where(name),
                f"{name}: none of its hosts is among the {len(numbers)} that take part in the job",
            )
    return found


def _chosen(arguments: Arguments, listed: HostList) -> tuple[int, ...]:
    """Return the IDs of the hosts to use: --include without --exclude, and of these the first --nnodes.

    Raises:
        ConfError: an unknown host, no remaining host, or fewer hosts than --nnodes.
    """
    included = _named("include", arguments["include"], listed) or set(range(len(listed.hosts)))
    left = sorted(included - _named("exclude", arguments["exclude"], listed))
    if not left:
        raise ConfError(
            "--exclude",
            f"it excludes all {counted(len(included), 'host')}; leave at least one",
        )
    nnodes = arguments["nnodes"]
    if nnodes is not None and nnodes > len(left):
        raise ConfError("--nnodes", f"expected at most {len(left)} (the number of hosts), got {nnodes}")
    return tuple(left[:nnodes])


def _named(option: str, words: Sequence[str], listed: HostList) -> set[int]:
    found = set()
    for word in words:
        try:
            found.add(listed.node_of(int(word) if word.isdecimal() and len(word) < 8 else word))
        except ValueMismatchError as error:
            name, _, slots = word.rpartition(":")
            hint = "; it selects hosts. List files in .paddleignore" * ("*" in word)
            if listed.ids(name) and slots.isdecimal():
                hint = f"; to choose GPUs, set CUDA_VISIBLE_DEVICES of {name} in HOST_SETTINGS"
            said = f"{word!r} is not in {listed.called}{hint}" if hint else str(error)
            raise ConfError(f"--{option}", said) from None
    return found


def _selected(references: Sequence[str | int] | None, listed: HostList) -> tuple[int, ...]:
    """Return the node IDs of PSERVERS or TRAINERS in ascending order; all nodes if conf.py does not assign the name.

    Raises:
        ValueMismatchError: a reference matches no node, several, or one that another reference names too.
    """
    if references is None:
        return tuple(range(len(listed.hosts)))
    if not references:
        raise mismatch("at least one node; to assign every node, omit the name", [])
    selected = set[int]()
    for index, reference in enumerate(references):
        try:
            node_id = listed.node_of(reference)
            if node_id in selected:
                raise ValueMismatchError(f"{reference!r} is node {node_id}, which is already listed")
        except ValueMismatchError as error:
            error.index = index
            raise
        selected.add(node_id)
    return tuple(sorted(selected))


def _problems(listed: HostList, read: Mapping[str, Any], arguments: Arguments) -> Iterator[tuple[str, str]]:
    """Yield (conf name, message) for conflicts between values that are valid by themselves."""
    hosts = listed.hosts
    if not hosts:
        yield (
            "HOSTS",
            "expected at least one host, got an empty list; write its hosts, such as ['root@10.1.9.7'], or give "
            "--hosts=HOST[,HOST] or --hostfile=FILE",
        )
        return
    yield from (("HOSTS", message) for message in _host_problems(hosts))
    last_port = read["PADDLE_PORT"] + read["PADDLE_PORTS_NUM"] + read["PADDLE_PORTS_NUM_FOR_SPARSE"] - 1
    if arguments["mode"] is not Mode.FLUID and last_port > 65535:  # a Fluid script uses one port
        yield (
            "PADDLE_PORT",
            f"{read['PADDLE_PORT']} with PADDLE_PORTS_NUM {read['PADDLE_PORTS_NUM']} and "
            f"PADDLE_PORTS_NUM_FOR_SPARSE {read['PADDLE_PORTS_NUM_FOR_SPARSE']} ends at {last_port}; "
            "expected at most 65535",
        )
    each = arguments["nproc_per_node"] or max(listed.slots.values(), default=1)
    on_one = each * (len(hosts) if hosts[0].is_local else 1)
    if on_one > MOST_A_MACHINE:
        yield (
            "HOSTS",
            f"expected at most {MOST_A_MACHINE} trainers per machine, got {on_one} (--nproc_per_node)",
        )
    workspace = arguments["job_workspace"] or ""
    if len(hosts) > 1 and hosts[0].is_local and workspace.startswith(("/", "~")):
        yield (
            "HOSTS",
            (
                f"all {len(hosts)} local nodes would use {workspace}; give a path below each node's "
                "own directory, such as --job_workspace=JOB20260101120000-abcdef"
            ),
        )


def _with_mode(arguments: Arguments) -> Arguments:
    """Add --mode=v1 if --config is given and the workspace lacks the script that other modes run."""
    package = arguments["job_dispatch_package"]
    is_said = "mode" in arguments.given or "entry" in arguments.given
    if is_said or package is None or not _config(arguments) or (package / entries.DEFAULT).exists():
        return arguments
    return replace(arguments, given={**arguments.given, "mode": Mode.V1})


def _config(arguments: Arguments) -> str:
    """Return the value of --config among the trainers' flags, before or after `--`; "" if not given."""
    words = arguments.passthrough
    texts = (
        word.partition("=")[2] or following
        for word, following in pairwise((*words, ""))
        if _CONFIG.match(word)
    )
    return next(texts, "")


def _entry(arguments: Arguments) -> Entry:
    """Return the program that the trainers run: with --mode=v1, the configuration that `paddle train` reads.

    Raises:
        UsageError: --mode=v1 has no configuration, or also a script.
    """
    if arguments["mode"] is not Mode.V1:
        found: Entry = arguments["entry"]
        return found
    config = _config(arguments)
    if "entry" in arguments.given or not config:
        raise UsageError(
            "--mode=v1 trains a configuration file with `paddle train`: give "
            "--config=trainer_config.py and omit --entry"
        )
    try:
        return Entry(path=inside(config))
    except ValueError as error:
        raise UsageError(f"--config: {error}") from error


def _wrong_flags(arguments: Arguments) -> Iterator[tuple[str, str]]:
    """Yield the invalid flags of pservers, with the reason. Without this check, each pserver would report the error."""
    if not arguments["mode"].has_pserver_command:
        return
    for name, text in arguments.flags:
        if name in PSERVER_FLAGS and name not in _IN_CONF:
            try:
                value_of(PSERVER_FLAGS[name], text)
            except ValueError as error:
                yield f"--{name}", f"{error}{_BARE if text == 'True' else ''}"
    if (resume := arguments.flag("resume")) and not arguments.flag("checkpoint_dir"):
        yield "--resume", "needs --checkpoint_dir=DIR, the directory of the checkpoints"
    elif resume and not _RESUME.fullmatch(resume):
        bare = _BARE if resume == "True" else ""
        yield "--resume", f"expected latest, auto or a batch number, got {resume!r}{bare}"
    if (arguments.flag("checkpoint_period") or "0") != "0" and not arguments.flag("checkpoint_dir"):
        yield (
            "--checkpoint_period",
            "needs --checkpoint_dir=DIR, a directory on the nodes that outlives the job",
        )


def _host_problems(hosts: Sequence[Host]) -> Iterator[str]:
    local = sum(host.is_local for host in hosts)
    if 0 < local < len(hosts):
        other = next(host for host in hosts if not host.is_local).describe()
        yield (
            f"'{LOCAL}' and other machines cannot be mixed: {other!r} cannot reach 127.0.0.x. Check its spelling, "
            f"or write this machine's name or address instead of '{LOCAL}'"
        )
    if local > MAX_LOCAL:
        yield f"expected at most {MAX_LOCAL} local nodes, got {local}"
    counts = Counter((host.user, host.name.lower(), host.port) for host in hosts if not host.is_local)
    for user, name, port in (key for key, count in counts.items() if count > 1):
        here = "; for several nodes on this machine: --hosts=local,local" * (
            name in ("localhost", "127.0.0.1")
        )
        twice = Host("", user, name, port, is_local=False).describe()
        yield (
            f"{twice!r} is listed {counts[user, name, port]} times; list every host once (for "
            f"several trainers on each host: --nproc_per_node=N{here})"
        )
