# SPDX-License-Identifier: Apache-2.0
"""Pushes end, whole and once, whatever a wire does: many histories of trainers and servers without sockets."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.pserver.client.simulated_wire import History, play, small_chunks

HISTORIES = 600


def test_every_history_of_these_seeds_ends_with_whole_pushes_each_taken_once() -> None:
    with small_chunks():
        for seed in range(HISTORIES):
            play(seed)


@settings(max_examples=40, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.randoms(use_true_random=False))
def test_every_history_that_can_be_thought_of_ends_with_whole_pushes_each_taken_once(
    choices: random.Random,
) -> None:
    with small_chunks():
        History(choices).play()
