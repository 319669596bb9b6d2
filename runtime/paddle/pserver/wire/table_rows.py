# SPDX-License-Identifier: Apache-2.0
"""Encodes rows of growing tables as sections of messages: ids, rows, ages and, optionally, states."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paddle.errors import WireError
from paddle.pserver.sparse.blocks import Lineage
from paddle.pserver.sparse.walk import TableRows
from paddle.pserver.wire.message import Message, Section

_SECTIONS = {"ids": np.dtype(np.int64), "rows": np.dtype(np.float32), "ages": np.dtype(np.int32)}
_STATES = "states"
LEFT = "left"
"""Ids (k,) whose rows left the table meanwhile: a section of the first answer to a walk, if there are any."""
_LINEAGE = "lineage"


def lineage_section(lineage: Lineage) -> Section:
    """Encode the identity of a table's batches; sent in the first answer to a walk."""
    return Section(_LINEAGE, np.array(lineage, np.int64))


def read_lineage(message: Message) -> Lineage:
    """Decode a `lineage_section`. Raises WireError if the values are not (3,) non-negative int64."""
    found = message.section(_LINEAGE).array
    if found.shape != (3,) or found.dtype != np.int64 or found.min() < 0:
        raise WireError(
            f"lineage of a table: expected three non-negative int64, got {found.dtype} {found.ravel()[:3].tolist()} "
            f"of shape {found.shape}"
        )
    return Lineage(*found.tolist())


def read_left(message: Message) -> npt.NDArray[np.int64]:
    """Return the ids of rows that left the table. Raises WireError if the ids are not (k,) int64."""
    if (section := message.find(LEFT)) is None:
        return np.zeros(0, np.int64)
    left = section.array
    if left.ndim != 1 or left.dtype != np.int64:
        raise WireError(f"removed rows of a table: expected ids (k,) int64, got {left.shape} {left.dtype}")
    return np.unique(left)


def score_section(name: str, min_score: float) -> Section:
    """Encode the minimum score of one table, for SHRINK."""
    return Section(name, np.array([min_score], np.float32))


def read_scores(message: Message) -> dict[str, float]:
    """Return the minimum score by table name. Raises WireError if a score is not (1,) non-negative float32."""
    for each in message.sections:
        if each.array.shape != (1,) or each.array.dtype != np.float32 or not 0 <= each.array[0] < np.inf:
            raise WireError(
                f"shrink: the minimum score of table {each.name}: expected one finite float32 of at least 0, got "
                f"{each.array.dtype} {each.array.ravel()[:3].tolist()} of shape {each.array.shape}"
            )
    return {each.name: float(each.array[0]) for each in message.sections}


def row_sections(rows: TableRows) -> tuple[Section, ...]:
    """Encode rows as sections: ids, values, ages and, if requested, states."""
    sections = [Section(name, getattr(rows, name)) for name in _SECTIONS]
    return (*sections, *([] if rows.states is None else [Section(_STATES, rows.states)]))


def read_rows(message: Message) -> TableRows:
    """Decode the rows in a message.

    Raises:
        WireError: a section is missing, or has a different dtype or number of rows.
    """
    found = {name: message.section(name).array for name in _SECTIONS}
    states = None if (section := message.find(_STATES)) is None else section.array
    n = found["ids"].shape
    for name, dtype in _SECTIONS.items():
        array, ndim = found[name], 2 if name == "rows" else 1
        shape = "(n, width)" if ndim == 2 else "(n,)"
        if array.dtype != dtype or array.ndim != ndim or array.shape[:1] != n:
            raise WireError(
                f"rows of a table: expected {name} {shape} {dtype} for ids {n}, got {array.shape} {array.dtype}"
            )
    if states is not None and (states.dtype != np.float32 or states.ndim != 2 or states.shape[:1] != n):
        raise WireError(
            f"rows of a table: expected states (n, width) float32 for ids {n}, got {states.shape} {states.dtype}"
        )
    return TableRows(found["ids"], found["rows"], found["ages"], states)
