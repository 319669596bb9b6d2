# SPDX-License-Identifier: Apache-2.0
"""What a store's values look like as answers."""

from __future__ import annotations

import logging

from paddle.pserver.store.gradient import Gradient
from paddle.pserver.store.store import Store
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Ok, Pull, PullTable

_log = logging.getLogger(__name__)


def state_of(store: Store) -> Ok:
    """Return how far a store is."""
    return Ok(store.version, store.pass_id)


def values_of(store: Store) -> Message:
    """Return all dense values."""
    return Message(state_of(store), sections=(Section("", store.dense()),))


def part_of_values(store: Store, message: Message) -> Message:
    """Return the answer to PULL."""
    asked = message.expect(Pull)
    if asked.in_place:
        return Message(Ok(store.version, store.pass_id, store.slab_number))
    if not asked.length:
        return values_of(store)
    return Message(state_of(store), sections=(Section("", store.dense_part(asked.start, asked.length)),))


class PushAnswers:
    """The answers to the pushes of one step, which share the values. They are of the moment of the call."""

    def __init__(self, store: Store, values: Section | None = None) -> None:
        """`values`: all of them, where they stay as they are until the answers are there; None: they are copied."""
        self._store = store
        self._values = () if values is None else (values,)

    def to(self, gradient: Gradient) -> Message:
        """Return the answer to a push; to one in chunks the values go in chunks too, beside it, if they are wanted."""
        store = self._store
        rows = tuple(
            [Section(name, store.rows_of(name).rows_here(ids)) for name, ids in gradient.asked.items()]
        )
        if gradient.in_place:
            return Message(Ok(store.version, store.pass_id, store.slab_number), sections=rows)
        if not gradient.is_answered_apart and not self._values:
            self._values = (Section("", store.dense()),)
        values = () if gradient.is_answered_apart else self._values
        return Message(state_of(store), sections=(*values, *rows))


def part_of_table(store: Store, message: Message) -> Message:
    """Return the answer to PULL_TABLE."""
    asked, name = message.expect(PullTable), message.section("name").as_text()
    if not asked.start:
        _log.info("pserver: getParameter")
        store.catch_up()
    part = store.table(name).part(*asked)
    return Message(state_of(store), sections=(Section("", part),))


def rows_of_tables(store: Store, message: Message) -> Message:
    """Return the answer to PULL_ROWS."""
    sections = tuple(Section(s.name, store.rows_of(s.name).rows(s.array)) for s in message.sections)
    return Message(state_of(store), sections=sections)
