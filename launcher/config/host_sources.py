# SPDX-License-Identifier: Apache-2.0
"""Hosts from elsewhere than conf.py: an MPI hostfile, or Slurm's allocation."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from launcher.config.hosts import Host, HostError, parse_host
from launcher.config.options import EngineKind
from launcher.errors import ConfError, UsageError
from launcher.system import bounded_file
from launcher.system.installation import COMMAND

LIMIT = 1 << 20
ANSWER_S = 30.0


def hosts_elsewhere(
    engine: EngineKind, hostfile: str | None, environ: Mapping[str, str]
) -> tuple[Host, ...] | None:
    """The hosts, where conf.py does not say which.

    Raises:
        ConfError: the hostfile is wrong.
        UsageError: there is no allocation, or Slurm does not tell its hosts.
    """
    if hostfile is not None:
        return read_hostfile(Path(hostfile))
    return allocated(environ) if engine is EngineKind.SLURM else None


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """A hostfile of mpirun: `host [slots=N] ...` a line, `#` begins a comment; a host that comes again counts once.

    Raises:
        ConfError: with file and line.
    """
    try:
        text = bounded_file.read(path, LIMIT).decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfError(str(path), f"the hostfile cannot be read: {error}") from error
    found: dict[str, Host] = {}
    for number, line in enumerate(text.splitlines(), 1):
        word, *rest = line.partition("#")[0].split() or [""]
        if not word:
            continue
        for item in rest:
            name, equals, value = item.partition("=")
            if not equals or name not in ("slots", "max_slots", "max-slots") or not value.isdigit():
                raise ConfError(
                    f"{path}:{number}", f"expected `host slots=N`, got {item!r:.80} after the host"
                )
        try:
            found.setdefault(word, parse_host(word))
        except HostError as error:
            raise ConfError(f"{path}:{number}", str(error)) from error
    if not found:
        raise ConfError(str(path), "the hostfile names no host; expected `host slots=N`, one a line")
    return tuple(found.values())


def allocated(environ: Mapping[str, str]) -> tuple[Host, ...]:
    """The hosts of the Slurm allocation that this process runs in, in Slurm's order.

    Raises:
        UsageError: there is none, or `scontrol` does not tell.
    """
    nodes = environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        raise UsageError(
            "--engine=slurm runs inside an allocation of Slurm, and here is none (SLURM_JOB_NODELIST is not set); "
            f"begin with `salloc --nodes=N {COMMAND} ...`, or put the command into a script for sbatch"
        )
    try:
        answer = subprocess.run(
            ["scontrol", "show", "hostnames", nodes],
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"scontrol does not tell the hosts of {nodes!r:.200}: {error}") from error
    try:
        return tuple(parse_host(name) for name in answer.stdout.split())
    except HostError as error:
        raise UsageError(f"scontrol show hostnames {nodes!r:.200}: {error}") from error
