# SPDX-License-Identifier: Apache-2.0
"""Layers over whole sequences: pooled to one row, expanded from one row, joined, cut anew."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from paddle.graph import Variable
from paddle.v2 import pooling as kinds
from paddle.v2.errors import NotAvailableError, UsageError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import LayerOutput, Weight, WeightAttr, is_index, require_layer, require_same_size
from paddle.v2.model import LayerConfig

__all__ = [
    "AggregateLevel", "ExpandLevel", "expand", "first_seq", "last_seq", "pooling", "row_conv", "seq_concat",
    "seq_reshape", "sub_seq",
]  # fmt: skip

_POOLS = {"max": "MAX", "average": "AVERAGE", "sum": "SUM", "squarerootn": "SQRT"}


class AggregateLevel:
    """How far a sequence is brought together: to one row a sample."""

    TO_NO_SEQUENCE = "non-seq"
    TO_SEQUENCE = "seq"
    EACH_TIMESTEP = TO_NO_SEQUENCE
    EACH_SEQUENCE = TO_SEQUENCE


class ExpandLevel:
    """What is expanded: one row a sample."""

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
    """Declare one row for each sequence: the greatest (by default), mean, sum, or sum over √length of its rows."""
    _whole(agg_level, stride, "pooling")
    chosen = pooling_type or kinds.Max()
    kind = chosen.strategy if isinstance(chosen, kinds.Avg) else chosen.name
    if kind not in _POOLS:
        raise UsageError(f"pooling: expected Max, Avg, Sum or SquareRootN, got {chosen!r}")
    return Made([input], input.size, {"pooltype": _POOLS[kind]})


def _end(which: str, own_last: bool) -> Callable[..., LayerOutput]:
    """Return the layer of one end of each sequence; of `reverse` the value for which it was computed first."""
    who = f"{which.lower()}_seq"

    def declare(input: LayerOutput, agg_level: str, stride: int) -> Made:
        """Declare it."""
        _whole(agg_level, stride, who)
        if input.config.attrs.get("reverse") is own_last:
            warnings.warn(
                f"{who} of {input.name!r} takes the row that it computed first, not the one that has seen all others",
                stacklevel=4,
            )
        return Made([input], input.size, {"pooltype": which})

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
    """Declare each sample's row repeated for every row of a sequence."""
    require_layer(expand_as, "expand")
    _whole(expand_level, -1, "expand")
    return Made([input, expand_as], input.size)


@emits("expand", sequences=(1,))
def _expand(emitter: Emitter, config: LayerConfig) -> Variable:
    row, like = (link.layer for link in config.inputs)
    value = emitter.binary("sequence_expand_as", emitter.rows(row), emitter.sequence(like))
    return emitter.add_bias(value, config.bias)


@declares("a, b, act=None, name=None, layer_attr=None, bias_attr=None", "seqconcat")
def seq_concat(a: LayerOutput, b: LayerOutput) -> Made:
    """Declare sequences one behind the other."""
    return Made([a, b], require_same_size([a, b], "seq_concat"))


@emits("seqconcat", called="seq_concat", sequences=(0, 1))
def _seq_concat(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.op("sequence_concat", {"X": emitter.inputs(config)})
    return emitter.add_bias(value, config.bias)


@declares("input, reshape_size, act=None, name=None, layer_attr=None, bias_attr=None", "seqreshape")
def seq_reshape(input: LayerOutput, reshape_size: int) -> Made:
    """Declare sequences whose numbers are cut into rows of another width."""
    return Made([input], reshape_size)


@emits("seqreshape", called="seq_reshape", sequences=(0,))
def _seq_reshape(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.unary("sequence_reshape", emitter.first(config), new_dim=config.size)
    return emitter.add_bias(value, config.bias)


@declares("input, offsets, sizes, act=None, bias_attr=None, name=None", prefix="sub_seq_layer")
def sub_seq(input: LayerOutput, offsets: LayerOutput, sizes: LayerOutput) -> Made:
    """Declare a part of each sequence: `sizes` rows from row `offsets` on, two layers with an integer a sample."""
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
    """Declare the sum of each row and the rows behind it, `context_len` in all, each column with weights of its own."""
    if context_len < 1:
        raise UsageError(f"row_conv: context_len must be at least 1, got {context_len}")
    return Made([input], input.size, weights=[Weight([context_len, input.size], param_attr)])


@emits("row_conv", together=None, sequences=(0,))
def _row_conv(emitter: Emitter, config: LayerConfig) -> Variable:
    (link,) = config.inputs
    inputs = {"X": emitter.rows(link.layer), "Filter": emitter.parameter(link.parameter)}
    return emitter.op("row_conv", inputs)


@emits("seq_pooling", called="pooling, last_seq or first_seq", sequences=(0,), one_a_sample=True)
def _pooling(emitter: Emitter, config: LayerConfig) -> Variable:
    inputs, attrs = {"X": emitter.inputs(config)}, {"pooltype": config.attrs["pooltype"]}
    pooled = emitter.ops("sequence_pool", inputs, attrs, ["Out", "MaxIndex"])[0]
    return emitter.add_bias(pooled, config.bias)


def _whole(level: str, stride: int, who: str) -> None:
    if level != AggregateLevel.TO_NO_SEQUENCE or stride != -1:
        raise NotAvailableError(f"{who}: sequences of sequences and stride are not available yet")
