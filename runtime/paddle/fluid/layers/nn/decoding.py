# SPDX-License-Identifier: Apache-2.0
"""Beam search, and how good sequences are: edit distance and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.sequences import sequence_erase
from paddle.fluid.program.variable import Variable

__all__ = ["beam_search", "beam_search_decode", "chunk_eval", "edit_distance"]


def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> tuple[Variable, ...]:
    """Return the ids and scores of the best continuations of each sentence, and on request the prefixes they continue.

    Args:
        pre_ids: last ids of the prefixes (prefixes, 1).
        pre_scores: their scores.
        ids: candidates (prefixes, k); None: 0 to k - 1.
        scores: of the candidates, with two levels of LoD.
        beam_size: how many continuations a sentence keeps.
        end_id: ends a sentence.
        level: of the LoD that says which prefixes belong to a sentence.
        is_accumulated: scores are of the whole prefix, and not chances.
        name: of the layer.
        return_parent_idx: whether to return the prefixes.
    """
    helper = LayerHelper("beam_search", name)
    inputs: dict[str, Any] = {"pre_ids": pre_ids, "pre_scores": pre_scores, "ids": ids, "scores": scores}
    chosen, parents = (
        helper.create_variable_for_type_inference("int64", stop_gradient=True) for _ in range(2)
    )
    values = helper.create_variable_for_type_inference(scores.dtype, stop_gradient=True)
    helper.append_op(
        "beam_search",
        inputs,
        {"selected_ids": chosen, "selected_scores": values, "parent_idx": parents},
        {"level": level, "beam_size": beam_size, "end_id": end_id, "is_accumulated": is_accumulated},
    )
    return (chosen, values, parents) if return_parent_idx else (chosen, values)


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return the ids and scores of the sentences that arrays of beam search steps hold, best first."""
    helper = LayerHelper("beam_search_decode", name)
    words = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    values = helper.create_variable_for_type_inference(scores.dtype, stop_gradient=True)
    helper.append_op(
        "beam_search_decode",
        {"Ids": ids, "Scores": scores},
        {"SentenceIds": words, "SentenceScores": values},
        {"beam_size": beam_size, "end_id": end_id},
    )
    return words, values


def edit_distance(
    input: Variable, label: Variable, normalized: bool = True, ignored_tokens: Sequence[int] | None = None
) -> tuple[Variable, Variable]:
    """Return the edit distance of each pair of sequences (pairs, 1), over the label's length if normalized; the pairs.

    Tokens to be ignored are erased from both first.
    """
    if ignored_tokens:
        input, label = sequence_erase(input, ignored_tokens), sequence_erase(label, ignored_tokens)
    helper = LayerHelper("edit_distance")
    out = helper.create_variable_for_type_inference("float32", stop_gradient=True)
    count = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    helper.append_op(
        "edit_distance",
        {"Hyps": input, "Refs": label},
        {"Out": out, "SequenceNum": count},
        {"normalized": normalized},
    )
    return out, count


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
) -> tuple[Variable, ...]:
    """Return precision, recall and F1 of chunks, and how many were found, are there and were found rightly."""
    helper = LayerHelper("chunk_eval")
    rates = [helper.create_variable_for_type_inference("float32", stop_gradient=True) for _ in range(3)]
    counts = [helper.create_variable_for_type_inference("int64", stop_gradient=True) for _ in range(3)]
    names = ("Precision", "Recall", "F1-Score", "NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
    helper.append_op(
        "chunk_eval",
        {"Inference": input, "Label": label},
        dict(zip(names, (*rates, *counts), strict=True)),
        {
            "num_chunk_types": num_chunk_types,
            "chunk_scheme": chunk_scheme,
            "excluded_chunk_types": tuple(excluded_chunk_types or ()),
        },
    )
    return (*rates, *counts)
