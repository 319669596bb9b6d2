# SPDX-License-Identifier: Apache-2.0
"""The tables of facts: every fact that is declared has one row, and every form is known on the page too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from paddle_cluster import dashboard
from paddle_cluster.control.views import FORMS, NODES, PROCESSES, FactView, running_speed, status_table
from paddle_node.contract.facts import PARTS, NodeFacts, ProcessFacts
from paddle_node.contract.records import plan

PAGE = Path(str(dashboard.__file__)).parent / "page" / "page.js"


@pytest.mark.parametrize(("facts", "rows"), [(ProcessFacts, PROCESSES), (NodeFacts, NODES)])
def test_every_declared_fact_has_one_row(facts: type, rows: Sequence[FactView]) -> None:
    declared = {
        column.name
        for part in PARTS[facts]
        for column in plan(part).columns
        if not column.text.startswith("Tuple") or column.name in {"missing", "gpus"}
    }
    named = [row.field for row in rows]
    assert set(named) == declared
    assert len(named) == len(declared)


def test_every_form_of_a_row_is_one_of_status_and_of_the_page() -> None:
    forms = {row.form for row in (*PROCESSES, *NODES)}
    page = PAGE.read_text().partition("const FORMS = {")[2].partition("};")[0]
    assert forms <= FORMS.keys()
    assert FORMS.keys() == set(re.findall(r"^  (\w+): \{", page, re.MULTILINE))


def test_a_row_without_any_fact_has_the_columns_that_are_always_there() -> None:
    (head, line) = status_table(PROCESSES, [{}], 0.0)
    assert head.split() == ["process", "node", "pid", "state"]
    assert line.split() == ["unknown"]


def test_each_number_that_a_script_names_has_a_column_and_what_nobody_reports_has_none() -> None:
    rows = [
        {"name": "trainer-0", "batch_id": 7, "step": 7, "cost": 0.5, "metrics": {"f1": 0.25, "lr": 0.001}},
        {"name": "trainer-1", "batch_id": 8, "step": 8, "samples_per_s": 2.5, "metrics": {"f1": 0.125}},
    ]
    head, first, second = status_table(PROCESSES, rows, 0.0)
    assert head.split() == ["process", "node", "pid", "state", "step", "cost", "samples/s", "f1", "lr"]
    assert first.split() == ["trainer-0", "unknown", "7", "0.5", "0.25", "0.001"]
    assert second.split() == ["trainer-1", "unknown", "8", "2.5", "0.125"]


def test_a_process_that_has_exited_has_no_speed() -> None:
    states = {"running": 2.5, "exited": None}
    assert {state: running_speed({"state": state, "samples_per_s": 2.5}) for state in states} == states


def test_growing_tables_have_a_column_with_rows_bytes_hits_and_what_was_dropped() -> None:
    facts = {
        "rows": 1_200_000,
        "rows_bytes": 90_000_000,
        "rows_disk_bytes": 6_000_000,
        "rows_asked": 200,
        "rows_found": 186,
        "rows_dropped": 3000,
    }
    rows = [{"name": "pserver-0", "rows": 0, "rows_asked": 0}, {"name": "pserver-1", **facts}]
    head, first, second = status_table(PROCESSES, rows, 0.0)
    assert head.split() == ["process", "node", "pid", "state", "rows"]
    assert first.split() == ["pserver-0", "unknown"]
    assert second.partition("unknown")[2].strip() == "1,200,000, 91.6 MB, 93% found, 3,000 dropped"
