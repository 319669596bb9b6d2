# SPDX-License-Identifier: Apache-2.0
"""Single steps of a benchmark: what they took, and what the longest of them waited for."""

from __future__ import annotations

import pytest

from benchmarks.report import Report
from benchmarks.serving.sides import raw
from benchmarks.stalls import Step, cpu_of, report_steps, steps_of


@pytest.mark.parametrize("checked", ["", "checked"])
@pytest.mark.parametrize("size", [4096, 3 << 20])
def test_plain_sockets_complete_steps_of_any_number_of_pieces(size: int, checked: str) -> None:
    with raw(size, 2, "reno", checked) as side:
        assert [len(each["took"]) for each in side.steps(3)] == [3, 3]


def test_every_step_tells_what_its_time_went_to() -> None:
    with raw(4096, 1) as side:
        steps = steps_of(side, 30)
        assert len(side.steps(3)[0]["took"]) == 3  # without being watched
    assert len(steps) == 30
    assert all(each.took > 0 and min(*each.server, *each.trainer) >= 0 for each in steps)
    assert sum(each.server[0] + each.trainer[0] for each in steps) > 0


def test_the_cpu_time_of_a_step_is_that_of_the_server_and_of_each_trainer() -> None:
    with raw(1 << 20, 2) as side:
        few, many = (sum(cpu_of(side, count)) * count for count in (2, 40))
        assert len(cpu_of(side, 2)) == 3
    assert many > 2 * few > 0


def test_the_longest_step_is_named_with_its_reason_and_stops_are_counted() -> None:
    steps = [Step(0.001, (0.0004, 0.0), (0.0002, 0.0))] * 98
    steps[40:40] = [Step(0.2, (0.001, 0.15), (0.002, 0.01)), Step(0.06, (0.0, 0.0), (0.0, 0.0))]
    report = Report()
    report_steps(report, "plain", steps)
    values = {name: samples.median for name, (samples, _, _) in report.figures.items()}
    assert values["plain_longest"] == 200.0
    assert values["plain_stops"] == 2
    assert values["plain_p50"] == 1000.0
    assert report.figures["plain_longest"][2] == (
        "step 40: 200.0 ms; server computed 1.0, waited for a core 150.0 ms; trainer computed 2.0, waited for a core "
        "10.0 ms"
    )
