# SPDX-License-Identifier: Apache-2.0
"""Sessions as JSON, so that another process of the same server knows which request of whom was the last.

A reply that carries parameters is not kept but made again: those who wait for it get the present values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle.pserver.server.session import Session, Sessions
from paddle.pserver.transports.local_wire import IN_PLACE
from paddle.pserver.wire.message import Message, Section, Verb


def sessions_to_json(sessions: Sessions, is_to_come: Callable[[Session], bool]) -> dict[str, Any]:
    """Return all sessions and who left; `is_to_come`: whether a newest request may be carried out once more."""
    every = [_to_json(session, is_to_come(session)) for session in sessions.all()]
    return {"left": sorted(sessions.left), "all": every}


def sessions_from_json(
    sessions: Sessions, said: dict[str, Any], values: Callable[[int], Message], stamp: int
) -> None:
    """Take over what `sessions_to_json` gave.

    Args:
        values: makes the answer to a trainer's push.
        stamp: of this server.
    """
    sessions.left.update(said["left"])
    for each in said["all"]:
        session = Session(each["trainer"], each["id"], b"", last=each["last"], verb=Verb(each["verb"]))
        reply = each["reply"]
        if reply is not None:
            made = (
                values(session.trainer)
                if reply["values"]
                else Message(Verb(reply["verb"]), value=reply["value"], extra=reply["extra"])
            )
            if reply["text"] is not None:
                made = made._replace(sections=(Section.text("", reply["text"]),))
            session.reply = made._replace(
                trainer=session.trainer, session=session.id, request=session.last, stamp=stamp
            )
        sessions.take_up(session)


def _to_json(session: Session, is_to_come: bool) -> dict[str, Any]:
    reply = None if is_to_come or session.reply is None else _reply_to_json(session.reply)
    return {
        "trainer": session.trainer,
        "id": session.id,
        "last": session.last - is_to_come,
        "verb": int(session.verb),
        "reply": reply,
    }


def _reply_to_json(reply: Message) -> dict[str, Any]:
    is_text = reply.verb is Verb.ERROR
    return {
        "verb": int(reply.verb),
        "value": reply.value,
        "extra": reply.extra,
        "text": reply.section("").as_text() if is_text else None,
        "values": (bool(reply.sections) or reply.extra >= IN_PLACE) and not is_text,
    }
