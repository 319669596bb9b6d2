# SPDX-License-Identifier: Apache-2.0
"""The launcher's own options and the words some of them take."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Mode(StrEnum):
    """What a job consists of."""

    V2 = "v2"
    FLUID = "fluid"
    COLLECTIVE = "collective"


class Wire(StrEnum):
    """How pservers and trainers speak: encrypted and authenticated, or neither."""

    CURVE = "curve"
    PLAIN = "plain"


class Option(NamedTuple):
    """One option of the launcher itself; without a metavar it is a switch, with `repeats` it may come again."""

    name: str
    metavar: str = ""
    short: str = ""
    choices: tuple[str, ...] = ()
    repeats: bool = False


OPTIONS = (
    Option("job_dispatch_package", "DIR", short="p"),
    Option("job_workspace", "DIR", short="j"),
    Option("conf", "FILE"),
    Option("dry_run"),
    Option("entry", "FILE"),
    Option("mode", "MODE", choices=tuple(Mode)),
    Option("nproc_per_node", "N"),
    Option("env", "NAME[=VALUE]", repeats=True),
    Option("env_file", "FILE", repeats=True),
    Option("max_restarts", "N"),
    Option("min_trainers", "N"),
    Option("detach"),
    Option("shard_dirs", "DIR[,DIR]"),
    Option("wire", "WIRE", choices=tuple(Wire)),
    Option("accept_new_host_keys"),
    Option("allow_mismatch"),
    Option("help", short="h"),
    Option("version"),
)
"""In the order in which --help shows them."""
