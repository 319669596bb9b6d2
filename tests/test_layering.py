# SPDX-License-Identifier: Apache-2.0
"""Who may import whom: the arrows of docs/design.md, read from the source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# module prefix -> the only files that may import it
SOLE_IMPORTERS = {
    "fabric": {"launcher/ssh/route.py"},
    "paramiko": {
        f"launcher/ssh/{name}.py"
        for name in ("known_hosts", "login", "login_errors", "private_keys", "route", "transport")
    },
    "zmq": {
        f"runtime/paddle/pserver/{name}.py" for name in ("doorbells", "keys", "link", "links", "transport")
    },
    "cupy": {"runtime/paddle/backend.py"},
}
# folder -> what its modules must never import
FORBIDDEN = {
    "launcher": ("paddle", "agent", "runtime"),
    "runtime/agent": ("launcher", "paddle"),
    "runtime/paddle": ("launcher", "agent", "pickle"),
    "runtime/paddle/pserver": (
        "paddle.graph",
        "paddle.v2",
        "paddle.fluid",
        "paddle.ops",
        "paddle.collective",
    ),
    "runtime/paddle/collective": (
        "paddle.graph",
        "paddle.v2",
        "paddle.fluid",
        "paddle.ops",
        "paddle.optim",
        "paddle.pserver",
    ),
    "runtime/paddle/ops": (
        "paddle.pserver",
        "paddle.v2",
        "paddle.fluid",
        "paddle.graph",
        "paddle.collective",
    ),
    "runtime/paddle/optim": (
        "paddle.pserver",
        "paddle.v2",
        "paddle.fluid",
        "paddle.graph",
        "paddle.ops",
        "paddle.collective",
    ),
    "runtime/paddle/distributed": (
        "paddle.pserver",
        "paddle.v2",
        "paddle.fluid",
        "paddle.ops",
        "paddle.graph",
    ),
    "runtime/paddle/graph": ("paddle.pserver", "paddle.v2", "paddle.fluid", "paddle.collective"),
}


def imports(path: Path) -> Iterator[str]:
    """Dotted names a module imports, relative ones made absolute."""
    relative_to = ROOT / "runtime" if path.is_relative_to(ROOT / "runtime") else ROOT
    package = path.relative_to(relative_to).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            module = (base + (node.module or "")).rstrip(".")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("library", SOLE_IMPORTERS)
def test_a_library_with_a_sole_importer_is_imported_nowhere_else(library: str) -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for path in sources("launcher") + sources("runtime")
        if any(within(name, library) for name in imports(path))
    }
    assert users <= SOLE_IMPORTERS[library]


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_a_folder_imports_nothing_that_lies_above_it(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(folder)
        for name in imports(path)
        if any(within(name, prefix) for prefix in FORBIDDEN[folder])
    ]
    assert wrong == []


def test_the_agent_imports_the_standard_library_alone() -> None:
    foreign = {
        name
        for path in sources("runtime/agent")
        for name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names | {"agent"}
    }
    assert foreign == set()


def test_nobody_imports_the_command_line() -> None:
    users = [
        path.name
        for path in sources("launcher")
        if any(within(n, "launcher.cli.main") for n in imports(path))
    ]
    assert users == []
