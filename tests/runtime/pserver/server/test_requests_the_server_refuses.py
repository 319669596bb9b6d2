# SPDX-License-Identifier: Apache-2.0
"""Requests that no client of ours would send: the server answers each with its reason and lives on."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import (
    Ask,
    Configure,
    FinishPass,
    Hello,
    Ok,
    Ping,
    Pull,
    PullRows,
    PullTable,
    PushPull,
    Ready,
    Record,
    SetValues,
    Shrink,
    StartPass,
    Status,
    Verb,
)
from tests.runtime.pserver.in_process_job import SGD, SMALL, bad


class Server:
    """One engine with a trainer in a pass, and a peer that sends it whatever a test likes."""

    def __init__(self) -> None:
        self.engine = Engine(EngineOptions(1), stamp=7)
        self.request = 0
        self.ask(Hello(1))
        text = _configuration_text()
        self.ask(Configure(), Section.text("", text))
        self.ask(SetValues(), Section("", np.ones(2050, np.float32)))
        self.ask(Ready())
        self.ask(StartPass())

    def ask(self, record: Record, *sections: Section) -> Message:
        self.request += 1
        message = Message(record, 0, 1, self.request, 7, sections)
        replies = self.engine.handle(b"peer", message)
        assert len(replies) == 1
        return replies[0].message

    def values(self) -> list[bytes]:
        table = self.ask(PullTable(0, 20), Section.text("name", "emb"))
        return [self.ask(Pull()).section("").array.tobytes(), table.section("").array.tobytes()]


def _configuration_text() -> str:
    return Configuration(tuple(SMALL.parameters), SGD, 1, 0, 0).to_text()


def slab(size: int = 2050, value: float = 0.0, at: int = 0, dtype: Any = np.float32) -> Section:
    array = np.zeros(size, dtype)
    if dtype is np.float32 and size:
        array[at] = value
    return Section("", array)


def row_sections(ids: list[int], values: Any = None, name: str = "emb") -> tuple[Section, Section]:
    given = np.ones((len(ids), 3), np.float32) if values is None else values
    return Section(name, np.array(ids, np.int64)), Section(name, given)


HOSTILE: dict[str, tuple[tuple[Section, ...], str]] = {
    "short slab": (
        (slab(2049),),
        r"gradient: expected \(2050,\) float32 for the blocks on this server \(fc.w: 2000, fc.b: 50\)",
    ),
    "int slab": ((slab(dtype=np.int64),), "got .* int64"),
    "no slab": ((), r"got \(0,\)"),
    "NaN in fc.w": ((slab(value=np.nan, at=1999),), "gradient of parameter fc.w contains NaN"),
    "infinity in fc.b": ((slab(value=-np.inf, at=2000),), "gradient of parameter fc.b contains NaN"),
    "huge but finite is no NaN, NaN row is": (
        (slab(value=3e38), *row_sections([1], bad((1, 3), np.nan))),
        "emb: row 1 contains NaN",
    ),
    "negative id": ((slab(), *row_sections([-1])), "emb: expected row ids from 0 to 19, got -1"),
    "id too large": ((slab(), *row_sections([20])), "emb: expected row ids from 0 to 19, got 20"),
    "ids descend through overflow": ((slab(), *row_sections([5, -(2**63)])), "ascending"),
    "id twice": ((slab(), *row_sections([4, 4])), "ascending"),
    "width": ((slab(), *row_sections([4], np.ones((1, 4), np.float32))), r"emb: expected \(1, 3\)"),
    "unknown table": ((slab(), *row_sections([4], name="fc.w")), "unknown sparse parameter 'fc.w'"),
    "ids without values": ((slab(), row_sections([4])[0]), "malformed push"),
    "two names": (
        (slab(), row_sections([4])[0], row_sections([4], name="x")[1]),
        "ids of 'emb' and values",
    ),
    "ids are floats": ((slab(), Section("emb", np.ones(1, np.float32)), row_sections([1])[1]), "int64"),
    "ids are a matrix": ((slab(), Section("emb", np.ones((1, 1), np.int64)), row_sections([1])[1]), "int64"),
}


def test_a_server_that_is_behind_the_end_of_a_list_is_refused() -> None:
    server = Server()
    before = server.values()
    refused = server.ask(Hello(1, number=2, listed=2)).section("").as_text()
    assert refused == "number in the list of servers: expected 0 to 1, got 2"
    assert server.ask(Hello(1, number=1, listed=2)).verb is Verb.OK
    assert server.values() == before


@pytest.mark.parametrize("what", HOSTILE)
def test_the_server_itself_refuses_what_a_client_would_not_send(what: str) -> None:
    sections, why = HOSTILE[what]
    server = Server()
    before = server.values()
    reply = server.ask(PushPull(1), *sections)
    assert reply.verb is Verb.ERROR
    assert re.search(why, reply.section("").as_text())
    assert server.values() == before
    assert server.ask(PushPull(1), slab()).verb is Verb.OK


REQUESTS: dict[str, tuple[Record, tuple[Section, ...], str]] = {
    "rows of a dense one": (PullRows(), (Section("fc.w", np.zeros(1, np.int64)),), "unknown sparse"),
    "rows as floats": (PullRows(), (Section("emb", np.zeros(1, np.float32)),), "int64"),
    "rows beyond": (
        PullRows(),
        (Section("emb", np.array([2**62])),),
        "row 4611686018427387904 is not on this server",
    ),
    "rows to come beyond": (
        PushPull(1, asked=1),
        (slab(), Section("emb", np.array([2**62]))),
        "row 4611686018427387904 is not on this server",
    ),
    "rows to come of a dense one": (
        PushPull(1, asked=1),
        (slab(), Section("fc.w", np.zeros(1, np.int64))),
        "unknown sparse",
    ),
    "more rows to come than ids": (
        PushPull(1, asked=2),
        (slab(),),
        "expected at least 2 arrays in a push",
    ),
    "rows to come twice": (
        PushPull(1, asked=2),
        (slab(), *2 * row_sections([4])[:1]),
        "the same parameter twice",
    ),
    "table unknown": (PullTable(), (Section.text("name", "x"),), "unknown sparse parameter 'x'"),
    "table unnamed": (PullTable(), (), "without a section named 'name'"),
    "a score NaN": (Shrink(), (Section("t", np.full(1, np.nan, np.float32)),), "score of table t: expected"),
    "two scores": (Shrink(), (Section("t", np.ones(2, np.float32)),), "of shape (2,)"),
    "a score of int64": (Shrink(), (Section("t", np.ones(1, np.int64)),), "int64 [1] of shape (1,)"),
    "a score of a dense one": (
        Shrink(),
        (Section("fc.w", np.ones(1, np.float32)),),
        "'fc.w'; known: []",
    ),
    "values too late": (SetValues(), (slab(),), "before training"),
    "not JSON": (Configure(), (Section.text("", "{"),), "cannot read the configuration"),
    "JSON of another kind": (Configure(), (Section.text("", "[1]"),), "cannot read the configuration"),
    "a reply": (Ok(), (), "not accept OK"),
    "a second start": (FinishPass(), (), ""),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_other_wrong_requests_get_an_exact_answer_too(what: str) -> None:
    record, sections, why = REQUESTS[what]
    server = Server()
    reply = server.ask(record, *sections)
    if why:
        assert reply.verb is Verb.ERROR
        assert why in reply.section("").as_text()
    else:
        assert reply.verb is Verb.OK
        assert "trainer 0" in server.ask(record).section("").as_text()


UNCONFIGURABLE: dict[str, tuple[str, str, str]] = {
    "nested too deep": ("{", "[" * 100_000, "cannot read"),
    "a name of half a character": ('"fc.w"', '"\\ud800"', "printable"),
    "a name too long in bytes": ('"fc.w"', '"' + "ü" * 200 + '"', "255 bytes"),
    "more rows than numbers": ("[20, 3]", f"[{10**30}, 3]", "at most"),
    "a number beyond every float": (
        '"learning_rate": 0.1',
        f'"learning_rate": 1{"0" * 400}',
        "finite number",
    ),
    "a rule out of its range": (
        '"momentum", "hyper": {}',
        '"rmsprop", "hyper": {"rho": -1}',
        "rho: expected 0",
    ),
    "a rule without rows": ('"momentum", "hyper": {}', '"adam", "hyper": {}', "cannot update single rows"),
    "a schedule that leaves the reals": (
        '"schedule": "constant", "decay_a": 0.0',
        '"schedule": "poly", "decay_a": -1',
        "decay_a",
    ),
}


@pytest.mark.parametrize("what", UNCONFIGURABLE)
def test_a_configuration_that_cannot_be_is_refused_and_the_server_lives(what: str) -> None:
    was, becomes, why = UNCONFIGURABLE[what]
    engine = Engine(EngineOptions(1), stamp=7)
    engine.handle(b"x", Message(Hello(1), session=1, request=1))
    text = _configuration_text()
    assert was in text
    sections = (Section.text("", text.replace(was, becomes, 1)),)
    (reply,) = engine.handle(b"x", Message(Configure(), session=1, request=2, stamp=7, sections=sections))
    assert reply.message.verb is Verb.ERROR
    assert why in reply.message.section("").as_text()
    assert "memory" not in reply.message.section("").as_text()


def test_a_table_value_without_dimensions_is_refused_and_the_server_lives() -> None:
    engine = Engine(EngineOptions(1), stamp=7)
    engine.handle(b"x", Message(Hello(1), session=1, request=1))
    text = Section.text("", _configuration_text())
    engine.handle(b"x", Message(Configure(), session=1, request=2, stamp=7, sections=(text,)))
    scalar = (Section("emb", np.array(1.0, np.float32)),)
    (reply,) = engine.handle(b"x", Message(SetValues(), session=1, request=3, stamp=7, sections=scalar))
    assert "values of parameter emb: expected at most (20, 3)" in reply.message.section("").as_text()


def test_a_request_without_session_or_to_a_server_of_before_is_refused() -> None:
    engine = Engine(EngineOptions(1), stamp=7)
    (reply,) = engine.handle(b"x", Message(Pull(), session=1, request=1, stamp=7))
    assert "no session" in reply.message.section("").as_text()
    (reply,) = engine.handle(b"x", Message(Pull(), session=1, request=1, stamp=6))
    assert reply.message.verb is Verb.STATE_LOST
    assert "was restarted" in reply.message.section("").as_text()


def test_a_model_larger_than_memory_is_refused_and_the_server_lives() -> None:
    server = Engine(EngineOptions(1), stamp=7)
    server.handle(b"x", Message(Hello(1), session=1, request=1))
    text = _configuration_text().replace("[20, 3]", "[200000000000, 300000]")
    sections = (Section.text("", text),)
    (reply,) = server.handle(b"x", Message(Configure(), session=1, request=2, stamp=7, sections=sections))
    assert "do not fit" in reply.message.section("").as_text()
    (reply,) = server.handle(b"x", Message(Ping()))
    assert reply.message.verb is Verb.OK


def test_a_lost_request_or_reply_is_made_up_for() -> None:
    server = Server()
    push = Message(PushPull(1), 0, 1, 50, 7, (slab(),))
    (reply,) = server.engine.handle(b"peer", Message(Status(), 0, 1, 50, 7))
    assert reply.message.verb is Verb.REPEAT
    (first,) = server.engine.handle(b"peer", push)
    (again,) = server.engine.handle(b"elsewhere", Message(Status(), 0, 1, 50, 7))
    assert again.message == first.message
    (third,) = server.engine.handle(b"elsewhere", push)
    assert third.address == b"elsewhere"
    assert third.message == first.message
    assert server.engine.handle(b"peer", Message(PushPull(1), 0, 1, 49, 7, (slab(),))) == []


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"ask": "get"', "5", '{"ask": "get", "name": "d", "pass": 1e999}']
)
def test_a_strange_question_to_the_task_queue(text: str) -> None:
    server = Server()
    files = '{"ask": "dataset", "name": "d", "files": [["/data/a", [0]]]}'
    for each, verb in ((files, Verb.OK), (text, Verb.ERROR)):
        message = Message(Ask(), 0, 1, 1, 0, (Section.text("", each),))
        (reply,) = server.engine.handle(b"other", message)
        assert reply.message.verb is verb
    assert server.ask(Status()).verb is not Verb.ERROR


def test_more_rows_than_a_message_takes_are_refused_before_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    before = server.values()
    monkeypatch.setattr("paddle.pserver.store.store.MAX_FRAME_BYTES", 100)
    ids = Section("emb", np.zeros(9, np.int64))
    for asked in (server.ask(PullRows(), ids), server.ask(PushPull(1, asked=1), slab(), ids)):
        assert asked.verb is Verb.ERROR
        assert "emb: 9 rows have 108 bytes" in asked.section("").as_text()
    assert server.values() == before
    assert server.ask(PullRows(), Section("emb", np.zeros(8, np.int64))).verb is Verb.OK
