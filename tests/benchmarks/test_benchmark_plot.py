# SPDX-License-Identifier: Apache-2.0
"""Pictures of benchmarks: what they show is what was found."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.report import Report, main
from benchmarks.timing import Samples

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def report() -> Report:
    made = Report()
    made.add("raw_40MB", Samples((2.0, 4.0, 3.0)), "GB/s")
    made.add("tcp_40MB", Samples((1.5,)), "GB/s")
    made.add("raw_4KB", Samples((90.0,)), "us")
    made.lack("ray_40MB", "ray is <not> installed")
    return made


def test_a_bar_is_as_long_as_its_figure_beside_the_others_of_its_unit(report: Report, tmp_path: Path) -> None:
    report.show({"cpu": "one & two"}, tmp_path / "it.json", tmp_path / "it.svg")
    drawn = ElementTree.parse(tmp_path / "it.svg").getroot()
    bars = [rect for rect in drawn.iter(f"{SVG}rect") if rect.get("x")]
    raw, tcp, small = (float(str(bar.get("width"))) for bar in bars)
    assert raw / tcp == pytest.approx(2.0, 0.01)
    assert small / raw == pytest.approx(4 / 3, 0.01)
    assert bars[0].get("fill") == bars[2].get("fill") != bars[1].get("fill")
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert {"GB/s", "us", "raw_40MB", "3", "1.5", "90", "cpu one & two"} <= set(texts)
    assert main([str(tmp_path / "it.json"), str(tmp_path / "again.svg")]) == 0
    assert (tmp_path / "again.svg").read_text() == (tmp_path / "it.svg").read_text()


@pytest.mark.parametrize("content", ["no json", "[]", json.dumps({"figures": {"a": {"median": 1}}})])
def test_what_is_no_benchmarks_json_is_refused_with_its_name(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "it.json").write_text(content)
    with pytest.raises(SystemExit):
        main([str(tmp_path / "it.json"), str(tmp_path / "it.svg")])
    assert "it.json: expected what a benchmark's --json wrote" in capsys.readouterr().err
    assert not (tmp_path / "it.svg").exists()
