# SPDX-License-Identifier: Apache-2.0
"""The table of options holds: each row has its place in Settings and on a page, and each place has a row."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from paddle_cluster.config.options import BY_KEY, OPTIONS, Option
from paddle_cluster.config.settings import GROUPS, Settings

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `--(\w+)([^|]*) \|", PAGE.partition("\n## Entry")[0], re.MULTILINE))
ASKS = {"help", "version"}  # of no job
DERIVED = {
    *(
        "cluster.port_is_explicit",
        "cluster.slots",
        "ssh.host_keys",
        "job.mode_is_explicit",
        "job.passthrough",
    ),
    *(
        "job.flags",
        "job.threads",
        "job.host_variables",
        "engines.start_timeout_s",
        "engines.slurm_job",
        "engines.waits_for_nodes",
    ),
    *("sources", "state"),
}
"""Fields of Settings that follow from several rows, or from none."""


def places() -> set[str]:
    """Every field of Settings, dotted, those that are groups of others left out."""
    found = {field.name for field in fields(Settings)}
    for name, group in GROUPS.items():
        names = [field.name for field in fields(group)] if is_dataclass(group) else group._fields  # type: ignore[attr-defined]
        found |= {f"{name}.{one}" for one in names}
    return found - set(GROUPS)


def test_every_row_decides_a_part_of_the_settings_and_every_part_has_a_row() -> None:
    targets = {row.target for row in BY_KEY.values() if row.name not in ASKS}
    assert targets | DERIVED == places()
    assert not targets & DERIVED
    assert all(row.target == "" for row in OPTIONS if row.name in ASKS)


def test_no_two_rows_have_one_name() -> None:
    names = [row.name for row in BY_KEY.values() if row.name]
    shorts = [row.short for row in OPTIONS if row.short]
    assert len(set(names)) == len(names) == len(OPTIONS)
    assert len(set(shorts)) == len(shorts)


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.name)
def test_the_page_has_the_option_as_the_table_has_it(row: Option) -> None:
    written = ROWS[row.name]
    assert written.startswith(f"={row.metavar}`" if row.metavar else "`")
    assert (f"`-{row.short}" in written) == bool(row.short)


def test_the_page_has_no_other_options() -> None:
    assert set(ROWS) == {row.name for row in OPTIONS}


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.name)
def test_what_excludes_an_option_are_words_of_the_table(row: Option) -> None:
    known = {one.name: one for one in OPTIONS}
    for words in row.against:
        for word in words.split():
            name, equals, value = word.removeprefix("--").partition("=")
            assert (value in known[name].choices) if equals else name in known
