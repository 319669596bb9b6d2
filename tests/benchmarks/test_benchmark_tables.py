# SPDX-License-Identifier: Apache-2.0
"""The shared pieces of the benchmarks: turns, medians, ratios, and what is said of what is missing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.report import Report, main
from benchmarks.timing import Contender, Samples, interleave

SVG = "{http://www.w3.org/2000/svg}"


def test_contenders_take_turns_after_a_round_that_does_not_count() -> None:
    seen: list[str] = []

    def turn_of(name: str) -> Contender:
        def run(turn: int) -> float:
            seen.append(f"{name}{turn}")
            return 1.0

        return Contender(name, run)

    found, failed = interleave([turn_of("a"), turn_of("b")], turns=2, warm_up=True)
    assert seen == ["a-1", "b-1", "a0", "b0", "a1", "b1"]
    assert found == {"a": Samples((1.0, 1.0)), "b": Samples((1.0, 1.0))}
    assert failed == {}


def test_a_contender_that_fails_once_has_no_figure_and_a_reason() -> None:
    def fail_late(turn: int) -> float:
        if turn == 1:
            raise RuntimeError("no such tool")
        return 1.0

    found, failed = interleave([Contender("bad", fail_late), Contender("good", lambda turn: 2.0)], turns=3)
    assert found == {"good": Samples((2.0, 2.0, 2.0))}
    assert failed == {"bad": "no such tool"}


def test_a_ratio_is_that_of_the_medians_and_needs_both(tmp_path: Path) -> None:
    report = Report()
    report.add("ours", Samples((1.0, 9.0, 2.0)), "s")
    report.add("theirs", 4.0, "s", "once")
    report.lack("other", "not installed")
    report.compare("ours_vs_theirs", "ours", "theirs")
    report.compare("ours_vs_other", "ours", "other")
    report.write(tmp_path / "out.json", {"cores": 2})
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["machine"] == {"cores": 2}
    assert written["ratios"] == {"ours_vs_theirs": 0.5}
    assert written["figures"]["ours"] == {
        "median": 2.0,
        "low": 1.0,
        "high": 9.0,
        "n": 3,
        "unit": "s",
        "what": "",
    }
    assert written["figures"]["ours_vs_other"] == {"median": None, "why": "missing: other"}
    assert "not installed" in report.text({"cores": 2})


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
    assert "it.json: expected" in capsys.readouterr().err
    assert not (tmp_path / "it.svg").exists()
