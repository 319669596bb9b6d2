# SPDX-License-Identifier: Apache-2.0
"""Layers for sequences (variables with LoD), beam search, edit distance and chunk evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.fluid.layers.plain import layer, several

__all__ = [
    "add_position_encoding", "beam_search", "beam_search_decode", "chunk_eval", "edit_distance", "lod_reset",
    "row_conv", "sequence_concat",
    "sequence_conv", "sequence_enumerate", "sequence_erase", "sequence_expand", "sequence_expand_as",
    "sequence_first_step", "sequence_last_step", "sequence_mask", "sequence_pad", "sequence_pool", "sequence_reshape",
    "sequence_reverse", "sequence_scatter", "sequence_slice", "sequence_softmax", "sequence_unpad",
]  # fmt: skip


sequence_pool = layer(
    "sequence_pool(input, pool_type, is_test=False, pad_value=0.0)",
    "one row per sequence: average, sum, sqrt (the sum divided by √length), max, first or last",
    change=lambda given: {"pooltype": given["pool_type"].upper()},
    to="pool_type=",
)
sequence_first_step = layer(
    "sequence_first_step(input)",
    "the first row of each sequence",
    "sequence_pool",
    change=lambda _: {"pooltype": "FIRST"},
)
sequence_last_step = layer(
    "sequence_last_step(input)",
    "the last row of each sequence",
    "sequence_pool",
    change=lambda _: {"pooltype": "LAST"},
)
add_position_encoding = layer(
    "add_position_encoding(input, alpha, beta, name=None)",
    "alpha input + beta P, where P holds sines and cosines of each row's position in (N, length, D), or in "
    "its sequence",
)
sequence_softmax = layer(
    "sequence_softmax(input, use_cudnn=False, name=None)",
    "the softmax over the rows of each sequence; input has one number per row",
    to="use_cudnn=",
)
sequence_expand = layer(
    "sequence_expand(x, y, ref_level=-1, name=None)",
    "each sequence of x (each row, if it has no LoD) repeated by the lengths of the sequences of y at "
    "ref_level",
)
sequence_expand_as = layer(
    "sequence_expand_as(x, y, name=None)", "each row of x repeated once per row of the matching sequence of y"
)
sequence_concat = layer(
    "sequence_concat(input, name=None)",
    "the concatenation of several inputs: sequence i of the result joins sequence i of every input",
)
sequence_reshape = layer(
    "sequence_reshape(input, new_dim)",
    "sequences reshaped to rows of new_dim numbers; each sequence keeps its numbers",
)
sequence_unpad = layer(
    "sequence_unpad(x, length, name=None)",
    "the sequences that `sequence_pad` padded, from x (sequences, longest, ...) and "
    "their lengths (sequences, 1)",
)
sequence_reverse = layer(
    "sequence_reverse(x, name=None)", "x with the rows of each sequence in reverse order"
)
sequence_slice = layer(
    "sequence_slice(input, offset, length, name=None)",
    "`length` rows of each sequence, starting at row `offset`; both are (sequences, 1)",
)
sequence_enumerate = layer(
    "sequence_enumerate(input, win_size, pad_value=0, name=None)",
    "the windows of win_size consecutive ids (rows, win_size), one starting at each id",
)
sequence_erase = layer(
    "sequence_erase(input, tokens, name=None)", "the sequences without the ids in `tokens`"
)
sequence_scatter = layer(
    "sequence_scatter(input, index, updates, name=None)",
    "input with the updates of sequence i added to row i, in the columns given by sequence i of index",
)
sequence_mask = layer(
    "sequence_mask(x, maxlen=None, dtype='int64', name=None)",
    "ones at positions below x, zeros elsewhere, for maxlen positions (None: the maximum "
    "of x); maxlen may be a variable (1,)",
    to="maxlen=maxlen|MaxLenTensor dtype=out_dtype",
)
lod_reset = layer(
    "lod_reset(x, y=None, target_lod=None)",
    "x with the LoD of y (if y has none, with y's numbers as offsets), or with offsets target_lod",
)


sequence_conv = layer(
    "sequence_conv(input, num_filters, filter_size=3, filter_stride=1, padding=None, bias_attr=None, param_attr=None, "
    "act=None, name=None)",
    """a convolution along sequences: act(context W + b), where `context` is a window of filter_size rows.

    A row's window begins filter_size // 2 rows before it. Rows outside of the sequence count as zero; `padding` is
    ignored""",
    to="num_filters= filter_size=contextLength filter_stride=contextStride padding=",
    learnt={"Filter": lambda given: (given["filter_size"] * given["input"].shape[1], given["num_filters"])},
    bias=(1, None),
    change=lambda given: {"contextStart": -(given["filter_size"] // 2)},
)
sequence_pad = several(
    "sequence_pad(x, pad_value, maxlen=None, name=None)",
    "(sequences, length, ...) with pad_value after each sequence, and the lengths (sequences, 1)",
    to="maxlen=padded_length",
    fixed="Length",
)


row_conv = layer(
    "row_conv(input, future_context_size, param_attr=None, act=None)",
    "each row combined with the future_context_size rows that follow it in its sequence; param_attr False is None",
    to="future_context_size=",
    change=lambda given: {"param_attr": given["param_attr"] or None},
    learnt={"Filter": lambda given: (given["future_context_size"] + 1, given["input"].shape[1])},
)


beam_search = several(
    "beam_search(pre_ids, pre_scores, ids, scores, beam_size, end_id, level=0, is_accumulated=True, name=None, "
    "return_parent_idx=False)",
    """the ids and scores of each sentence's best continuations and, if requested, the indexes of their prefixes.

    Args:
        pre_ids: last ids of the prefixes, (prefixes, 1) int64.
        pre_scores: scores of the prefixes, (prefixes, 1).
        ids: candidates (prefixes, k) int64; None: 0 to k - 1.
        scores: scores of the candidates, (prefixes, k), with two levels of LoD.
        beam_size: number of continuations per sentence.
        end_id: the id that ends a sentence.
        level: the LoD level that groups prefixes by sentence.
        is_accumulated: whether scores are accumulated over prefixes; otherwise, they are probabilities of
            candidates.
        return_parent_idx: whether to return the index of each continuation's prefix""",
    to="return_parent_idx=",
    fixed="selected_ids selected_scores parent_idx",
    returns=lambda given: "selected_ids selected_scores" + " parent_idx" * bool(given["return_parent_idx"]),
)
beam_search_decode = several(
    "beam_search_decode(ids, scores, beam_size, end_id, name=None)",
    "the ids and scores of the sentences in arrays of beam search steps, best first",
    fixed="SentenceIds SentenceScores",
)


def _without(given: Mapping[str, Any]) -> dict[str, Any]:
    tokens = given["ignored_tokens"]
    return {name: sequence_erase(given[name], tokens) for name in ("input", "label")} if tokens else {}


edit_distance = several(
    "edit_distance(input, label, normalized=True, ignored_tokens=None)",
    """the edit distance of each pair of sequences, float32 (pairs, 1), and the number of pairs, int64 (1,).

    If `normalized`, distances are divided by the label's length. Ignored tokens are first removed from both""",
    to="ignored_tokens=",
    change=_without,
    fixed="Out SequenceNum",
)
chunk_eval = several(
    "chunk_eval(input, label, chunk_scheme, num_chunk_types, excluded_chunk_types=None)",
    "precision, recall and F1 of chunks, and the numbers of inferred, labeled and correctly inferred "
    "chunks, (1,) each",
    fixed="Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks",
)
