# SPDX-License-Identifier: Apache-2.0
"""Layers over whole sequences: pooling, expansion, concatenation and reshaping."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from paddle.graph import Variable
from paddle.v2 import pooling as kinds
from paddle.v2.errors import UsageError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import ONE_LEVEL, Emitter, emits
from paddle.v2.layer.output import (
    LayerOutput,
    Weight,
    WeightAttr,
    is_index,
    pooling_of,
    require_layer,
)
from paddle.v2.model import Attrs, LayerConfig

__all__ = [
    "AggregateLevel", "ExpandLevel", "expand", "first_seq", "last_seq", "pooling", "row_conv", "seq_concat",
    "seq_reshape", "sub_seq",
]  # fmt: skip

_POOLS = {"max": "MAX", "average": "AVERAGE", "sum": "SUM", "squarerootn": "SQRT"}


class AggregateLevel:
    """The level at which pooling returns one row: per sample, or per sub-sequence."""

    TO_NO_SEQUENCE = "non-seq"
    TO_SEQUENCE = "seq"
    EACH_TIMESTEP = TO_NO_SEQUENCE
    EACH_SEQUENCE = TO_SEQUENCE


class ExpandLevel:
    """The level at which `expand` reads one row: per sample, or per sub-sequence."""

    FROM_NO_SEQUENCE = AggregateLevel.TO_NO_SEQUENCE
    FROM_SEQUENCE = AggregateLevel.TO_SEQUENCE
    FROM_TIMESTEP = FROM_NO_SEQUENCE


@declares(
    "input, pooling_type=None, name=None, bias_attr=None, agg_level='non-seq', stride=-1, layer_attr=None",
    "seq_pooling",
)
def pooling(
    input: LayerOutput, pooling_type: kinds.BasePoolingType | None, agg_level: str, stride: int
) -> Made:
    """Declare pooling of sequences, one row each: the maximum (default), mean, sum, or sum / √length of the rows.

    With `agg_level` TO_SEQUENCE, there is one row per sub-sequence; with `stride`, one per window of `stride` rows.
    """
    chosen = pooling_of(pooling_type, "pooling: pooling_type")
    kind = chosen.strategy if isinstance(chosen, kinds.Avg) else chosen.name
    if kind not in _POOLS:
        raise UsageError(f"pooling: expected Max, Avg, Sum or SquareRootN, got {chosen!r}")
    if getattr(chosen, "output_max_index", None):
        raise UsageError(
            f"pooling: Max(output_max_index=True) is not supported; read the rows of {input.name!r} with infer and "
            "use numpy.argmax"
        )
    return Made([input], input.size, _pooled(_POOLS[kind], agg_level, stride, "pooling"))


def _end(which: str, own_last: bool) -> Callable[..., LayerOutput]:
    """Return the layer of one end of each sequence; `reverse` decides which end was computed first."""
    who = f"{which.lower()}_seq"

    def declare(input: LayerOutput, agg_level: str, stride: int) -> Made:
        """Declare the pooling layer; warn if its result depends on one row only."""
        if input.config.attrs.get("reverse") is own_last:
            warnings.warn(
                f"{who} of {input.name!r} returns the first row that the layer computes, which depends on no other "
                "row of the sequence",
                stacklevel=4,
            )
        return Made([input], input.size, _pooled(which, agg_level, stride, who))

    declare.__name__ = who
    arguments = "input, name=None, agg_level='non-seq', stride=-1, layer_attr=None"
    return declares(arguments, "seq_pooling", prefix=who)(declare)


last_seq = _end("LAST", own_last=True)
first_seq = _end("FIRST", own_last=False)


@declares(
    "input, expand_as, name=None, bias_attr=False, expand_level='non-seq', layer_attr=None",
    prefix="expand_layer",
)
def expand(input: LayerOutput, expand_as: LayerOutput, expand_level: str) -> Made:
    """Declare a layer that repeats the row of each sample for every row of a sequence.

    With `expand_level` FROM_SEQUENCE, `input` has one row for each sub-sequence of `expand_as`.
    """
    require_layer(expand_as, "expand")
    return Made([input, expand_as], input.size, {"trans_type": _level(expand_level, "expand")})


@emits("expand", sequences=(1,), by_levels=True)
def _expand(emitter: Emitter, config: LayerConfig) -> Variable:
    row, like = emitter.rows(config.inputs[0].layer), emitter.sequence(config.inputs[1].layer)
    if config.attrs.get("trans_type") == AggregateLevel.TO_SEQUENCE:
        _require_nested(config, like)
        value = emitter.binary("sequence_expand_as", row, like)
    else:
        value = emitter.levelled(emitter.binary("sequence_expand_as", row, emitter.joined(like)), like)
    return emitter.add_bias(value, config.bias)


@declares("a, b, act=None, name=None, layer_attr=None, bias_attr=None", "seqconcat")
def seq_concat(a: LayerOutput, b: LayerOutput) -> Made:
    """Declare the concatenation of each sequence of `a` with the sequence of `b` for the same sample."""
    return Made([a, b], a.size)


@emits("seqconcat", called="seq_concat", sequences=(0, 1))
def _seq_concat(emitter: Emitter, config: LayerConfig) -> Variable:
    parts = emitter.inputs(config)
    sizes = {link.layer: part.shape[-1] for link, part in zip(config.inputs, parts, strict=True)}
    if len(set(sizes.values())) != 1:
        raise UsageError(f"seq_concat: inputs must have the same size, got {sizes}")
    value = emitter.op("sequence_concat", {"X": parts})
    return emitter.add_bias(value, config.bias)


@declares("input, reshape_size, act=None, name=None, layer_attr=None, bias_attr=None", "seqreshape")
def seq_reshape(input: LayerOutput, reshape_size: int) -> Made:
    """Declare sequences whose values are reshaped to rows of a new width."""
    return Made([input], reshape_size)


@emits("seqreshape", called="seq_reshape", sequences=(0,))
def _seq_reshape(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.unary("sequence_reshape", emitter.first(config), new_dim=config.size)
    return emitter.add_bias(value, config.bias)


@declares("input, offsets, sizes, act=None, bias_attr=None, name=None", prefix="sub_seq_layer")
def sub_seq(input: LayerOutput, offsets: LayerOutput, sizes: LayerOutput) -> Made:
    """Declare a slice of each sequence: `sizes` rows starting at row `offsets`, each one integer per sample."""
    for each, what in ((offsets, "offsets"), (sizes, "sizes")):
        if not is_index(each):
            raise UsageError(f"sub_seq: {what} {each.name!r} must be a data layer of integers")
    return Made([input, offsets, sizes], input.size)


@emits("sub_seq", sequences=(0,))
def _sub_seq(emitter: Emitter, config: LayerConfig) -> Variable:
    rows, offsets, sizes = (link.layer for link in config.inputs)
    inputs = {"X": emitter.rows(rows), "Offset": emitter.label(offsets), "Length": emitter.label(sizes)}
    return emitter.add_bias(emitter.op("sequence_slice", inputs), config.bias)


@declares(
    "input, context_len, act=None, name=None, param_attr=None, layer_attr=None", prefix="row_conv_layer"
)
def row_conv(input: LayerOutput, context_len: int, param_attr: WeightAttr) -> Made:
    """Declare a lookahead convolution: for each row, the weighted sum of the `context_len` rows that start with it."""
    if context_len < 1:
        raise UsageError(f"row_conv: context_len must be at least 1, got {context_len}")
    weights = [Weight([context_len, input.size], param_attr)]
    return Made([input], input.size, {"context_length": context_len}, weights)


@emits("row_conv", together=None, sequences=(0,))
def _row_conv(emitter: Emitter, config: LayerConfig) -> Variable:
    (link,) = config.inputs
    inputs = {"X": emitter.rows(link.layer), "Filter": emitter.parameter(link.parameter)}
    return emitter.op("row_conv", inputs)


@emits(
    "seq_pooling",
    called="pooling, last_seq or first_seq",
    sequences=(0,),
    one_a_sample=True,
    by_levels=True,
)
def _pooling(emitter: Emitter, config: LayerConfig) -> Variable:
    value, kind = emitter.first(config), str(config.attrs["pooltype"])
    stride = int(config.attrs.get("stride", -1))  # type: ignore[arg-type]
    if config.attrs.get("trans_type") == AggregateLevel.TO_SEQUENCE:
        _require_nested(config, value)
    elif stride > 0:
        if value.lod_level > 1:
            raise UsageError(
                f"layer {config.name!r}: stride needs sequences, but {config.inputs[0].layer!r} has "
                "sequences of sequences; reduce it to one level first with "
                "agg_level=AggregateLevel.TO_SEQUENCE"
            )
        value = emitter.unary("sequence_windows", value, stride=stride, from_end=kind == "FIRST")
    else:
        value = emitter.joined(value)
    pooled = emitter.ops("sequence_pool", {"X": value}, {"pooltype": kind}, ["Out", "MaxIndex"])[0]
    return emitter.add_bias(pooled, config.bias)


def _pooled(kind: str, agg_level: str, stride: int, who: str) -> Attrs:
    level = _level(agg_level, who)
    if stride != -1 and (stride < 1 or level == AggregateLevel.TO_SEQUENCE):
        raise UsageError(
            f"{who}: stride must be -1 or a number of rows, with agg_level TO_NO_SEQUENCE; got "
            f"stride {stride} and {level!r}"
        )
    return {"pooltype": kind, "trans_type": level, "stride": stride}


def _level(level: str, who: str) -> str:
    if level not in (AggregateLevel.TO_NO_SEQUENCE, AggregateLevel.TO_SEQUENCE):
        raise UsageError(
            f"{who}: the level must be a member of AggregateLevel or ExpandLevel, 'non-seq' or "
            f"'seq', got {level!r}"
        )
    return level


def _require_nested(config: LayerConfig, value: Variable) -> None:
    if value.lod_level < 2:
        raise UsageError(ONE_LEVEL.format(layer=config.name, input=config.inputs[-1].layer))
