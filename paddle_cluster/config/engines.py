# SPDX-License-Identifier: Apache-2.0
"""What conf.py says about how agents start: the port that nodes call, what Slurm is asked for, how long agents stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paddle_cluster.config import values

_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_LARGEST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Settings of single engines.

    Attributes:
        resident_s: seconds that an agent waits for the next job; 0: it does not wait.
        ports: ports of this machine for connections from nodes; empty: any.
        address: address of this machine for connections from nodes; empty: all of its addresses.
        slurm_options: of salloc and sbatch.
        slurm_queue_timeout_s: timeout for an allocation.
        slurm_job: the job id of the allocation that this process runs in, or empty.
        waits_for_nodes: the nodes must be requested from Slurm; until then they are called slurm-0, slurm-1, ...
    """

    resident_s: float
    ports: range
    address: str
    slurm_options: tuple[str, ...]
    slurm_queue_timeout_s: float
    slurm_job: str
    waits_for_nodes: bool


def settings_of(read: Mapping[str, Any], environ: Mapping[str, str], waits_for_nodes: bool) -> EngineSettings:
    """The names of NAMES, each read already."""
    return EngineSettings(
        resident_s=read["RESIDENT_S"],
        ports=read["ENGINE_PORT"],
        address=read["ENGINE_ADDRESS"],
        slurm_options=tuple(read["SLURM_OPTIONS"]),
        slurm_queue_timeout_s=read["SLURM_QUEUE_TIMEOUT_S"],
        slurm_job=environ.get("SLURM_JOB_ID", ""),
        waits_for_nodes=waits_for_nodes,
    )


def ports(value: object) -> range:
    """A port, a range of them as '7000-7099', or 0: any."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    found = _PORTS.fullmatch(text)
    first = int(found[1]) if found else -1
    last = int(found[2] or first) if found else -1
    if text == "0":
        return range(0)
    if not 1 <= first <= last <= _LARGEST_PORT:
        raise values.mismatch("a port, a range such as '7000-7099', or 0 for any port", value)
    return range(first, last + 1)


def shown_ports(given: range) -> str:
    """Ports as conf.py has them."""
    return f"{given[0]}-{given[-1]}" if len(given) > 1 else str(given[0])


def slurm_option(value: object) -> str:
    """One option of salloc and sbatch with its value."""
    if not isinstance(value, str) or not value.isprintable() or not re.match(r"-[A-Za-z-]", value):
        raise values.mismatch("an option with its value in one text, such as '--partition=gpu'", value)
    return value


NAMES: Mapping[str, tuple[object, Callable[[object], Any]]] = {
    "RESIDENT_S": (0, values.seconds(0, 86400.0)),
    "ENGINE_PORT": (0, ports),
    "ENGINE_ADDRESS": ("", values.own_address),
    "SLURM_OPTIONS": ([], values.list_of(slurm_option, "options of salloc, such as ['--partition=gpu']")),
    "SLURM_QUEUE_TIMEOUT_S": (86400, values.seconds(1, 365 * 86400.0)),
}
"""Name of conf.py -> its default, and what reads it."""
