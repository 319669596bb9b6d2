# SPDX-License-Identifier: Apache-2.0
"""What keeps every folder of the house findable: its size, its sentence, its names, and no fragments or dead code."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.floors import (
    ENTRIES,
    FLOORS,
    FRAGMENTS,
    MEMOS,
    NAMESAKES,
    ROOT,
    SIZES,
    UNUSED,
    dotted,
    folders,
    graph,
    imports,
    is_of,
    nodes,
    sources,
    tree,
)

LEAST, MOST = 5, 25
FRAGMENT_LINES = 70
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ASKS = re.compile(r"_?(is|has|may)_")
# package of a dependency -> what it is imported as, where the names differ
IMPORTED_AS = {"pyzmq": "zmq", "zlib-ng": "zlib_ng"}
# module -> the records there that make up what a job knows of a node and of a process
RECORDS = {
    "paddle_cluster/nodes/node_record.py": ("Contact", "Traces", "NodeRecord"),
    "paddle_cluster/nodes/roster.py": ("ProcessRecord",),
    "paddle_cluster/nodes/handshake.py": ("Introduction",),
    "paddle_cluster/files/dispatch.py": ("Delivery",),
}
ROW = re.compile(r"^\| `([\w/]+)/` \| (.+) \|$", re.MULTILINE)


@pytest.mark.parametrize("package", FLOORS)
def test_a_room_is_neither_a_cupboard_nor_a_hall(package: str) -> None:
    sizes = {
        folder.relative_to(ROOT).as_posix(): len(list(folder.glob("*.py"))) - 1 for folder in folders(package)
    }
    assert {
        name: size for name, size in sizes.items() if not LEAST <= size <= MOST and name not in SIZES
    } == {}


@pytest.mark.parametrize("package", FLOORS)
def test_the_map_of_the_house_has_a_line_for_every_room(package: str) -> None:
    said = [
        (folder, text)
        for folder, text in ROW.findall((ROOT / "docs" / "design.md").read_text(encoding="utf-8"))
        if is_of(package, folder)
    ]
    assert said == [
        (folder.relative_to(ROOT).as_posix(), first_sentence(folder / "__init__.py"))
        for folder in folders(package)
    ]


def test_what_the_glossary_names_is_there() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:paddle_cluster|runtime)/[^`]*)`", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def first_sentence(path: Path) -> str:
    """What the docstring of a module begins with, without its last stop."""
    return (ast.get_docstring(tree(path)) or "").partition("\n")[0].rstrip(".")


@pytest.mark.parametrize("package", FLOORS)
def test_a_module_that_one_other_imports_is_no_fragment_of_it(package: str) -> None:
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module, others in graph(package).items():
        for other in others:
            importers[other].add(module)
    fragments = {
        f"{name} ({lines} lines): only {next(iter(importers[name]))} imports it"
        for path in sources(package)
        if path.name != "__init__.py" and len(importers[name := dotted(path)]) == 1
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) < FRAGMENT_LINES
        if name not in FRAGMENTS and path.parent.relative_to(ROOT).as_posix() not in ENTRIES
    }
    assert fragments == set()


@pytest.mark.parametrize("package", FLOORS)
def test_no_two_public_classes_of_a_package_share_a_name(package: str) -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in sources(package):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(dotted(path))
    excused = NAMESAKES.get(package, {})
    assert {name: where for name, where in homes.items() if len(where) > 1 and name not in excused} == {}


@pytest.mark.parametrize("package", ["paddle_cluster", "runtime"])
def test_a_question_changes_nothing(package: str) -> None:
    answers = [
        f"{path.relative_to(ROOT)}:{target.lineno}: {node.name} assigns {ast.unparse(target)}"
        for path in sources(package)
        for node in nodes(path, *FUNCTIONS)
        if ASKS.match(node.name) and f"{dotted(path)}.{node.name}" not in MEMOS
        for target in assigned(ast.walk(node))
        if isinstance(target, ast.Attribute | ast.Subscript)
    ]
    assert answers == []


@pytest.mark.parametrize("package", ["paddle_cluster", "runtime"])
def test_a_question_calls_nothing_of_its_object_that_changes_it(package: str) -> None:
    wrong = []
    for path in sources(package):
        for of in nodes(path, ast.ClassDef):
            methods = [node for node in of.body if isinstance(node, FUNCTIONS)]
            if not any(ASKS.match(each.name) for each in methods):
                continue
            changing = {each.name for each in methods if any(map(is_own, assigned(ast.walk(each))))}
            called = [(each.name, calls_own(each)) for each in methods]
            while more := {name for name, found in called if found & changing} - changing:
                changing |= more
            wrong += [
                f"{dotted(path)}.{each.name}"
                for each in methods
                if ASKS.match(each.name) and each.name in changing
            ]
    assert [name for name in wrong if name not in MEMOS] == []


def is_own(node: ast.expr) -> bool:
    """Whether something is an attribute of `self`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def calls_own(node: ast.AST) -> set[str]:
    """The methods of its own object that a method calls."""
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    return {each.attr for each in calls if isinstance(each, ast.Attribute) and is_own(each)}


def assigned(inside: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """What is assigned or deleted by these nodes."""
    for inner in inside:
        if isinstance(inner, ast.Assign | ast.Delete):
            yield from inner.targets
        elif isinstance(inner, ast.AugAssign | ast.AnnAssign):
            yield inner.target


def test_what_is_known_of_a_node_or_a_process_is_changed_by_the_methods_of_its_own_records_alone() -> None:
    fields = {
        node.target.id
        for module, names in RECORDS.items()
        for one in tree(ROOT / module).body
        if isinstance(one, ast.ClassDef) and one.name in names
        for node in one.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert len(fields) > 20
    assert [
        f"{path.relative_to(ROOT)}:{target.lineno}: {ast.unparse(target)} is assigned"
        for path in sources("paddle_cluster")
        for whole in assigned(nodes(path, ast.Assign, ast.Delete, ast.AugAssign, ast.AnnAssign))
        for target in (whole.elts if isinstance(whole, ast.Tuple) else [whole])
        if isinstance(target, ast.Attribute) and target.attr in fields
        if ast.unparse(target.value) != "self"
    ] == []


@pytest.mark.parametrize(
    "package", ["paddle_cluster", "runtime/paddle_node/agent"]
)  # what user scripts import has other users
def test_what_a_package_defines_it_uses(package: str) -> None:
    used: Counter[str] = Counter()
    for path in [*sources(package), ROOT / "paddle.py"]:
        used.update(node.id for node in nodes(path, ast.Name))
        used.update(node.attr for node in nodes(path, ast.Attribute))
        used.update(alias.name for node in nodes(path, ast.ImportFrom) for alias in node.names)
    unused = {
        f"{dotted(path)}.{node.name}"
        for path in sources(package)
        for node in nodes(path, ast.FunctionDef, ast.ClassDef)
        if not node.name.startswith("__")
        if not used[node.name]
    }
    assert unused - set(UNUSED) == set()


def test_every_dependency_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[\s<>=!~\[]", wanted)[0] for wanted in project["dependencies"]}
    found = {
        module.partition(".")[0]
        for path in sources("paddle_cluster") + sources("runtime")
        for module, _ in imports(path)
    }
    assert {name for name in names if IMPORTED_AS.get(name, name) not in found} == set()


def test_what_is_excused_is_still_there() -> None:
    modules = {dotted(path) for package in FLOORS for path in sources(package)}
    assert set(FRAGMENTS) <= modules
    assert all((ROOT / folder).is_dir() for folder in (*SIZES, *ENTRIES))
    assert {name.rpartition(".")[0] for name in (*UNUSED, *MEMOS)} <= modules
