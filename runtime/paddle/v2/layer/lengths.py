# SPDX-License-Identifier: Apache-2.0
"""Determines the sequence lengths of layers, and checks that they agree.

Lengths that are unknown before a batch arrives, such as those within the steps of a recurrent group, are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paddle.ops.base.segments import joined
from paddle.v2.data_type import SequenceType
from paddle.v2.errors import UsageError
from paddle.v2.layer.emitter import LAYERS, ONE_LEVEL
from paddle.v2.model import LayerConfig
from paddle_node.contract.classes import NamedTuple, replace

_Lengths: TypeAlias = NDArray[np.int64]


class Origin(NamedTuple):
    """The data layer from which a layer gets its sequence lengths.

    Attributes:
        layer: a data layer; empty if there is one row per sample.
        levels: 0 with one row per sample, 1 with sequences, 2 with sequences of sequences. A layer with one level that
            depends on a data layer with two has a row for each sub-sequence.
    """

    layer: str
    levels: int


ONE_A_SAMPLE = Origin("", 0)


class Meeting(NamedTuple):
    """Two origins of sequence lengths that must agree, because one layer combines their rows pairwise.

    Attributes:
        layer: the name of the layer that combines them.
        one: the origin with sequences.
        other: a different origin; `ONE_A_SAMPLE` if it has one row per sample.
        inputs: the layer's first input of each origin.
        created: the end of messages about the layer.
    """

    layer: str
    one: Origin
    other: Origin
    inputs: tuple[str, str]
    created: str


def origin_of(
    config: LayerConfig, known: Mapping[str, Origin | None], layers: Mapping[str, LayerConfig]
) -> Origin | None:
    """Return the origin of a layer's lengths, given its inputs' origins; None if it is unknown before a batch.

    Raises:
        UsageError: an input must be a sequence but is not, or must have two levels but has one.
    """
    if config.input_type is not None:
        levels = int(config.input_type.seq_type)
        return Origin(config.name, levels) if levels else ONE_A_SAMPLE
    inputs = _inputs(config)
    goes_into_levels = config.attrs.get("trans_type") == "seq"
    for place, called in _sequence_inputs(config):
        origin = known.get(inputs[place])
        if origin == ONE_A_SAMPLE:
            raise UsageError(
                f"layer {config.name!r} ({called}) needs a sequence, but its input {inputs[place]!r} "
                f"has one row per sample: {_declaration(inputs[place], layers)}{config.created}"
            )
        must_be_nested = goes_into_levels or (config.type in LAYERS and LAYERS[config.type].nested)
        if must_be_nested and origin is not None and origin.levels < 2:
            text = ONE_LEVEL.format(layer=config.name, input=inputs[place])
            raise UsageError(f"{text}{config.created}")
    if config.type in LAYERS and LAYERS[config.type].one_a_sample:
        origin = known.get(inputs[0])
        if goes_into_levels:
            return origin and origin._replace(levels=1)
        return None if int(config.attrs.get("stride", -1)) > 0 else ONE_A_SAMPLE  # type: ignore[arg-type]
    if config.type == "expand":
        return known.get(inputs[1])
    origins = [known.get(name) for name in _together(config)] or [None]
    of_sequences = (each for each in origins if each not in (None, ONE_A_SAMPLE))
    return next(of_sequences, None if None in origins else ONE_A_SAMPLE)


def _declaration(name: str, layers: Mapping[str, LayerConfig]) -> str:
    """Return advice to declare the data layer from which a layer is computed as a sequence."""
    reached: dict[str, LayerConfig] = {}
    ahead = [name]
    while ahead:
        each = ahead.pop()
        if each in layers and each not in reached:
            reached[each] = layers[each]
            ahead += _inputs(layers[each])
    data = [(each, each.input_type) for each in reached.values() if each.input_type is not None]
    if len(data) != 1:
        return "declare the data layers below it as sequences, such as dense_vector_sequence or integer_value_sequence"
    [(config, kind)] = data
    wanted = replace(kind, seq_type=SequenceType.SEQUENCE).declaration
    return f"declare data layer {config.name!r} ({config.origin.removeprefix('at ')}) as {wanted}"


def meetings(layers: Mapping[str, LayerConfig]) -> list[Meeting]:
    """Return the pairs of origins whose sequence lengths must agree, because a layer combines their rows."""
    known: dict[str, Origin | None] = {}
    found: dict[tuple[Origin, Origin], Meeting] = {}
    for name, config in layers.items():
        known[name] = origin_of(config, known, layers)
        together = _together(config)
        if config.type == "group_output":
            together = _steps(layers, str(config.attrs["group_name"]))
            origins = [known.get(each) for each in together]
            # A step over sub-sequences may output a row or a sequence; which one is only known with a batch.
            known[name] = None if any(each and each.levels > 1 for each in origins) else origins[0]
            if known[name] is None:
                together = []
        met: dict[Origin, str] = {}
        for each in together:
            if (origin := known.get(each)) is not None:
                met.setdefault(origin, each)
        one, *others = sorted(met, key=_is_single) or [ONE_A_SAMPLE]
        for other in others:
            inputs = (met[one], met[other])
            found.setdefault((one, other), Meeting(name, one, other, inputs, config.created))
    return list(found.values())


def require_sizes(layers: Mapping[str, LayerConfig], config: LayerConfig, *sizes: int) -> None:
    """Check the sizes of a layer's first inputs.

    Raises:
        UsageError: an input has a different size.
    """
    for link, size in zip(config.inputs, sizes, strict=False):
        if layers[link.layer].size != size:
            raise UsageError(
                f"{config.type}: layer {link.layer!r} has size {layers[link.layer].size}; expected {size}"
            )


def check_lengths(feed: Mapping[str, Any], places: Sequence[Meeting]) -> None:
    """Check that sequences that a layer combines have equal lengths in a batch.

    Args:
        feed: the result of the feeder.
        places: the result of `meetings`.

    Raises:
        UsageError: lengths differ; the message names the layers, the sample, the level and both lengths.
    """
    for layer, one, other, inputs, created in places:
        here = _lengths(feed, one)
        there = np.ones_like(here) if other == ONE_A_SAMPLE else _lengths(feed, other)
        for sample in np.flatnonzero(here != there):
            if other == ONE_A_SAMPLE:
                raise UsageError(
                    f"layer {layer!r} combines its inputs row by row, but in sample {sample} input {inputs[0]!r} "
                    f"has {here[sample]} rows (the sequence of data layer {one.layer!r}) and input {inputs[1]!r} has "
                    "1 row. layer.last_seq or layer.pooling reduces a sequence to one row, layer.expand repeats a "
                    f"row, and labels of the items of a sequence need integer_value_sequence{created}"
                )
            what, others = _items(one, feed), _items(other, feed)
            raise UsageError(
                f"layer {layer!r} combines data layers {one.layer!r} and {other.layer!r}, which need "
                f"sequences of equal lengths: sample {sample} has {here[sample]} {what} of "
                f"{one.layer!r}, but {there[sample]} {'' if others == what else f'{others} '}of "
                f"{other.layer!r}{created}"
            )
        if one.levels == other.levels == 2:
            _check_sub_sequences(feed, layer, one, other, created)


def _check_sub_sequences(
    feed: Mapping[str, Any], layer: str, one: Origin, other: Origin, created: str
) -> None:
    """Check that samples with equally many rows also have equal sub-sequence lengths."""
    sides = [_fed(feed, each.layer).lod for each in (one, other)]
    for sample, (start, there) in enumerate(zip(sides[0][0][:-1], sides[1][0][:-1], strict=True)):
        here = np.diff(sides[0][1][start : sides[0][0][sample + 1] + 1]).tolist()
        others = np.diff(sides[1][1][there : sides[1][0][sample + 1] + 1]).tolist()
        if here != others:
            raise UsageError(
                f"layer {layer!r} combines data layers {one.layer!r} and {other.layer!r}, which need sub-sequences of "
                f"equal lengths: in sample {sample}, the lengths are {here} in {one.layer!r}, but {others} in "
                f"{other.layer!r}{created}"
            )


def _lengths(feed: Mapping[str, Any], origin: Origin) -> _Lengths:
    """Return the number of rows of each sample."""
    lod = _fed(feed, origin.layer).lod
    return np.diff(joined(lod) if origin.levels == len(lod) else lod[0])


def _items(origin: Origin, feed: Mapping[str, Any]) -> str:
    return "items" if origin.levels == len(_fed(feed, origin.layer).lod) else "sub-sequences"


def _fed(feed: Mapping[str, Any], name: str) -> Any:
    """Return the value that a data layer is fed with; for a sparse one, its matrix."""
    return feed[name] if name in feed else feed[f"{name}.matrix"]


def _steps(layers: Mapping[str, LayerConfig], group: str) -> list[str]:
    """Return the layers that are step inputs of a recurrent group."""
    members = [each for each in layers.values() if each.group == group]
    return [each.inputs[0].layer for each in members if each.attrs.get("kind") == "step"]


def _is_single(origin: Origin) -> bool:
    return origin == ONE_A_SAMPLE


def _together(config: LayerConfig) -> list[str]:
    """Return the inputs of a layer whose rows correspond."""
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
