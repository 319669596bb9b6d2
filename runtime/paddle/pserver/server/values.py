# SPDX-License-Identifier: Apache-2.0
"""What a store's values look like as answers."""

from __future__ import annotations

import logging

from paddle.pserver.store.gradient import Gradient
from paddle.pserver.store.store import Store
from paddle.pserver.transports.local_wire import IN_PLACE
from paddle.pserver.wire.message import Message, Section, Verb

_log = logging.getLogger(__name__)


def values_of(store: Store) -> Message:
    """Return all dense values."""
    return Message(Verb.OK, value=store.version, extra=store.pass_id, sections=(Section("", store.dense()),))


def part_of_values(store: Store, message: Message) -> Message:
    """Return the answer to PULL: `extra` elements from `value` on, or all, or which shared slab has them."""
    if message.extra == IN_PLACE:
        return Message(Verb.OK, value=store.version, extra=IN_PLACE + store.slab_number)
    if not message.extra:
        return values_of(store)
    part = store.dense_part(message.value, message.extra)
    return Message(Verb.OK, value=store.version, extra=store.pass_id, sections=(Section("", part),))


def answer_to_push(store: Store, gradient: Gradient) -> Message:
    """Return the answer to a push; to one in chunks the values go in chunks too, beside it, if they are wanted."""
    if gradient.in_place:
        return Message(Verb.OK, value=store.version, extra=IN_PLACE + store.slab_number)
    if gradient.slab is None or not gradient.wants_values:
        return Message(Verb.OK, value=store.version, extra=store.pass_id)
    return values_of(store)


def part_of_table(store: Store, message: Message) -> Message:
    """Return the answer to PULL_TABLE."""
    name = message.section("name").as_text()
    if message.value == 0:
        _log.info("pserver: getParameter")
        store.catch_up()
    part = store.table(name).part(message.value, message.extra)
    return Message(Verb.OK, sections=(Section("", part),))


def rows_of_tables(store: Store, message: Message) -> Message:
    """Return the answer to PULL_ROWS."""
    sections = tuple(Section(s.name, store.rows_of(s.name).rows(s.array)) for s in message.sections)
    return Message(Verb.OK, value=store.version, sections=sections)
