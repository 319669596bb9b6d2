# SPDX-License-Identifier: Apache-2.0
"""PROGRESS of conf.py: patterns and names of ready ones, which find what the libraries print."""

from __future__ import annotations

import re

import pytest

from paddle_cluster.config.entry import READY, read_progress
from paddle_cluster.config.values import ValueMismatchError

LINES = {
    "tqdm": (
        "fit:  40%|████      | 4/10 [00:00<00:01,  5.00it/s, loss=0.25, lr=1e-3]",
        {"step": "4", "steps_per_s": "5.00", "loss": "0.25", "lr": "1e-3"},
    ),
    "lightning": (
        "Epoch 3:  50%|█████     | 32/64 [00:00<00:00, 120.00it/s, v_num=0, train_loss=0.123]",
        {"epoch": "3", "step": "32", "train_loss": "0.123"},
    ),
    "transformers": (
        "{'loss': 0.5312, 'grad_norm': 1.25, 'learning_rate': 4.5e-05, 'epoch': 0.1}",
        {"loss": "0.5312", "grad_norm": "1.25", "learning_rate": "4.5e-05", "epoch": "0.1"},
    ),
    "keras": (
        "\x1b[1m10/100\x1b[0m \x1b[32m━━\x1b[0m \x1b[1m5s\x1b[0m 20ms/step - accuracy: 0.1 - loss: 2.3",
        {"step": "10", "accuracy": "0.1", "loss": "2.3"},
    ),
}


def found(patterns: tuple[str, ...], line: str) -> dict[str, str]:
    """What an agent takes from a line."""
    numbers: dict[str, str] = {}
    for pattern in patterns:
        for match in re.finditer(pattern, line):
            groups = match.groupdict()
            if "name" in groups:
                groups = {groups["name"]: groups["value"]}
            numbers |= groups
    return numbers


@pytest.mark.parametrize("name", READY)
def test_a_ready_pattern_finds_the_numbers_of_its_library(name: str) -> None:
    line, numbers = LINES[name]
    assert found(read_progress(name), line) == numbers


def test_several_patterns_and_names_may_be_given() -> None:
    own = r"loss (?P<loss>\d+)"
    assert read_progress([own, "tqdm"]) == (own, *READY["tqdm"])
    assert read_progress(()) == ()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (7, "a list"),
        ([7], "named groups"),
        ("loss=", "named groups"),
        ("kears", "did you mean 'keras'"),
        ("(?P<name>x)", "appear together"),
        ("(?P<loss>", "is not a regular expression"),
        (["(?P<a>x)" + "x" * 1000], "1008 characters"),
    ],
)
def test_what_is_no_pattern_is_refused(value: object, why: str) -> None:
    with pytest.raises(ValueMismatchError, match=why):
        read_progress(value)
