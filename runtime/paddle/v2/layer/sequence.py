# SPDX-License-Identifier: Apache-2.0
"""Layers over whole sequences: pooling, expansion, concatenation, selection of parts, cost of a beam search."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from paddle.graph import Variable
from paddle.v2 import pooling as kinds
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import ONE_LEVEL, Emitter, emits
from paddle.v2.layer.output import (
    LayerOutput,
    Weight,
    WeightAttr,
    build,
    is_index,
    pooling_of,
    require_layer,
    require_size,
)
from paddle.v2.model import Attrs, LayerConfig
from paddle_node.contract.classes import dataclass

__all__ = [
    "AggregateLevel", "BeamInput", "ExpandLevel", "SubsequenceInput", "cross_entropy_over_beam", "expand", "first_seq",
    "kmax_seq_score", "last_seq", "pooling", "row_conv", "seq_concat", "seq_reshape", "seq_slice", "sub_nested_seq",
    "sub_seq",
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
            f"{who}: level: expected 'non-seq', 'seq', or a member of AggregateLevel or ExpandLevel, "
            f"got {level!r}"
        )
    return level


def _require_nested(config: LayerConfig, value: Variable) -> None:
    if value.lod_level < 2:
        raise UsageError(ONE_LEVEL.format(layer=config.name, input=config.inputs[-1].layer))


def SubsequenceInput(input: LayerOutput) -> LayerOutput:  # noqa: N802 - the original's name
    """Return the layer itself, because groups iterate over sub-sequences whenever an input has two levels."""
    require_layer(input, "SubsequenceInput")
    return input


@declares("input, name=None, beam_size=1", prefix="kmax_seq_score_layer")
def kmax_seq_score(input: LayerOutput, beam_size: int) -> Made:
    """Declare the positions of the `beam_size` rows with the largest score in each sequence or sub-sequence.

    A row of positions is padded with -1 if the sequence is shorter. `input` has size 1.
    """
    require_size(input, 1, "kmax_seq_score")
    if beam_size < 1:
        raise UsageError(f"kmax_seq_score: beam_size must be at least 1, got {beam_size}")
    return Made([input], beam_size)


@emits("kmax_seq_score", sequences=(0,), by_levels=True)
def _kmax_seq_score(emitter: Emitter, config: LayerConfig) -> Variable:
    found = emitter.unary("sequence_best", emitter.first(config), k=config.size)
    found.stop_gradient = True
    return found


@declares("input, starts, ends, name=None", prefix="seq_slice_layer")
def seq_slice(input: LayerOutput, starts: LayerOutput | None, ends: LayerOutput | None) -> Made:
    """Declare slices of each sequence or sub-sequence, from row `starts` to row `ends`, inclusive.

    Args:
        input: sequences.
        starts: one row of start positions per sequence, padded with -1; None means slices start at the beginning.
        ends: the positions of the last rows, as many as `starts`; None means slices end at the end.
    """
    if starts is None and ends is None:
        raise UsageError("seq_slice: give starts, ends, or both")
    given = {what: each for what, each in (("starts", starts), ("ends", ends)) if each is not None}
    for what, each in given.items():
        require_layer(each, f"{what} of seq_slice")
    if starts is not None and ends is not None:
        require_size(ends, starts.size, "ends of seq_slice, one per start")
    return Made([input, *given.values()], input.size, {"given": ",".join(given)})


@emits("seq_slice", sequences=(0,), by_levels=True)
def _seq_slice(emitter: Emitter, config: LayerConfig) -> Variable:
    whole, *places = (link.layer for link in config.inputs)
    inputs = {"X": emitter.rows(whole)}
    for what, name in zip(str(config.attrs["given"]).split(","), places, strict=True):
        inputs[what.capitalize()] = emitter.numbers(name)
    return emitter.op("sequence_cut", inputs)


@declares("input, selected_indices, name=None", prefix="sub_nested_seq_layer")
def sub_nested_seq(input: LayerOutput, selected_indices: LayerOutput) -> Made:
    """Declare a selection of each sequence's sub-sequences, given by a row of positions per sample, padded with -1."""
    require_layer(selected_indices, "selected_indices of sub_nested_seq")
    return Made([input, selected_indices], input.size)


@emits("sub_nested_seq", sequences=(0,), by_levels=True, nested=True)
def _sub_nested_seq(emitter: Emitter, config: LayerConfig) -> Variable:
    whole, places = (link.layer for link in config.inputs)
    value = emitter.rows(whole)
    if value.lod_level < 2:
        raise UsageError(ONE_LEVEL.format(layer=config.name, input=whole))
    return emitter.op("sequence_choose", {"X": value, "Chosen": emitter.numbers(places)})


@dataclass(frozen=True)
class BeamInput:
    """One expansion of a beam search, for `cross_entropy_over_beam`.

    Attributes:
        candidate_scores: scores of size 1; sequences in the first expansion, sequences of sequences in the others.
        selected_candidates: the positions of the selected candidates, for example from `kmax_seq_score`.
        gold: the position of the correct candidate, one integer per sample.
    """

    candidate_scores: LayerOutput
    selected_candidates: LayerOutput
    gold: LayerOutput

    def __post_init__(self) -> None:
        require_layer(self.candidate_scores, "candidate_scores of BeamInput")
        require_size(self.candidate_scores, 1, "candidate_scores of BeamInput")
        require_layer(self.selected_candidates, "selected_candidates of BeamInput")
        require_layer(self.gold, "gold of BeamInput")
        if not is_index(self.gold):
            raise UsageError(f"BeamInput: gold {self.gold.name!r} must be a data layer of integers")


def _flat(input: BeamInput | Sequence[BeamInput]) -> list[LayerOutput]:
    beams = [input] if isinstance(input, BeamInput) else list(input)
    for each in beams:
        if not isinstance(each, BeamInput):
            raise UsageTypeError(f"cross_entropy_over_beam: expected BeamInputs, got {each!r:.80}")
        require_size(each.selected_candidates, beams[0].selected_candidates.size, "selected_candidates")
    if not beams:
        raise UsageError("cross_entropy_over_beam needs at least one BeamInput")
    return [layer for each in beams for layer in (each.candidate_scores, each.selected_candidates, each.gold)]


def cross_entropy_over_beam(input: BeamInput | Sequence[BeamInput], name: str | None = None) -> LayerOutput:
    """Declare the globally normalized cost -ln p of the correct path among all paths of a beam search, one per sample.

    If the correct candidate is dropped, the search ends there, and the correct path is added as a further path.

    Args:
        input: the expansions of the search, in order.
        name: name of the layer.
    """
    return build("cross_entropy_over_beam", _flat(input), 1, name, attrs={"coeff": 1.0})


@emits("cross_entropy_over_beam", sequences=(0,), by_levels=True)
def _cross_entropy_over_beam(emitter: Emitter, config: LayerConfig) -> Variable:
    names = [link.layer for link in config.inputs]
    inputs = {
        "Scores": [emitter.rows(name) for name in names[::3]],
        "Kept": [emitter.rows(name) for name in names[1::3]],
        "Right": [emitter.label(name) for name in names[2::3]],
    }
    return emitter.op("cross_entropy_over_beam", inputs)
