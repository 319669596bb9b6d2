# SPDX-License-Identifier: Apache-2.0
"""Settings of one job: conf.py < environment < command line, resolved once, checked together.

No connection is made and no file is written here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from paddle_cluster.config import host_settings, values
from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.conf_file import ConfFile, conf_path, read_conf
from paddle_cluster.config.engines import ENGINES, NodeRequest
from paddle_cluster.config.hostfile import read_hostfile
from paddle_cluster.config.layers import Layers
from paddle_cluster.config.options import BY_KEY, Mode
from paddle_cluster.config.roles import check_cluster, choose, named, roles_of, wrong_resume
from paddle_cluster.config.selection import HostList
from paddle_cluster.config.settings import GROUPS, THREAD_VARIABLES, Settings, Sources
from paddle_cluster.config.variables import files as variable_files
from paddle_cluster.config.variables import read as read_variables
from paddle_cluster.system.state_dir import places


def resolve(arguments: Arguments, environ: Mapping[str, str]) -> Settings:
    """Reads the files of the configuration and puts the three layers together.

    Raises:
        ConfError: everything that is wrong in the three, one line each, with file:line, variable or option.
    """
    path = conf_path(arguments, environ)
    conf = read_conf(path) if path else ConfFile()
    layers = Layers(conf, arguments, environ)
    engine, hostfile = ENGINES[arguments["engine"]], arguments["hostfile"]
    is_named_here = hostfile is None and engine.hosts is None
    read = layers.read(key for key in BY_KEY if key != "HOSTS" or is_named_here)
    if hostfile is not None:
        elsewhere = read_hostfile(hostfile)
    elif engine.hosts is not None:
        given = conf.where("HOSTS") if "HOSTS" in conf.values else ""
        elsewhere = engine.hosts(NodeRequest(arguments["nnodes"], environ, read, conf.where, given))
    else:
        elsewhere = named(layers, read["HOSTS"])
    others_are_known = not is_named_here or arguments["hosts"] is not None
    roles = roles_of(layers, arguments, elsewhere, read)
    try:
        read["own"] = host_settings.of_nodes(
            read["HOST_SETTINGS"], elsewhere, partial(conf.where, "HOST_SETTINGS"), others_are_known
        )
    except values.ValueMismatchError as error:
        layers.report("HOST_SETTINGS", error)
    for name, message in check_cluster(elsewhere, read, arguments):
        is_elsewhere = name == "HOSTS" and not elsewhere.is_conf
        layers.add(
            *((elsewhere.source, message) if is_elsewhere else (conf.where(name), f"{name}: {message}"))
        )
    layers.raise_any()
    listed = choose(layers, arguments, elsewhere, read, roles)
    one, least = read["nproc_per_node"], read["min_trainers"]
    slots = listed.slots if read["mode"] is Mode.COLLECTIVE and one is None else {}
    trainers = sum(slots.get(node_id, one or 1) for node_id in roles["TRAINERS"])
    if least is not None and least > trainers:
        layers.add(
            "--min_trainers", f"expected at most {trainers}, as many trainers as the job has, got {least}"
        )
    if problem := wrong_resume(arguments):
        layers.add("--resume", problem)
    layers.raise_any()
    own = read["own"]
    variables = {node_id: [(*one, said.where) for one in said.env] for node_id, said in own.items()}
    for_all, for_hosts = read_variables(arguments, environ, listed.hosts[0].is_local, variables)
    derived = {
        "cluster.hosts": listed.hosts,
        "cluster.pservers": () if read["mode"] is Mode.COLLECTIVE else roles["PSERVERS"],
        "cluster.trainers": roles["TRAINERS"],
        "cluster.port_is_explicit": arguments.flag("port") is not None,
        "cluster.own": own,
        "cluster.slots": slots,
        "ssh.host_keys": host_settings.keys(listed.hosts, own),
        "job.mode_is_explicit": "mode" in arguments.given,
        "job.passthrough": arguments.passthrough,
        "job.flags": arguments.flags,
        "job.threads": tuple((name, environ[name]) for name in THREAD_VARIABLES if environ.get(name)),
        "job.variables": for_all,
        "job.host_variables": for_hosts,
        "job.env_files": variable_files(arguments),
        "job.nproc_per_node": one or 1,
        "engines.slurm_job": environ.get("SLURM_JOB_ID", ""),
        "engines.waits_for_nodes": listed.is_requested,
        "engines.start_timeout_s": read[engine.start_timeout],
        "conf": path and path.absolute(),
        "sources": Sources(
            hosts=listed.source,
            total=listed.total,
            lines=listed.lines,
            names=layers.origins,
            remarks=tuple(_remarks(arguments, listed)),
        ),
        "state": places(environ),
    }
    rows = {row.target: read[key] for key, row in BY_KEY.items() if row.target and key in read}
    return _settings({**rows, **derived})


def _settings(found: Mapping[str, Any]) -> Settings:
    """Settings from the values by target."""
    parts = defaultdict[str, dict[str, Any]](dict)
    for target, value in found.items():
        group, _, field = target.rpartition(".")
        parts[group][field] = value
    for name, group_type in GROUPS.items():
        group, _, field = name.rpartition(".")
        parts[group][field] = group_type(**parts[name])
    return Settings(**parts[""])


def _remarks(arguments: Arguments, listed: HostList) -> Iterator[str]:
    if listed.slots and arguments["nproc_per_node"] is not None:
        yield f"slots of {listed.source} do not count, since --nproc_per_node is given"
    elif listed.slots and arguments["mode"] is not Mode.COLLECTIVE:
        yield f"slots of {listed.source} count with --mode=collective alone: a host has one trainer"
    if listed.ignored:
        yield f"{listed.source}: ignored: {', '.join(listed.ignored)}"
    folder, period = (arguments.flag(f"checkpoint_{name}") for name in ("dir", "period"))
    if arguments["mode"] is Mode.V2 and folder and (period or "0") == "0":
        yield "--checkpoint_dir without --checkpoint_period=BATCHES: no checkpoint is written"
