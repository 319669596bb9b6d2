# SPDX-License-Identifier: Apache-2.0
"""Hosts from elsewhere than conf.py: an MPI hostfile, or Slurm's allocation."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launcher.config.arguments import Arguments
from launcher.config.hosts import Host, HostError, parse_host
from launcher.config.options import EngineKind
from launcher.config.selection import node_of
from launcher.config.values import ValueMismatchError
from launcher.errors import ConfError, UsageError
from launcher.system import bounded_file
from launcher.system.installation import COMMAND
from launcher.text.sizes import counted

LIMIT = 1 << 20
ANSWER_S = 30.0
ALLOCATED = "SLURM_JOB_NODELIST"
_SLOTS = re.compile(r"[1-9][0-9]{0,4}")


@dataclass(frozen=True)
class HostList:
    """Hosts, and who says so.

    Attributes:
        lines: where each is named.
        source: the file or option that names them.
        slots: trainers by node id, where that is said.
        all_hosts: how many there are with those that were left out; 0: none was.
    """

    hosts: tuple[Host, ...]
    lines: tuple[str, ...]
    source: str
    slots: Mapping[int, int] = field(default_factory=dict)
    all_hosts: int = 0

    @property
    def total(self) -> int:
        """How many the source names."""
        return self.all_hosts or len(self.hosts)

    def of(self, ids: Sequence[int]) -> HostList:
        """Some of them, numbered anew."""
        if len(ids) == len(self.hosts):
            return self
        return HostList(
            tuple(self.hosts[one] for one in ids),
            tuple(self.lines[one] for one in ids),
            self.source,
            {new: self.slots[one] for new, one in enumerate(ids) if one in self.slots},
            self.total,
        )


def chosen(arguments: Arguments, hosts: Sequence[Host]) -> tuple[int, ...]:
    """The ids of the hosts that take part: --include, less --exclude, and of these the first --nnodes.

    Raises:
        ConfError: a word names no host, nothing is left, or there are not so many.
    """
    included = _named("include", arguments.include, hosts) or set(range(len(hosts)))
    left = sorted(included - _named("exclude", arguments.exclude, hosts))
    if not left:
        raise ConfError(
            "--exclude",
            f"expected at least one host to be left of {counted(len(included), 'host')}, got none",
        )
    if arguments.nnodes is None:
        return tuple(left)
    if arguments.nnodes > len(left):
        raise ConfError(
            "--nnodes", f"expected at most {len(left)}, as many hosts as there are, got {arguments.nnodes}"
        )
    return tuple(left[: arguments.nnodes])


def _named(option: str, words: Sequence[str], hosts: Sequence[Host]) -> set[int]:
    found = set()
    for word in words:
        try:
            found.add(node_of(int(word) if word.isdecimal() and len(word) < 8 else word, hosts))
        except ValueMismatchError as error:
            name, _, slots = word.rpartition(":")
            hint = ""
            if any(name in (host.text, host.name) for host in hosts) and slots.isdecimal():
                hint = f"; slots are not chosen here: give {name} the variable CUDA_VISIBLE_DEVICES in HOST_SETTINGS"
            said = f"{word!r} is not in HOSTS{hint}" if hint else str(error)
            raise ConfError(f"--{option}", said) from None
    return found


def hosts_elsewhere(arguments: Arguments, environ: Mapping[str, str]) -> HostList | None:
    """The hosts, where conf.py does not say which.

    Raises:
        ConfError: the hostfile is wrong.
        UsageError: there is no allocation and no word of how many nodes to ask for, or Slurm does not tell its hosts.
    """
    if arguments.hostfile is not None:
        return read_hostfile(Path(arguments.hostfile))
    if arguments.engine is not EngineKind.SLURM:
        return None
    if waits_for_nodes(arguments, environ):
        hosts, source = tuple(parse_host(f"slurm-{index}") for index in range(arguments.nnodes or 0)), "Slurm"
    else:
        hosts, source = allocated(environ), "Slurm's allocation"
    return HostList(hosts, (source,) * len(hosts), source)


def waits_for_nodes(arguments: Arguments, environ: Mapping[str, str]) -> bool:
    """Whether Slurm is still to be asked for the nodes of a job."""
    outside = arguments.engine is EngineKind.SLURM and not environ.get(ALLOCATED)
    return outside and arguments.nnodes is not None


def read_hostfile(path: Path) -> HostList:
    """A hostfile of mpirun or DeepSpeed: `host [slots=N] ...` a line, `#` begins a comment.

    A host that comes again has so many more slots, one where a line has none.

    Raises:
        ConfError: with file and line.
    """
    try:
        text = bounded_file.read(path, LIMIT).decode("utf-8")
    except OSError as error:
        raise ConfError(
            str(path), f"the hostfile cannot be read: {error.strerror}; --hostfile=FILE names it"
        ) from error
    except ValueError as error:
        raise ConfError(
            str(path), f"the hostfile cannot be read: {error}; expected `host slots=N` a line"
        ) from error
    found: dict[str, tuple[Host, str]] = {}
    slots: dict[str, int] = {}
    counts = False
    for number, line in enumerate(text.splitlines(), 1):
        word, *rest = line.partition("#")[0].split() or [""]
        if not word:
            continue
        where, own = f"{path}:{number}", 1
        for item in rest:
            name, equals, value = item.partition("=")
            if not equals or name not in ("slots", "max_slots", "max-slots") or not _SLOTS.fullmatch(value):
                raise ConfError(where, f"expected `host slots=N`, got {item!r:.80} after the host")
            if name == "slots":
                own, counts = int(value), True
        try:
            counts = counts or word in found
            found.setdefault(word, (parse_host(word), where))
        except HostError as error:
            raise ConfError(where, str(error)) from error
        slots[word] = slots.get(word, 0) + own
    if not found:
        raise ConfError(str(path), "the hostfile names no host; expected `host slots=N`, one a line")
    hosts, lines = zip(*found.values(), strict=True)
    return HostList(hosts, lines, str(path), dict(enumerate(slots.values())) if counts else {})


def allocated(environ: Mapping[str, str]) -> tuple[Host, ...]:
    """The hosts of the Slurm allocation that this process runs in, in Slurm's order.

    Raises:
        UsageError: there is none, or `scontrol` does not tell.
    """
    nodes = environ.get(ALLOCATED)
    if not nodes:
        raise UsageError(
            f"how many nodes? Here is no allocation of Slurm ({ALLOCATED} is not set); --nnodes=N asks for one, "
            f"and so does `salloc --nodes=N {COMMAND} ...`"
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
