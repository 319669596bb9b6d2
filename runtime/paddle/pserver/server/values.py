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


def answer_to_push(store: Store, gradient: Gradient) -> Message:
    """Return the answer to a push; to one in chunks the values go in chunks too, beside it, if they are wanted."""
    if gradient.in_place:
        return Message(Ok(store.version, store.pass_id, store.slab_number))
    if gradient.slab is None or not gradient.wants_values:
        return Message(state_of(store))
    return values_of(store)


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
