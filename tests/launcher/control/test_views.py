# SPDX-License-Identifier: Apache-2.0
"""The tables of facts: every fact that is declared has one row, and every form is known on the page too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from paddle_cluster import dashboard
from paddle_cluster.control.views import FORMS, NODES, PROCESSES, FactView, status_table
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
