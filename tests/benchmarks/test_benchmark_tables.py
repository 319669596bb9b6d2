# SPDX-License-Identifier: Apache-2.0
"""The shared pieces of the benchmarks: turns, medians, ratios, and what is said of what is missing."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import Report
from benchmarks.timing import Contender, Samples, interleave


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
    assert written["figures"]["ours_vs_other"] == {"median": None, "why": "there is no other"}
    assert "not installed" in report.text({"cores": 2})
