# SPDX-License-Identifier: Apache-2.0
"""Who may import whom: the arrows of docs/design.md, read from the source."""

from __future__ import annotations

import ast
import functools
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.floors import (
    ARROWS,
    FLOORS,
    ROOT,
    UPWARD,
    dotted,
    graph,
    imports,
    nodes,
    room_of,
    rooms,
    sources,
    tree,
)

# module prefix -> the only files that may import it
SOLE_IMPORTERS = {
    # it is slow
    "dataclasses": {f"runtime/paddle_node/contract/{name}.py" for name in ("classes", "light_dataclasses")},
    "fabric": {"paddle_cluster/api.py", "paddle_cluster/ssh/login.py"},
    "invoke": set(),
    "paramiko": {
        f"paddle_cluster/ssh/{name}.py"
        for name in ("known_hosts", "login", "login_errors", "private_keys", "transport")
    },
    "zmq": {f"runtime/paddle/pserver/{name}.py" for name in ("wire/poller", "wire/keys", "transports/zmq")},
    "kubernetes": {"paddle_cluster/engines/kubernetes_api.py"},
    "urllib3": {"paddle_cluster/engines/kubernetes_api.py"},
    "cupy": {"runtime/paddle/backend.py"},
}
# call or constant of the system -> the only files that name it
SOLE_USERS = {
    "memfd_create": {"runtime/paddle_node/linux/descriptors.py"},
    "F_ADD_SEALS": {"runtime/paddle_node/linux/descriptors.py"},
    "SO_PEERCRED": {"runtime/paddle_node/linux/descriptors.py"},
    "SCM_RIGHTS": {"runtime/paddle_node/linux/descriptors.py"},
    "send_fds": set(),
    "recv_fds": set(),
    "TCP_USER_TIMEOUT": set(),
    "TCP_KEEPIDLE": set(),
    "mallopt": {"runtime/paddle/freed_memory.py"},
    "dlsym": {"runtime/paddle_node/linux/prctl.py"},
}
# folder -> what its modules must never import
FORBIDDEN = {
    "paddle_cluster": ("paddle", "paddle_node.agent", "runtime"),
    "runtime/paddle_node": ("paddle_cluster", "paddle"),
    "runtime/paddle": ("paddle_cluster", "paddle_node.agent", "pickle"),
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
    "runtime/paddle/kernels": (
        "paddle.pserver",
        "paddle.v2",
        "paddle.fluid",
        "paddle.ops",
        "paddle.optim",
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


def imported(path: Path) -> Iterator[str]:
    """Dotted names a module imports, relative ones made absolute."""
    for module, member in imports(path):
        yield module
        yield f"{module}.{member}"


@functools.cache
def attributes(path: Path) -> frozenset[str]:
    """Names that a module takes from objects or other modules, such as F_ADD_SEALS of fcntl.F_ADD_SEALS."""
    return frozenset(node.attr for node in nodes(path, ast.Attribute))


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


@pytest.mark.parametrize("library", SOLE_IMPORTERS)
def test_a_library_with_a_sole_importer_is_imported_nowhere_else(library: str) -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for path in sources("paddle_cluster") + sources("runtime")
        if any(within(name, library) for name in imported(path))
    }
    assert users <= SOLE_IMPORTERS[library]


@pytest.mark.parametrize("name", SOLE_USERS)
def test_a_call_of_the_system_has_one_user(name: str) -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for path in sources("paddle_cluster") + sources("runtime")
        if name in attributes(path)
    }
    assert users == SOLE_USERS[name]


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_a_folder_imports_nothing_that_lies_above_it(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(folder)
        for name in imported(path)
        if any(within(name, prefix) for prefix in FORBIDDEN[folder])
    ]
    assert wrong == []


def test_the_agent_imports_the_standard_library_alone() -> None:
    foreign = {
        name
        for path in sources("runtime/paddle_node")
        for name in imported(path)
        if name.split(".")[0] not in sys.stdlib_module_names | {"paddle_node"}
    }
    assert foreign == set()


@pytest.mark.parametrize("package", FLOORS)
def test_every_module_of_a_package_is_on_a_floor_and_every_floor_has_modules(package: str) -> None:
    top = ROOT / package
    inside = {path.parent.name for path in top.glob("*/__init__.py")}
    alone = {path.stem for path in top.glob("*.py")} - {"__init__"}
    named = set(rooms(package))
    assert named - {"."} <= inside | alone
    assert inside | (set() if "." in named else alone) <= named


@pytest.mark.parametrize("package", FLOORS)
def test_imports_go_down_only_those_in_functions_and_for_types_too(package: str) -> None:
    floors = rooms(package)
    top = dotted(ROOT / package)
    wrong = []
    for module, others in graph(package).items():
        for other in sorted(others - {top}):
            ours, theirs = room_of(package, module), room_of(package, other)
            if ours != theirs and floors[ours] <= floors[theirs] and (module, other) not in UPWARD:
                wrong.append(f"{module} (floor {floors[ours]}) imports {other} (floor {floors[theirs]})")
    assert wrong == []


@pytest.mark.parametrize("package", FLOORS)
def test_no_imports_go_round_in_a_circle(package: str) -> None:
    straight = {
        module: {other for other in others if (module, other) not in UPWARD}
        for module, others in graph(package).items()
    }
    try:
        graphlib.TopologicalSorter(straight).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_an_import_that_may_go_up_is_still_there() -> None:
    there = {
        (module, other) for package in FLOORS for module, others in graph(package).items() for other in others
    }
    assert set(UPWARD) <= there


@pytest.mark.parametrize("package", FLOORS)
def test_the_arrows_between_rooms_only_become_fewer(package: str) -> None:
    arrows = {
        (room_of(package, module), room_of(package, other))
        for module, others in graph(package).items()
        for other in others
    }
    assert len({(above, below) for above, below in arrows if above != below}) <= ARROWS[package]


@pytest.mark.parametrize("package", ["paddle_cluster", "runtime/paddle_node", "runtime/paddle"])
def test_at_least_half_of_the_lines_are_statements(package: str) -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources(package))
    statements = sum(len(nodes(path, ast.stmt)) for path in sources(package))
    assert statements > lines / 2


@pytest.mark.parametrize("package", ["paddle_cluster", "runtime/paddle_node", "runtime/paddle"])
def test_no_module_gives_a_name_to_two_constants(package: str) -> None:
    for path in sources(package):
        names = [
            target.id
            for node in tree(path).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ]
        assert len(names) == len(set(names)), path
