# SPDX-License-Identifier: Apache-2.0
"""The ``gm`` of events: values of any layer for the batch at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from paddle.graph.fetched import fetched
from paddle.ops.base.lod import plain
from paddle.v2.training.feeder import Feed
from paddle.v2.training.gradient_machine import GradientMachine


class LayerOutputs:
    """Layer values of one batch in training mode.

    A layer that was never asked for before is computed again with the batch's dropout masks: in EndForwardBackward
    that is exact, in EndIteration it sees the new weights. From the next batch on it comes from the step itself.
    """

    def __init__(self, machine: GradientMachine, feed: Feed, step: int, known: Mapping[str, Any]) -> None:
        self._machine = machine
        self._feed = feed
        self._step = step
        self._known: dict[str, NDArray[Any]] = {name: plain(value) for name, value in known.items()}

    def getLayerOutputs(self, layerNames: str | Sequence[str]) -> dict[str, dict[str, NDArray[Any] | None]]:  # noqa: N802
        """Layer name -> {"value", "id", "prob"}; ids of an integer layer stand under "id"."""
        names = [layerNames] if isinstance(layerNames, str) else list(layerNames)
        unknown = [name for name in names if name not in self._known]
        if unknown:
            self._known.update(self._machine.observe(self._feed, self._step, unknown))
        found: dict[str, dict[str, NDArray[Any] | None]] = {}
        for name in names:
            value = self._known[name]
            is_id = value.dtype.kind == "i"
            found[name] = {
                "value": None if is_id else fetched(value),
                "id": value.reshape(-1) if is_id else None,
                "prob": None,
            }
        return found
