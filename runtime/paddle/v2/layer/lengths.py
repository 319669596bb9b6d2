# SPDX-License-Identifier: Apache-2.0
"""Whose rows a layer has: one a sample, or those of a data layer's sequences; and which of them must agree.

What cannot be said before a batch comes, such as the rows of a recurrent group's steps, is left open and refuses no
layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paddle.v2.data_type import SequenceType
from paddle.v2.errors import UsageError
from paddle.v2.layer.emitter import LAYERS
from paddle.v2.model import LayerConfig

Origin: TypeAlias = str | None
"""Name of the layer whose sequences a layer has the lengths of; `ONE_A_SAMPLE`; None: not known before a batch."""
ONE_A_SAMPLE = ""


class Meeting(NamedTuple):
    """A layer that goes row by row through what comes of two data layers; `other` may be `ONE_A_SAMPLE`."""

    layer: str
    one: str
    other: str


def origin_of(config: LayerConfig, known: Mapping[str, Origin]) -> Origin:
    """Whose rows a layer has, from those of its inputs.

    Raises:
        UsageError: an input should be a sequence and is none.
    """
    if config.input_type is not None:
        kinds = {SequenceType.NO_SEQUENCE: ONE_A_SAMPLE, SequenceType.SEQUENCE: config.name}
        return kinds.get(config.input_type.seq_type)
    inputs = _inputs(config)
    for place, called in _sequence_inputs(config):
        if known.get(inputs[place]) == ONE_A_SAMPLE:
            raise UsageError(
                f"layer {config.name!r} ({called}) takes a sequence, but its input {inputs[place]!r} has one row a "
                "sample: declare the data layer behind it as a sequence, such as dense_vector_sequence or "
                "integer_value_sequence"
            )
    if config.type in LAYERS and LAYERS[config.type].one_a_sample:
        return ONE_A_SAMPLE
    if config.type == "expand":
        return known.get(inputs[1])
    origins = [known.get(name) for name in _together(config)] or [None]
    return next(filter(None, origins), None if None in origins else ONE_A_SAMPLE)


def meetings(layers: Mapping[str, LayerConfig]) -> list[Meeting]:
    """Where sequences of data layers meet others, or single rows, of a network in order of declaration."""
    known: dict[str, Origin] = {}
    found: dict[tuple[str, str], str] = {}
    for name, config in layers.items():
        known[name] = origin_of(config, known)
        together = _together(config)
        if config.type == "group_output":
            together = _steps(layers, str(config.attrs["group_name"]))
            known[name] = known.get(together[0])
        origins = dict.fromkeys(known.get(each) for each in together)
        one, *others = sorted((each for each in origins if each is not None), key=_is_single) or [
            ONE_A_SAMPLE
        ]
        for other in others:
            found.setdefault((one, other), name)
    return [Meeting(layer, one, other) for (one, other), layer in found.items()]


def check_lengths(feed: Mapping[str, Any], places: Sequence[Meeting]) -> None:
    """Refuse a batch in which sequences that go together have different lengths.

    Args:
        feed: of the feeder.
        places: of `meetings`.

    Raises:
        UsageError: names the layers, the sample and both lengths.
    """
    for layer, one, other in places:
        here = _lengths(feed, one)
        there = np.ones_like(here) if other == ONE_A_SAMPLE else _lengths(feed, other)
        for sample in np.flatnonzero(here != there):
            if other == ONE_A_SAMPLE:
                raise UsageError(
                    f"layer {layer!r} goes through its inputs row by row, but of sample {sample} one has "
                    f"{here[sample]} rows, the sequence of data layer {one!r}, and another has 1 row: layer.pooling "
                    "makes one row of a sequence, layer.expand repeats a row, and the labels of a sequence's items "
                    "are an integer_value_sequence"
                )
            raise UsageError(
                f"data layers {one!r} and {other!r} meet in layer {layer!r} and need sequences of equal lengths: "
                f"sample {sample} has {here[sample]} items of {one!r}, but {there[sample]} of {other!r}"
            )


def _lengths(feed: Mapping[str, Any], name: str) -> NDArray[np.int64]:
    """Items of each sample; a sparse layer is fed as a matrix of sequences."""
    lengths: NDArray[np.int64] = np.diff((feed[name] if name in feed else feed[f"{name}.matrix"]).lod[-1])
    return lengths


def _steps(layers: Mapping[str, LayerConfig], group: str) -> list[str]:
    """The layers that a recurrent group goes through step by step."""
    members = [each for each in layers.values() if each.group == group]
    return [each.inputs[0].layer for each in members if each.attrs.get("kind") == "step"]


def _is_single(origin: str) -> bool:
    return origin == ONE_A_SAMPLE


def _together(config: LayerConfig) -> list[str]:
    """The inputs that a layer goes through at once, row by row."""
    return _inputs(config)[: LAYERS[config.type].together] if config.type in LAYERS else []


def _inputs(config: LayerConfig) -> list[str]:
    others = [str(link.attrs["other"]) for link in config.inputs if "other" in link.attrs]
    return [link.layer for link in config.inputs] + others


def _sequence_inputs(config: LayerConfig) -> Iterator[tuple[int, str]]:
    if config.type in LAYERS:
        entry = LAYERS[config.type]
        yield from ((place, entry.called) for place in entry.sequences if place < len(config.inputs))
    if config.attrs.get("kind") == "step":
        yield 0, "a step of recurrent_group"
    for place, link in enumerate(config.inputs):
        if link.projection in ("context", "padded_context"):
            yield place, "context_projection"
