# SPDX-License-Identifier: Apache-2.0
"""Specs are checked when made and travel unchanged; learning rates follow their schedules."""

from __future__ import annotations

import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import pytest

from paddle.errors import ConfigError
from paddle.optim.learning_rate import LearningRate
from paddle.optim.rules.table import RULES
from paddle.optim.schedule import STEP_SCHEDULES
from paddle.optim.spec import SCHEDULES, OptimizerSpec, ParameterSpec

OPTIMIZER = OptimizerSpec("adam", {"beta1": 0.8}, 0.1, "poly", 1e-3, 0.5, is_async=True, discard_ratio=2.0)
PARAMETER = ParameterSpec("fc.w", (3, 4), 2.0, l1=0.1, l2=1e-4, clip=25.0, sparse=True)


def test_specs_come_back_from_json_as_they_were() -> None:
    assert OptimizerSpec.from_json(json.loads(json.dumps(OPTIMIZER.to_json()))) == OPTIMIZER
    assert ParameterSpec.from_json(json.loads(json.dumps(PARAMETER.to_json()))) == PARAMETER


def test_missing_hyperparameters_get_their_defaults() -> None:
    assert dict(OPTIMIZER.hyper) == {"beta1": 0.8, "beta2": 0.999, "epsilon": 1e-8}


def test_a_spec_does_not_follow_later_changes_of_the_callers_mapping() -> None:
    hyper = {"rho": 0.9}
    spec = OptimizerSpec("rmsprop", hyper)
    hyper["rho"] = 0.1
    assert spec.hyper["rho"] == 0.9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rule": "newton"}, "optimizer rule: expected one of .*momentum.*got 'newton'"),
        ({"schedule": "cosine"}, "schedule: expected one of constant"),
        ({"hyper": {"beta3": 1}}, "hyperparameter of adam.*beta3"),
        ({"hyper": {"beta1": math.nan}}, "beta1: expected a finite number"),
        ({"hyper": {"beta1": 1.0}}, "adam beta1: expected 0 or more and less than 1, got 1.0"),
        ({"hyper": {"beta2": 1.5}}, "adam beta2: expected 0 or more and less than 1, got 1.5"),
        ({"hyper": {"epsilon": 0}}, "adam epsilon: expected more than 0, got 0"),
        ({"hyper": {"epsilon": 10**400}}, "adam epsilon: expected a finite number"),
        (
            {"rule": "rmsprop", "hyper": {"rho": -1}},
            "rmsprop rho: expected 0 or more and less than 1, got -1",
        ),
        ({"learning_rate": -0.5}, "learning_rate: expected 0 or more, got -0.5"),
        ({"discard_ratio": -3}, "discard_ratio: expected 0 to 1000000, got -3.0"),
        ({"discard_ratio": 1e300}, "discard_ratio: expected 0 to 1000000"),
        ({"learning_rate": "fast"}, "learning_rate: expected a finite number, got 'fast'"),
        ({"learning_rate": True}, "learning_rate"),
        ({"is_async": 1}, "is_async: expected true or false"),
        ({"extra": 1}, "expected the fields"),
    ],
)
def test_an_optimizer_that_cannot_be_is_refused_by_name(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        OptimizerSpec.from_json(OPTIMIZER.to_json() | change)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": ""}, "parameter name"),
        ({"name": "ü" * 200}, "parameter name: expected 1 to 255 bytes"),
        ({"name": "a\nb"}, "parameter name: expected printable"),
        ({"name": "\ud800"}, "parameter name: expected printable"),
        ({"shape": [10**30, 4]}, "fc.w: shape: expected at most"),
        ({"shape": [3, 0]}, "fc.w: shape"),
        ({"shape": [3, 4.0]}, "fc.w: shape"),
        ({"shape": []}, "at least one dimension"),
        ({"shape": [12]}, "sparse parameter: expected .height, width."),
        ({"l2": -1.0}, "fc.w: l2: expected 0 or more"),
        ({"momentum": 0.9}, "momentum: expected 0 with L1"),
        ({"clip": math.inf}, "fc.w: clip"),
        ({"static": None}, "static: expected true or false"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_by_name(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ParameterSpec.from_json(PARAMETER.to_json() | change)


@pytest.mark.parametrize("data", [None, [], "adam", {"rule": "adam"}])
def test_what_is_no_spec_at_all_is_refused(data: object) -> None:
    with pytest.raises(ConfigError, match="expected the fields"):
        OptimizerSpec.from_json(data)


def rate(
    schedule: str, n: int, a: float = 0.0, b: float = 0.0, args: str = "", pass_id: int = 0, after: int = 0
) -> float:
    spec = OptimizerSpec("momentum", {}, 0.5, schedule, a, b, args).after_passes(after)
    return LearningRate(spec).at(n, pass_id)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (rate("constant", 1000, 5, 5), 0.5),
        (rate("poly", 100, 0.01, 0.5), 0.5 * (1 + 0.01 * 100) ** -0.5),
        (rate("poly", 100), 0.5),
        (rate("caffe_poly", 25, 100, 2), 0.5 * 0.75**2),
        (rate("caffe_poly", 101, 100, 2), 0.0),
        (rate("exp", 30, 0.9, 20), 0.5 * 0.9**1.5),
        (rate("discexp", 39, 0.9, 20), 0.5 * 0.9),
        (rate("linear", 10, 0.01, 0.2), 0.4),
        (rate("linear", 1000, 0.01, 0.2), 0.2),
        (rate("manual", 100, args="100:1.0,200:0.5,300:0.25"), 0.5),
        (rate("manual", 101, args="100:1.0,200:0.5,300:0.25"), 0.25),
        (rate("manual", 9999, args="100:1.0,200:0.5,300:0.25"), 0.125),
        (rate("pass_manual", 9999, args="1:1.0,2:0.1", pass_id=1), 0.5),
        (rate("pass_manual", 0, args="1:1.0,2:0.1", pass_id=2), 0.05),
        (rate("pass_manual", 0, args="1:1.0,2:0.1", after=2), 0.05),
        (rate("pass_manual", 0, args="1:1.0,3:0.1,4:0.5", pass_id=2, after=1), 0.05),
    ],
)
def test_a_schedule_follows_its_formula(got: float, expected: float) -> None:
    assert got == pytest.approx(expected, rel=1e-12)


def test_a_switch_between_segments_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    schedule = LearningRate(
        OptimizerSpec(learning_rate=1.0, schedule="manual", schedule_args="10:1.0,20:0.5")
    )
    with caplog.at_level(logging.INFO, "paddle"):
        for n in (5, 10, 15, 20, 25):
            schedule.at(n, 0)
    assert [record.getMessage() for record in caplog.records] == [" learning_rate changes to 0.5"]


@pytest.mark.parametrize(
    ("schedule", "args", "why"),
    [
        ("manual", "100=1.0", "expected '<position>:<factor>,...', got '100=1.0'"),
        ("manual", "", "expected '<position>"),
        ("manual", "20:1,10:2", "ascending"),
        ("manual", "20:nan", "finite, non-negative factors"),
        ("pass_manual", "1:1,2:-1", "non-negative factors"),
        ("exp", "", "learning_rate_decay_b"),
        ("caffe_poly", "", "learning_rate_decay_a"),
    ],
)
def test_a_schedule_without_usable_arguments_is_refused(schedule: str, args: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        LearningRate(OptimizerSpec(schedule=schedule, schedule_args=args))


@pytest.mark.parametrize(
    ("schedule", "a", "b", "why"),
    [
        ("poly", -1.0, 0.5, "decay_a: schedule poly expects 0 or more, got -1"),
        ("exp", -0.5, 2.0, "decay_a: schedule exp expects more than 0, got -0.5"),
        ("discexp", 0.0, -1.0, "decay_a: schedule discexp expects more than 0, got 0"),
        ("caffe_poly", 100.0, -1.0, "decay_b: schedule caffe_poly expects 0 or more, got -1"),
        ("linear", 1.0, -1.0, "decay_b: the lower limit of schedule linear"),
    ],
)
def test_arguments_that_lead_out_of_the_real_numbers_are_refused(
    schedule: str, a: float, b: float, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        LearningRate(OptimizerSpec(schedule=schedule, decay_a=a, decay_b=b))


def test_a_rate_that_grows_beyond_every_number_is_an_error_and_no_infinity() -> None:
    with pytest.raises(ConfigError, match="expected a finite rate, got inf after 5000 samples"):
        rate("exp", 5000, 2.0, 1.0)


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name not in STEP_SCHEDULES])
def test_every_schedule_gives_a_rate_at_the_start(schedule: str) -> None:
    spec = OptimizerSpec(
        learning_rate=0.1, schedule=schedule, decay_a=0.5, decay_b=0.01, schedule_args="10:1.0"
    )
    assert 0 < LearningRate(spec).at(0, 0) <= 0.1


def test_the_manual_names_every_rule_hyperparameter_and_schedule() -> None:
    text = (Path(__file__).parents[3] / "docs" / "update-rules.md").read_text(encoding="utf-8")
    names = {*RULES, *SCHEDULES, *(name for hyper in RULES.values() for name in hyper.defaults())}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_can_be_named_alone(rule: str) -> None:
    assert OptimizerSpec(rule).rule == rule
