# SPDX-License-Identifier: Apache-2.0
"""Layers over whole sequences: pooled to one row, expanded from one row, joined, cut anew."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from paddle.graph import Variable
from paddle.v2 import pooling
from paddle.v2.errors import NotAvailableError, UsageError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    Act,
    BiasAttr,
    LayerAttr,
    LayerOutput,
    Weight,
    WeightAttr,
    build,
    is_index,
    require_layer,
    require_same_size,
)
from paddle.v2.model import LayerConfig

__all__ = [
    "AggregateLevel", "ExpandLevel", "expand", "first_seq", "last_seq", "row_conv", "seq_concat", "seq_reshape",
    "sub_seq",
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


def pooling_(
    input: LayerOutput,
    pooling_type: pooling.BasePool | None = None,
    name: str | None = None,
    bias_attr: BiasAttr = None,
    agg_level: str = AggregateLevel.TO_NO_SEQUENCE,
    stride: int = -1,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare one row for each sequence: the greatest (by default), mean, sum, or sum over √length of its rows."""
    require_layer(input, "pooling")
    _whole(agg_level, stride, "pooling")
    chosen = pooling_type or pooling.Max()
    kind = chosen.strategy if isinstance(chosen, pooling.Avg) else chosen.name
    if kind not in _POOLS:
        raise UsageError(f"pooling: expected Max, Avg, Sum or SquareRootN, got {chosen!r}")
    return _pooled("seq_pooling", input, _POOLS[kind], name, bias_attr, layer_attr)


@dataclass(frozen=True)
class _End:
    """The layer of one end of each sequence; `own_last` is the value of `reverse` for which it was computed first."""

    which: str
    own_last: bool

    def __call__(
        self,
        input: LayerOutput,
        name: str | None = None,
        agg_level: str = AggregateLevel.TO_NO_SEQUENCE,
        stride: int = -1,
        layer_attr: LayerAttr = None,
    ) -> LayerOutput:
        """Declare it."""
        who = f"{self.which.lower()}_seq"
        require_layer(input, who)
        _whole(agg_level, stride, who)
        if input.config.attrs.get("reverse") is self.own_last:
            warnings.warn(
                f"{who} of {input.name!r} takes the row that it computed first, not the one that has seen all others",
                stacklevel=2,
            )
        return _pooled(who, input, self.which, name, False, layer_attr)


last_seq = _End("LAST", own_last=True)
first_seq = _End("FIRST", own_last=False)


def expand(
    input: LayerOutput,
    expand_as: LayerOutput,
    name: str | None = None,
    bias_attr: BiasAttr = False,
    expand_level: str = ExpandLevel.FROM_NO_SEQUENCE,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare each sample's row repeated for every row of a sequence."""
    require_layer(input, "expand")
    require_layer(expand_as, "expand")
    _whole(expand_level, -1, "expand")
    inputs, prefix = [input, expand_as], "expand_layer"
    return build("expand", inputs, input.size, name, prefix=prefix, bias=bias_attr, layer_attr=layer_attr)


@emits("expand", sequences=(1,))
def _expand(emitter: Emitter, config: LayerConfig) -> Variable:
    row, like = (link.layer for link in config.inputs)
    value = emitter.binary("sequence_expand_as", emitter.rows(row), emitter.sequence(like))
    return emitter.add_bias(value, config.bias)


def seq_concat(
    a: LayerOutput,
    b: LayerOutput,
    act: Act = None,
    name: str | None = None,
    layer_attr: LayerAttr = None,
    bias_attr: BiasAttr = None,
) -> LayerOutput:
    """Declare sequences one behind the other."""
    size = require_same_size([a, b], "seq_concat")
    return build("seqconcat", [a, b], size, name, act=act, bias=bias_attr, layer_attr=layer_attr)


@emits("seqconcat", called="seq_concat", sequences=(0, 1))
def _seq_concat(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.op("sequence_concat", {"X": emitter.inputs(config)})
    return emitter.add_bias(value, config.bias)


def seq_reshape(
    input: LayerOutput,
    reshape_size: int,
    act: Act = None,
    name: str | None = None,
    layer_attr: LayerAttr = None,
    bias_attr: BiasAttr = None,
) -> LayerOutput:
    """Declare sequences whose numbers are cut into rows of another width."""
    require_layer(input, "seq_reshape")
    return build("seqreshape", [input], reshape_size, name, act=act, bias=bias_attr, layer_attr=layer_attr)


@emits("seqreshape", called="seq_reshape", sequences=(0,))
def _seq_reshape(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.unary("sequence_reshape", emitter.first(config), new_dim=config.size)
    return emitter.add_bias(value, config.bias)


def sub_seq(
    input: LayerOutput,
    offsets: LayerOutput,
    sizes: LayerOutput,
    act: Act = None,
    bias_attr: BiasAttr = None,
    name: str | None = None,
) -> LayerOutput:
    """Declare a part of each sequence: `sizes` rows from row `offsets` on, two layers with an integer a sample."""
    require_layer(input, "sub_seq")
    for each, what in ((offsets, "offsets"), (sizes, "sizes")):
        if not is_index(each):
            raise UsageError(f"sub_seq: {what} {each.name!r} must be a data layer of integers")
    inputs = [input, offsets, sizes]
    return build("sub_seq", inputs, input.size, name, prefix="sub_seq_layer", act=act, bias=bias_attr)


@emits("sub_seq", sequences=(0,))
def _sub_seq(emitter: Emitter, config: LayerConfig) -> Variable:
    rows, offsets, sizes = (link.layer for link in config.inputs)
    inputs = {"X": emitter.rows(rows), "Offset": emitter.label(offsets), "Length": emitter.label(sizes)}
    return emitter.add_bias(emitter.op("sequence_slice", inputs), config.bias)


def row_conv(
    input: LayerOutput,
    context_len: int,
    act: Act = None,
    name: str | None = None,
    param_attr: WeightAttr = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare the sum of each row and the rows behind it, `context_len` in all, each column with weights of its own."""
    require_layer(input, "row_conv")
    if context_len < 1:
        raise UsageError(f"row_conv: context_len must be at least 1, got {context_len}")
    return build(
        "row_conv",
        [input],
        input.size,
        name,
        prefix="row_conv_layer",
        weights=[Weight([context_len, input.size], param_attr)],
        act=act,
        layer_attr=layer_attr,
    )


@emits("row_conv", together=None, sequences=(0,))
def _row_conv(emitter: Emitter, config: LayerConfig) -> Variable:
    (link,) = config.inputs
    inputs = {"X": emitter.rows(link.layer), "Filter": emitter.parameter(link.parameter)}
    return emitter.op("row_conv", inputs)


def _pooled(
    prefix: str, input: LayerOutput, how: str, name: str | None, bias_attr: BiasAttr, layer_attr: LayerAttr
) -> LayerOutput:
    return build(
        "seq_pooling",
        [input],
        input.size,
        name,
        prefix=prefix,
        bias=bias_attr,
        layer_attr=layer_attr,
        attrs={"pooltype": how},
    )


@emits("seq_pooling", called="pooling, last_seq or first_seq", sequences=(0,), one_a_sample=True)
def _pooling(emitter: Emitter, config: LayerConfig) -> Variable:
    inputs, attrs = {"X": emitter.inputs(config)}, {"pooltype": config.attrs["pooltype"]}
    pooled = emitter.ops("sequence_pool", inputs, attrs, ["Out", "MaxIndex"])[0]
    return emitter.add_bias(pooled, config.bias)


def _whole(level: str, stride: int, who: str) -> None:
    if level != AggregateLevel.TO_NO_SEQUENCE or stride != -1:
        raise NotAvailableError(f"{who}: sequences of sequences and stride are not available yet")
