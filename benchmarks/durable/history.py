# SPDX-License-Identifier: Apache-2.0
"""Judges what trainers saw while their servers were killed: every push is there once, and nothing ever went back.

Each trainer has a counter of its own in a vector that a server holds, and every push adds one to it. What the
answers show is then the server's history: of any two states that anybody saw, one holds all of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

State = Sequence[float]


def faults(seen: Sequence[Sequence[State]], final: State, pushes: int) -> list[str]:
    """Return what is wrong with the history of one vector; nothing if all is well.

    Args:
        seen: for each trainer, the vector after each of its pushes.
        final: the vector after the last push of all.
        pushes: of each trainer.
    """
    found = [
        f"trainer {trainer}: {got:g} of {pushes} pushes are in the final state"
        for trainer, got in enumerate(final)
        if got != pushes
    ]
    for trainer, states in enumerate(seen):
        if len(states) != pushes:
            found.append(f"trainer {trainer}: {len(states)} answers to {pushes} pushes")
        found += [
            f"trainer {trainer}: push {number} was answered with {state[trainer]:g} of its pushes"
            for number, state in enumerate(states, 1)
            if state[trainer] != number
        ]
    found += [
        f"trainer {trainer}: {text}" for trainer, states in enumerate(seen) for text in _steps_back(states)
    ]
    everything = sorted(
        (tuple(state) for states in seen for state in states), key=lambda state: (sum(state), state)
    )
    found += [
        f"two trainers saw states of which neither came first: {text}" for text in _steps_back(everything)
    ]
    return found


def _steps_back(states: Sequence[State]) -> list[str]:
    return [
        f"{list(before)} before {list(after)}"
        for before, after in pairwise(states)
        if any(one > other for one, other in zip(before, after, strict=True))
    ]
