# SPDX-License-Identifier: Apache-2.0
"""Layers that select parts of sequences (best rows, slices, sub-sequences), and the cost of a beam search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddle.graph import Variable
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import ONE_LEVEL, Emitter, emits
from paddle.v2.layer.output import LayerOutput, build, is_index, require_layer, require_size
from paddle.v2.model import LayerConfig

__all__ = [
    "BeamInput", "SubsequenceInput", "cross_entropy_over_beam", "kmax_seq_score", "seq_slice", "sub_nested_seq",
]  # fmt: skip


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
