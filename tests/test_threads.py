# SPDX-License-Identifier: Apache-2.0
"""docs/threads.md names every thread that the launcher and the runtime start."""

from __future__ import annotations

import ast
import re
from collections.abc import Container
from pathlib import Path

import pytest

from tests.floors import ROOT, nodes, sources

# what starts threads -> its argument that names them; a Timer has none, so that nobody can use one unseen
STARTERS = {
    "threading.Thread": "name",
    "threading.Timer": "name",
    "Thread": "name",
    "QueueThread": "name",
    "ServiceThread": "name",
    "ThreadPoolExecutor": "thread_name_prefix",
    "futures.ThreadPoolExecutor": "thread_name_prefix",
}
BARE = ("threading.Thread", "threading.Timer")

ALONE = {
    "paddle_cluster/connection/reactor.py": "waits for all nodes' descriptors; turns of tasks, on few threads",
    "paddle_cluster/control/control_client.py": "reads a socket, and posts what comes",
    "paddle_cluster/control/control_server.py": "waits for the descriptors of its clients",
    "paddle_cluster/dashboard/server.py": "one a connection, as socketserver has it",
    "paddle_cluster/engines/kubernetes.py": "follows the API server until the Job has ended",
    "paddle_cluster/engines/callback_engine.py": "accepts connections, and greets each",
    "paddle_cluster/engines/slurm_allocation.py": "asks Slurm now and then, and posts one stop",
    "paddle_cluster/engines/tool_process.py": "reads a pipe, and posts its end",
    "paddle_cluster/nodes/connector.py": "attempts that block, a bounded number at once; and one preparation",
    "paddle_cluster/ssh/resolver.py": "one call that cannot be interrupted",
    "paddle_cluster/system/queue_thread.py": "the class itself",
}
"""Module of the launcher that starts a thread itself -> what that does instead of draining a queue."""


def written(name: ast.expr | None) -> str:
    """The name of a thread as the page writes it, `*` for what is not the same each time."""
    if isinstance(name, ast.Constant):
        return str(name.value)
    if isinstance(name, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in name.values)
    return ""


def calls(path: Path, names: Container[str]) -> list[ast.Call]:
    """The calls in a module of something of these names."""
    ends = (ast.Name, ast.Attribute)
    return [
        node
        for node in nodes(path, ast.Call)
        if isinstance(node.func, ends) and isinstance(getattr(node.func, "value", node.func), ast.Name)
        if ast.unparse(node.func) in names
    ]


def started(folder: str) -> list[tuple[str, str]]:
    """Where a thread is started, and its name."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", written(names.get(STARTERS[ast.unparse(node.func)])))
        for path in sources(folder)
        for node in calls(path, STARTERS)
        for names in [{keyword.arg: keyword.value for keyword in node.keywords}]
    ]


def test_every_thread_is_named_and_has_a_line() -> None:
    page = (ROOT / "docs" / "threads.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    threads = started("paddle_cluster") + started("runtime")
    unnamed = [where for where, name in threads if not name.strip("*")]
    assert [where.partition(":")[0] for where in unnamed] == [
        "paddle_cluster/system/queue_thread.py",
        "runtime/paddle/threads.py",
    ]
    assert sorted(lines) == sorted({name for _, name in threads} - {""})


def test_a_queue_of_the_launcher_is_drained_by_the_one_class_for_it() -> None:
    bare = {path.relative_to(ROOT).as_posix() for path in sources("paddle_cluster") if calls(path, BARE)}
    assert bare == set(ALONE)


def test_a_thread_of_the_runtime_is_one_of_the_one_class_for_it() -> None:
    assert (
        {path.relative_to(ROOT).as_posix() for path in sources("runtime") if calls(path, BARE)}
        == {
            "runtime/paddle/hooks/sitecustomize.py",  # in every Python process of a job, where nothing can be imported
            "runtime/paddle/threads.py",
        }
    )


@pytest.mark.parametrize("folder", ["paddle_cluster", "runtime"])
def test_no_class_is_a_thread(folder: str) -> None:
    """A class has a thread, and starts and joins it: then its name stands where it is started."""
    assert [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in sources(folder)
        for node in nodes(path, ast.ClassDef)
        if any(ast.unparse(base) in STARTERS for base in node.bases)
    ] == []


def test_an_agent_has_no_threads() -> None:
    """It forks: a lock that another thread held would stay shut in the child."""
    assert started("runtime/paddle_node/agent") == []
