# SPDX-License-Identifier: Apache-2.0
"""chunk_eval: precision, recall and F1 score of the chunks that tags encode, as in named entity recognition.

A tag is type * (number of tags of the scheme) + position; the number num_chunk_types * (number of tags
of the scheme) means outside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, to_host
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import Offsets, sequences
from paddle.ops.base.registry import operator

_FLOAT32, _INT64 = np.dtype("float32"), np.dtype("int64")
# The position numbers of each scheme: begin, inside, end, single; -1: the scheme has none.
_SCHEMES = {"IOB": (0, 1, -1, -1), "IOE": (-1, 0, 1, -1), "IOBES": (0, 1, 2, 3), "plain": (-1, -1, -1, -1)}


@operator(
    "chunk_eval",
    "Inference Label+ -> Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks",
    attrs={"num_chunk_types": int, "chunk_scheme": one_of(*_SCHEMES)},
    infer="-> float32(1), float32(1), float32(1), int64(1), int64(1), int64(1)",
)
def chunk_eval(
    inference: Array,
    label: Any,
    *,
    num_chunk_types: int,
    chunk_scheme: str,
    excluded_chunk_types: tuple[int, ...] = (),
) -> tuple[Array, ...]:
    """Return precision, recall and F1 score (float32), and the counts of chunks (int64), (1,) each.

    A chunk is correct if type, begin and end match.
    """
    data, offsets = sequences(label, "Label")
    tags = [to_host(each).reshape(-1).astype(_INT64) for each in (inference, data)]
    if len(tags[0]) != len(tags[1]):
        raise InputError(
            f"expected as many tags in Inference as in Label, got {len(tags[0])} and {len(tags[1])}"
        )
    found, wanted = (
        _chunks(each, offsets, num_chunk_types, chunk_scheme, excluded_chunk_types) for each in tags
    )
    right = len(found & wanted)
    precision, recall = right / len(found) if found else 0.0, right / len(wanted) if wanted else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    rates = tuple(np.array([rate], _FLOAT32) for rate in (precision, recall, f1))
    return (*rates, *(np.array([count], _INT64) for count in (len(found), len(wanted), right)))


def _chunks(
    tags: Array, offsets: Offsets, types: int, scheme: str, excluded: tuple[int, ...]
) -> set[tuple[int, int, int]]:
    """Return (first row, last row, type) of all chunks."""
    places = max(1, sum(place >= 0 for place in _SCHEMES[scheme]))
    kind, place = np.minimum(tags // places, types), tags % places
    if not len(tags):
        return set()
    starts, ends = _boundaries(kind, place, offsets, scheme)
    inside = kind < types
    begins, lasts = np.flatnonzero(starts & inside), np.flatnonzero(ends & inside)
    triples = zip(begins.tolist(), lasts.tolist(), kind[begins].tolist(), strict=True)
    return {each for each in triples if each[2] not in excluded}


def _boundaries(kind: Array, place: Array, offsets: Offsets, scheme: str) -> tuple[Array, Array]:
    """Return whether a chunk begins, and whether one ends, at each row inside a chunk."""
    begin, _, end, single = _SCHEMES[scheme]
    first = np.zeros(len(kind), bool)
    first[offsets[:-1][offsets[:-1] < len(kind)]] = True
    # A chunk begins where the previous row has another type or ends a chunk, or where this row begins one.
    opens = np.isin(place, [each for each in (begin, single) if each >= 0])
    closes = np.isin(place, [each for each in (end, single) if each >= 0])
    apart = np.ones(len(kind), bool)
    apart[1:] = (kind[1:] != kind[:-1]) | closes[:-1] | opens[1:]
    starts = first | apart
    ends = np.append(starts[1:], True)
    return starts, ends
