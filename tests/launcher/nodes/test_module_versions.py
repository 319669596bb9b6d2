# SPDX-License-Identifier: Apache-2.0
"""Modules that a job goes on without: which are asked for, and what is said of nodes that lack them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from paddle_cluster.config.options import Mode, Wire
from paddle_cluster.nodes.checks.limits import check_disks
from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.checks.versions import OLDEST, check
from paddle_cluster.nodes.findings import finding_lines
from paddle_cluster.nodes.preflight import asked_modules
from tests.launcher.planning import answer_to_probe

DEMANDS = Demands(modules=("numpy", "zmq"), port_is_explicit=False, allow_mismatch=False)
SEALED = {"numpy": "2.4.6", "zmq": "27.3.0"}


@pytest.mark.parametrize(
    ("have", "said"),
    [
        ({"cryptography": None}, "python3 has no cryptography; 47 or newer"),
        ({"cryptography": "46.0.5"}, "python3 has cryptography 46.0.5; 47 or newer"),
        ({"cryptography": "47.0.0"}, ""),
        ({}, ""),
    ],
    ids=["none", "old", "new enough", "not asked"],
)
def test_what_a_slower_wire_comes_of_is_remarked_once_for_all_nodes(
    have: dict[str, str | None], said: str
) -> None:
    nodes = [
        Reply(f"node-{n}", answer=answer_to_probe(python_version="3.11.7", modules={**SEALED, **have}))
        for n in range(7)
    ]
    found = list(check(nodes, DEMANDS))
    assert not any(finding.serious for finding in found)
    assert len(finding_lines(found, 7)) == bool(said)
    assert all(line.startswith("all 7 nodes: modules: ") and said in line for line in finding_lines(found, 7))


@pytest.mark.parametrize(
    ("kernels", "libc", "missing"),
    [
        (None, "musl", ""),
        (frozenset(["linux-x86_64-gnu"]), "glibc-2.36", ""),
        (frozenset(["linux-x86_64-gnu"]), "musl", "linux-x86_64-musl"),
        (frozenset(), "glibc-2.36", "linux-x86_64-gnu"),
        (frozenset(), "", ""),
    ],
)
def test_nodes_without_compiled_kernels_are_named(
    kernels: frozenset[str] | None, libc: str, missing: str
) -> None:
    kind = ["cpython", "", "x86_64", "64", libc]
    answer = answer_to_probe(python_version="3.11.7", python_kind=kind, modules=SEALED)
    found = list(check([Reply("node-a", answer=answer)], replace(DEMANDS, kernels=kernels)))
    assert [(each.node, each.what, each.serious) for each in found] == [("node-a", "kernels", False)] * bool(
        missing
    )
    assert all(f"no compiled kernels for {missing}" in each.text for each in found)


@pytest.mark.parametrize(
    ("mode", "wire", "asked"),
    [
        (Mode.V2, Wire.CURVE, ("numpy", "zmq", "cryptography")),
        (Mode.FLUID, Wire.PLAIN, ("numpy", "zmq")),
        (Mode.COLLECTIVE, Wire.CURVE, ()),
    ],
)
def test_what_seals_is_asked_for_where_something_is_sealed(
    mode: Mode, wire: Wire, asked: tuple[str, ...]
) -> None:
    assert asked_modules(mode, wire) == asked


@pytest.mark.parametrize(
    ("version", "kind", "said"),
    [
        ("3.11.7", ["cpython", "", "x86_64", "64", "glibc-2.36"], ""),
        (
            "3.9.2",
            ["cpython", "", "x86_64", "64", "glibc-2.31"],
            "python3 is 3.9.2, but the job needs 3.11 or newer; --boot",
        ),
        (
            "3.11.9",
            ["pypy", "", "x86_64", "64", "glibc-2.36"],
            "python3 is pypy 3.11 on x86_64 .* no wheels exist",
        ),
    ],
)
def test_a_job_that_brings_its_packages_wants_a_python_and_no_module(
    version: str, kind: list[str], said: str
) -> None:
    answer = answer_to_probe(python_version=version, python_kind=kind, modules={})
    demands = Demands(modules=(), port_is_explicit=False, allow_mismatch=False, bootstrap=True)
    found = [finding.text for finding in check([Reply("node-a", answer=answer)], demands)]
    assert len(found) == bool(said)
    assert not found or re.match(said, found[0])


def test_the_oldest_versions_are_those_that_the_package_asks_for() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    asked = dict(
        entry.split(">=") for entry in project["dependencies"] if entry.startswith(("numpy>", "pyzmq>"))
    )
    assert asked == {"numpy": "1.26", "pyzmq": "26"}
    assert OLDEST["numpy"] == (1, 26)
    assert OLDEST["zmq"] == (26,)


def test_packages_of_the_job_cannot_run_on_a_disk_mounted_noexec() -> None:
    node = Reply(
        "a", answer=answer_to_probe(writable=True, facts={"root_dir": {"path": "/jobs", "noexec": True}})
    )
    assert not any(finding.serious for finding in check_disks([node], DEMANDS))
    (found,) = check_disks([node], replace(DEMANDS, modules=(), bootstrap=True))
    assert found.serious
    assert "packages of --bootstrap cannot run" in found.text
