# SPDX-License-Identifier: Apache-2.0
"""Layers over whole sequences: pooled to one row, expanded from one row, joined, cut anew."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from paddle.v2 import activation, model, pooling
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import NotAvailableError, UsageError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    declare,
    extras_of,
    is_index,
    require_layer,
    require_same_size,
    weight_attr,
)
from paddle.v2.model import InputConfig, LayerConfig

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
    layer_attr: ExtraLayerAttribute | None = None,
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
        layer_attr: ExtraLayerAttribute | None = None,
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
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare each sample's row repeated for every row of a sequence."""
    require_layer(input, "expand")
    require_layer(expand_as, "expand")
    _whole(expand_level, -1, "expand")
    name = model.current().auto_name("expand_layer", name)
    bias = add_bias(name, [1, input.size], bias_attr, default=False)
    links = (InputConfig(input.name), InputConfig(expand_as.name))
    config = LayerConfig(name, "expand", input.size, links, bias=bias, extras=extras_of(layer_attr))
    return declare(config, [input, expand_as])


def seq_concat(
    a: LayerOutput,
    b: LayerOutput,
    act: activation.Base | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
    bias_attr: BiasAttr = None,
) -> LayerOutput:
    """Declare sequences one behind the other."""
    size = require_same_size([a, b], "seq_concat")
    name = model.current().auto_name("seqconcat", name)
    act_name = activation_name(act, "")
    bias = add_bias(name, [1, size], bias_attr, default=False)
    links = (InputConfig(a.name), InputConfig(b.name))
    extras = extras_of(layer_attr, act_name)
    return declare(LayerConfig(name, "seqconcat", size, links, act_name, bias, extras), [a, b])


def seq_reshape(
    input: LayerOutput,
    reshape_size: int,
    act: activation.Base | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
    bias_attr: BiasAttr = None,
) -> LayerOutput:
    """Declare sequences whose numbers are cut into rows of another width."""
    require_layer(input, "seq_reshape")
    name = model.current().auto_name("seqreshape", name)
    act_name = activation_name(act, "")
    bias = add_bias(name, [1, reshape_size], bias_attr, default=False)
    links, extras = (InputConfig(input.name),), extras_of(layer_attr, act_name)
    return declare(LayerConfig(name, "seqreshape", reshape_size, links, act_name, bias, extras), [input])


def sub_seq(
    input: LayerOutput,
    offsets: LayerOutput,
    sizes: LayerOutput,
    act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    name: str | None = None,
) -> LayerOutput:
    """Declare a part of each sequence: `sizes` rows from row `offsets` on, two layers with an integer a sample."""
    require_layer(input, "sub_seq")
    for each, what in ((offsets, "offsets"), (sizes, "sizes")):
        if not is_index(each):
            raise UsageError(f"sub_seq: {what} {each.name!r} must be a data layer of integers")
    name = model.current().auto_name("sub_seq_layer", name)
    act_name = activation_name(act, "")
    bias = add_bias(name, [1, input.size], bias_attr, default=False)
    links = tuple(InputConfig(each.name) for each in (input, offsets, sizes))
    return declare(LayerConfig(name, "sub_seq", input.size, links, act_name, bias), [input, offsets, sizes])


def row_conv(
    input: LayerOutput,
    context_len: int,
    act: activation.Base | None = None,
    name: str | None = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the sum of each row and the rows behind it, `context_len` in all, each column with weights of its own."""
    require_layer(input, "row_conv")
    if context_len < 1:
        raise UsageError(f"row_conv: context_len must be at least 1, got {context_len}")
    name = model.current().auto_name("row_conv_layer", name)
    weight = model.current().add_parameter(f"_{name}.w0", [context_len, input.size], weight_attr(param_attr))
    act_name = activation_name(act, "")
    extras = extras_of(layer_attr, act_name)
    link = InputConfig(input.name, weight)
    return declare(LayerConfig(name, "row_conv", input.size, (link,), act_name, extras=extras), [input])


def _pooled(
    prefix: str,
    input: LayerOutput,
    how: str,
    name: str | None,
    bias_attr: BiasAttr,
    layer_attr: ExtraLayerAttribute | None,
) -> LayerOutput:
    name = model.current().auto_name(prefix, name)
    bias = add_bias(name, [1, input.size], bias_attr, default=False)
    config = LayerConfig(
        name,
        "seq_pooling",
        input.size,
        (InputConfig(input.name),),
        bias=bias,
        extras=extras_of(layer_attr),
        attrs={"pooltype": how},
    )
    return declare(config, [input])


def _whole(level: str, stride: int, who: str) -> None:
    if level != AggregateLevel.TO_NO_SEQUENCE or stride != -1:
        raise NotAvailableError(f"{who}: sequences of sequences and stride are not available yet")


@emits("seq_pooling")
def _emit_pooling(emitter: Emitter, config: LayerConfig) -> None:
    inputs = {"X": emitter.rows(config.inputs[0].layer)}
    attrs = {"pooltype": config.attrs["pooltype"]}
    pooled = emitter.ops("sequence_pool", inputs, attrs, ["Out", "MaxIndex"])[0]
    emitter.finish(config, emitter.add_bias(pooled, config.bias))


@emits("expand")
def _emit_expand(emitter: Emitter, config: LayerConfig) -> None:
    row, like = (link.layer for link in config.inputs)
    inputs = {"X": emitter.rows(row), "Y": emitter.sequence(like)}
    value = emitter.op("sequence_expand_as", inputs)
    emitter.finish(config, emitter.add_bias(value, config.bias))


@emits("seqconcat")
def _emit_concat(emitter: Emitter, config: LayerConfig) -> None:
    parts = [emitter.rows(link.layer) for link in config.inputs]
    value = emitter.op("sequence_concat", {"X": parts})
    emitter.finish(config, emitter.add_bias(value, config.bias))


@emits("sub_seq")
def _emit_sub_seq(emitter: Emitter, config: LayerConfig) -> None:
    rows, offsets, sizes = (link.layer for link in config.inputs)
    inputs = {"X": emitter.rows(rows), "Offset": emitter.label(offsets), "Length": emitter.label(sizes)}
    emitter.finish(config, emitter.add_bias(emitter.op("sequence_slice", inputs), config.bias))


@emits("row_conv")
def _emit_row_conv(emitter: Emitter, config: LayerConfig) -> None:
    (link,) = config.inputs
    inputs = {"X": emitter.rows(link.layer), "Filter": emitter.parameter(link.parameter)}
    emitter.finish(config, emitter.op("row_conv", inputs))


@emits("seqreshape")
def _emit_reshape(emitter: Emitter, config: LayerConfig) -> None:
    inputs = {"X": emitter.rows(config.inputs[0].layer)}
    value = emitter.op("sequence_reshape", inputs, {"new_dim": config.size})
    emitter.finish(config, emitter.add_bias(value, config.bias))
