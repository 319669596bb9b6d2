# SPDX-License-Identifier: Apache-2.0
"""A program without variables but one, for servers of programs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from paddle.errors import PserverError
from paddle.pserver.wire.named_values import Ids, Rows, Value
from paddle.pserver.wire.shared_memory import SharedArray


class Recorder:
    """A program that notes what it is given; "w" is the sum of all gradients."""

    def __init__(self) -> None:
        self.w = np.zeros(3, np.float32)
        self.steps: list[list[str]] = []
        self.is_changed_by_answers = False

    def kept(self) -> Iterator[tuple[str, Value]]:
        yield "w", self.w

    def take_up(self, name: str, value: Value) -> None:
        assert name == "w"
        assert not isinstance(value, Rows)
        self.w = value

    def given(self, trainer: int, name: str) -> Value:
        return self.w

    def check(self, name: str, value: Value) -> None:
        if not name.startswith("g"):
            raise PserverError(f"no gradient {name!r}")

    def check_first(self, name: str, value: Value) -> None:
        if name != "w":
            raise PserverError(f"no variable {name!r}")

    def begin_with(self, name: str, value: Value) -> None:
        self.take_up(name, np.array(value))

    def is_agreed(self, names: Collection[str]) -> bool:
        return False

    def step(self, gradients: Mapping[str, Value]) -> None:
        self.steps.append(list(gradients))
        for value in gradients.values():
            dense = np.zeros(3, np.float32)
            if isinstance(value, Rows):
                np.add.at(dense, value.ids, value.values[:, 0])
            else:
                dense = value
            if not np.isfinite(dense).all():
                raise PserverError("not finite")
            self.w += dense

    def apply(self, trainer: int, gradients: Mapping[str, Value]) -> None:
        self.step(gradients)

    def share(self) -> list[SharedArray]:
        return []

    def value(self, trainer: int, name: str) -> Value:
        return self.w

    def lookup(self, name: str, ids: Ids) -> Value:
        return self.w.take(ids)[:, None]

    def save(self, name: str, path: str) -> None:
        raise PserverError(f"{name} is no table")
