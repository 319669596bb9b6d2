# SPDX-License-Identifier: Apache-2.0
"""Translates command lines of other launchers, such as `torchrun --nproc-per-node=2 train.py`, to one of this launcher.

A line with an option of unknown meaning has no translation.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddle_cluster.config import workspace
from paddle_cluster.config.arguments import OF_JOBS
from paddle_cluster.config.entry import SCRIPTS, Entry
from paddle_cluster.config.hosts import COUNTS
from paddle_cluster.config.options import LONG
from paddle_cluster.system.state_dir import read_bounded
from paddle_node.contract.classes import regex

_SHELLS = regex(r"(?:.*/)?(?:python[\d.]*|bash|sh)|run|start|submit|job|launch|exec")
_PROGRAMS = {entry: name for name, entries in workspace.LAUNCHERS.items() for entry in entries}
_OF_RANKS = frozenset(workspace.LAUNCHERS) - {"ray", "srun", "paddle.distributed.launch"}
_SAME = {
    "nproc_per_node": "nproc nprocs npernode ppn procs_per_node processes_per_node num_gpus gpus_per_node "
    "ntasks_per_node",
    "nnodes": "num_nodes num_machines nodes N",
    "hosts": "host H",
    "hostfile": "machinefile machine_file",
    "job_dispatch_package": "working_dir working_directory wdir chdir",
    "env": "x",
}
_MEANT = {name: ours for ours, names in _SAME.items() for name in names.split()}
_IN_ALL = ("np", "n", "num_processes", "ntasks")  # processes of all nodes
_SET = "rdzv_backend rdzv_endpoint rdzv_id master_addr master_port node_rank machine_rank main_process_ip"
_WITHOUT_EFFECT = (
    dict.fromkeys(("u", "O", "B", "multi_gpu", "standalone", "allow_run_as_root", "oversubscribe"), 0)
    | dict.fromkeys(f"{_SET} main_process_port bind_to map_by rank_by".split(), 1)
    | {"mca": 2}
)
"""Option that is not needed here -> its number of values."""
_NUMBER = regex(r"[0-9]{1,6}")
_READS_RANKS = regex(rb"\b(?:RANK|WORLD_SIZE)\b")


def equivalent(argv: Sequence[str]) -> str:
    """Return advice with the arguments that are equivalent to another launcher's command line; "" if there are none."""
    has_directory = any(one.partition("=")[0] in OF_JOBS for one in itertools.takewhile("--".__ne__, argv))
    given = [] if has_directory else _Line(argv).read()
    return f"the equivalent of {shlex.join(argv)!r} is: {shlex.join(given)}" if given else ""


class _Line:
    """A command line of another launcher, up to its script."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._rest = [one for one in argv if one != "--"]
        self._programs: set[str] = set()
        self._given: dict[str, str] = {}
        self._in_all = 0

    def read(self) -> list[str]:
        """Return the launcher's arguments; none if the line has no script, or anything of unknown meaning."""
        while self._rest:
            token = self._rest.pop(0)
            if token in ("-m", "--module") and self._rest:
                module = f"-m{self._rest.pop(0)}"
                if module not in _PROGRAMS:
                    return [*self._options("", module)]
                self._programs.add(_PROGRAMS[module])
            elif token.startswith("-"):
                if not self._take(token):
                    return []
            elif token.endswith(SCRIPTS):
                return [*self._options(*self._place(token))]
            elif token in _PROGRAMS:
                self._programs.add(_PROGRAMS[token])
            elif not _SHELLS.fullmatch(token):
                if not os.path.isdir(token) or "job_dispatch_package" in self._given:
                    return []
                self._given["job_dispatch_package"] = token
            else:
                self._programs.add(token)
        return [*self._options("", "")] if "job_dispatch_package" in self._given else []

    def _take(self, token: str) -> bool:
        """Take an option and its values; return whether its meaning is known."""
        name, equals, value = token.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name in _WITHOUT_EFFECT:
            del self._rest[: 0 if equals else _WITHOUT_EFFECT[name]]
            return True
        ours = "nproc_per_node" if name == "N" and "mpirun" in self._programs else _MEANT.get(name, name)
        if name not in _IN_ALL and ours not in LONG:
            return False
        if name in _IN_ALL or LONG[ours].metavar:
            if not equals and self._rest:
                value = self._rest.pop(0)
            if not value or ours in self._given:
                return False
        if name in _IN_ALL:
            self._in_all = _count(value)
            return bool(self._in_all)
        self._given[ours] = value
        return ours != "hosts" or self._take_slots(value)

    def _take_slots(self, value: str) -> bool:
        """Take `a:2,b:2` as two hosts; return whether all have the same number of slots."""
        pairs = [one.rpartition(":") for one in value.split(",")]
        if any(_count(count) not in COUNTS for _, _, count in pairs):
            return True
        self._given["hosts"] = ",".join(host for host, _, _ in pairs)
        self._given["nproc_per_node"] = pairs[0][2]
        return len({count for _, _, count in pairs}) == 1

    def _place(self, script: str) -> tuple[str, str]:
        """Return the directory and the name of the script."""
        if "job_dispatch_package" in self._given:
            return "", script
        folder, slash, name = script.rpartition("/")
        return folder or slash, name

    def _options(self, folder: str, entry: str) -> Iterator[str]:
        package = self._given.pop("job_dispatch_package", folder or ".")
        yield from ("-p", package)
        if entry:
            yield f"--entry={entry}"
        if entry and "mode" not in self._given and self._is_collective(entry, Path(package)):
            yield "--mode=collective"
        if self._in_all and "nproc_per_node" not in self._given:
            nodes = self._given.get("nnodes") or str(len(self._given.get("hosts", "").split(",")))
            self._given["nproc_per_node"] = str(-(-self._in_all // (_count(nodes) or 1)))
        arguments = []
        while self._rest:
            token = self._rest.pop(0)
            name = token[2:].partition("=")[0]
            is_ours = (
                not self._programs and token.startswith("--") and name in LONG and name not in self._given
            )
            if not (is_ours and self._take(token)):
                arguments.append(token)
        yield from (
            f"--{name}={value}" if LONG[name].metavar else f"--{name}" for name, value in self._given.items()
        )
        yield from ("--", *arguments) if arguments else ()

    def _is_collective(self, entry: str, package: Path) -> bool:
        """Return whether a script needs ranks and not parameter servers, as far as it can be read."""
        script = Entry(module=entry[2:]) if entry.startswith("-m") else Entry(path=entry)
        if workspace.foreign_framework(script, package):
            return True
        try:
            source = read_bounded(package / entry, workspace.LIMIT)
        except (OSError, ValueError):
            source = b""
        has_ranks = bool(self._programs & _OF_RANKS) or _READS_RANKS.search(source) is not None
        return has_ranks and b"paddle" not in source


def _count(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0


def is_command_line(word: str) -> bool:
    """Return whether a first argument is a launcher's or an interpreter's program, or a command of a launcher."""
    return word in _PROGRAMS or _SHELLS.fullmatch(os.fspath(word)) is not None
