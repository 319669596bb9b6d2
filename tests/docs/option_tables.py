# SPDX-License-Identifier: Apache-2.0
"""Every option and command that there is, from the tables that read them: what messages and pages may name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from paddle_cluster.cli import commands
from paddle_cluster.config.options import OPTIONS
from paddle_node.contract.flags import INIT_FLAGS, PSERVER_FLAGS
from tests.floors import nodes

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (
    "paddle_cluster",
    "runtime",
    "benchmarks",
    "tools",
    "workspace_template",
    "examples",
    "docker_cluster",
)
OF_JOBS = frozenset(option.name for option in OPTIONS) | INIT_FLAGS.keys() | PSERVER_FLAGS.keys()
OF_OTHERS = frozenset(  # of pip, uv, cupy, docker, mpirun, Slurm and nvidia-smi, where we tell of them
    {
        *(
            "build",
            "build-arg",
            "constraint",
            "editable",
            "format",
            "hash",
            "job-name",
            "map-by",
            *("node_rank", "machine_rank", "master_addr", "master_port", "rdzv_endpoint", "local_rank"),
            *("num_gpus", "num_nodes", "num_machines", "num_processes", "host", "elastic_training", "min_np"),
            *("export", "output_filename", "redirects", "wdir", "chdir", "print-config"),
            "mem",
            "no-kill",
        ),
        *(
            "no-requeue",
            "library",
            "only-binary",
            "partition",
            "requeue",
            "requirement",
            "shm-size",
            "signal",
            "time",
            "with",
        ),
    }
)
FOR_INSTANCE = frozenset(
    {"name", "bool", "nobool", "nouse_gpu", "lr", "flag", "option", "x", "nox"}
)  # whatever


@cache
def modules() -> tuple[Path, ...]:
    """Each module of ours that users run."""
    return tuple(path for top in PROGRAMS for path in sorted((ROOT / top).rglob("*.py")))


@cache
def of_commands() -> dict[str, frozenset[str]]:
    """The options that each word of the launcher takes, as its usage has them."""
    found = {
        name: frozenset(named(commands.usage(name))) for name in commands.COMMANDS if name != commands.JOB
    }
    return found | {commands.JOB: OF_JOBS}


@cache
def of_programs() -> frozenset[str]:
    """The options that programs of ours declare by argparse or take from a table."""
    found = set()
    for path in modules():
        for node in nodes(path, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                found |= {one for each in node.args for one in named(_text(each))}
        for node in nodes(path, ast.Compare):
            if isinstance(node.ops[0], ast.In):  # "--quick" in sys.argv
                found |= set(named(_text(node.left)))
    return frozenset(found)


@cache
def all_options() -> frozenset[str]:
    """Whatever any program of ours takes."""
    return OF_JOBS | of_programs() | frozenset().union(*of_commands().values())


@cache
def messages(top: str) -> tuple[tuple[Path, int, str], ...]:
    """(module, line, text) of each sentence in the code below a folder, docstrings left out.

    {PROGRAM} is put in, other values are `{}`.
    """
    return tuple(_messages(top))


def _messages(top: str) -> Iterator[tuple[Path, int, str]]:
    for path in modules():
        if path.relative_to(ROOT).parts[0] != top:
            continue
        inside = {id(part) for node in nodes(path, ast.JoinedStr) for part in node.values}
        inside |= {id(node.value) for node in nodes(path, ast.Expr)}
        for node in nodes(path, ast.Constant, ast.JoinedStr):
            text = _text(node) if id(node) not in inside else ""
            if " " in text.strip():
                yield path.relative_to(ROOT), node.lineno, text


def named(text: str) -> list[str]:
    """The options that a text names."""
    return re.findall(r"(?<![\w-])--([a-z][a-z_0-9]*(?:-[a-z0-9]+)*)", text)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(_text(part) or ("paddle.py" if _is_program(part) else "{}") for part in node.values)


def _is_program(part: ast.expr) -> bool:
    return isinstance(part, ast.FormattedValue) and ast.unparse(part.value) == "PROGRAM"
