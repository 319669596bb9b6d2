# SPDX-License-Identifier: Apache-2.0
"""Rows of growing tables as sections of messages: ids, rows, ages, and perhaps states."""

from __future__ import annotations

import numpy as np

from paddle.errors import WireError
from paddle.pserver.sparse.walk import TableRows
from paddle.pserver.wire.message import Message, Section

_SECTIONS = {"ids": np.dtype(np.int64), "rows": np.dtype(np.float32), "ages": np.dtype(np.int32)}
_STATES = "states"


def row_sections(rows: TableRows) -> tuple[Section, ...]:
    """Return rows as sections."""
    sections = [Section(name, getattr(rows, name)) for name in _SECTIONS]
    return (*sections, *([] if rows.states is None else [Section(_STATES, rows.states)]))


def read_rows(message: Message) -> TableRows:
    """Return the rows of a message.

    Raises:
        WireError: a section is missing, or of another dtype or number of rows.
    """
    found = {name: message.section(name).array for name in _SECTIONS}
    states = message.section(_STATES).array if message.has_section(_STATES) else None
    n = found["ids"].shape
    for name, dtype in _SECTIONS.items():
        array, ndim = found[name], 2 if name == "rows" else 1
        if array.dtype != dtype or array.ndim != ndim or array.shape[:1] != n:
            raise WireError(f"rows of a table: {name}: {array.shape} {array.dtype} for ids {n}")
    if states is not None and (states.dtype != np.float32 or states.ndim != 2 or states.shape[:1] != n):
        raise WireError(f"rows of a table: states: {states.shape} {states.dtype} for ids {n}")
    return TableRows(found["ids"], found["rows"], found["ages"], states)
