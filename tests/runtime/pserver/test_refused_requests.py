# SPDX-License-Identifier: Apache-2.0
"""Wrong gradients, ids and values: an exact error to whoever sent them, parameters unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import RowGradient
from paddle.pserver.client import Client
from paddle.pserver.configuration import Configuration
from paddle.pserver.engine import Engine
from paddle.pserver.message import Message, Section, Verb
from paddle.pserver.options import EngineOptions
from tests.runtime.pserver.in_process_job import SGD, InProcessJob, Model

MODEL = Model({"fc.w": (40, 50), "fc.b": (50,), "emb": (20, 3)}, sparse=["emb"])


@pytest.fixture
def client() -> Iterator[Client]:
    with InProcessJob(1, num_dense=2, num_sparse=2).client(0) as client:
        client.configure(MODEL.parameters, SGD, MODEL.values())
        client.start_pass()
        yield client


def rows(ids: list[int], width: int = 3, dtype: Any = np.float32) -> RowGradient:
    return RowGradient(np.array(ids, np.int64), np.ones((len(ids), width), dtype))


def bad(shape: tuple[int, ...], value: float) -> np.ndarray:
    array = np.zeros(shape, np.float32)
    array.reshape(-1)[-1] = value
    return array


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "shape": (
        {"fc.w": np.zeros((40, 51), np.float32)},
        r"gradient of parameter fc\.w: expected \(40, 50\) float32, got \(40, 51\)",
    ),
    "dtype": ({"fc.b": np.zeros(50)}, r"fc\.b: expected \(50,\) float32, got \(50,\) float64"),
    "objects": ({"fc.b": np.zeros(50, object)}, r"fc\.b: .*object"),
    "NaN": ({"fc.w": bad((40, 50), np.nan)}, r"gradient of parameter fc\.w is NaN"),
    "infinity": ({"fc.b": bad((50,), np.inf)}, r"gradient of parameter fc\.b is NaN or infinite"),
    "name": ({"fc.v": np.zeros(1, np.float32)}, r"'fc\.v' is not on the pservers; known: fc\.w, fc\.b, emb"),
    "dense for sparse": ({"emb": np.zeros((20, 3), np.float32)}, "parameter emb: expected a RowGradient"),
    "sparse for dense": ({"fc.b": rows([1])}, r"fc\.b: expected an array"),
    "negative id": ({"emb": rows([-1, 3])}, "emb: expected row ids from 0 to 19, got -1"),
    "id too large": ({"emb": rows([3, 20])}, "emb: expected row ids from 0 to 19, got 20"),
    "id twice": ({"emb": rows([3, 3])}, "emb: expected row ids strictly ascending, got 3 before 3"),
    "width": ({"emb": rows([3], width=4)}, r"emb: expected \(1, 3\) float32, got \(1, 4\)"),
    "row dtype": ({"emb": rows([3], dtype=np.float64)}, "emb: .* got .*float64"),
    "NaN row": ({"emb": RowGradient(np.array([3]), bad((1, 3), np.nan))}, "emb is NaN"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_gradient_never_leaves_the_trainer_and_it_may_go_on(client: Client, what: str) -> None:
    grads, why = WRONG[what]
    before, after = MODEL.empty(), MODEL.empty()
    client.pull(before)
    with pytest.raises(ConfigError, match=why):
        client.push_pull(grads, 1, {})
    client.pull(after)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    client.push_pull({}, 1, {})


def test_out_arrays_that_cannot_be_filled_are_refused(client: Client) -> None:
    frozen = np.zeros((40, 50), np.float32)
    frozen.flags.writeable = False
    for out in (frozen, np.zeros((50, 40), np.float32).T, np.zeros((40, 49), np.float32)):
        with pytest.raises(ConfigError, match=r"out array of parameter fc\.w"):
            client.pull({"fc.w": out})


@pytest.mark.parametrize("ids", [[20], [-1], [2**40]])
def test_rows_that_do_not_exist_cannot_be_pulled(client: Client, ids: list[int]) -> None:
    with pytest.raises(ConfigError, match="emb: expected 0 to 19"):
        client.pull_rows("emb", np.array(ids, np.int64))


def test_values_that_are_missing_or_wrong_are_named() -> None:
    for change, why in (
        (
            {"fc.b": np.zeros(49, np.float32)},
            r"value of parameter fc\.b: expected \(50,\) float32, got \(49,\)",
        ),
        ({"fc.b": bad((50,), np.nan)}, r"value of parameter fc\.b is NaN"),
    ):
        with InProcessJob(1).client(0) as client, pytest.raises(ConfigError, match=why):
            client.configure(MODEL.parameters, SGD, MODEL.values() | change)


def test_pushing_outside_a_pass_is_refused() -> None:
    with InProcessJob(1).client(0) as client:
        client.configure(MODEL.parameters, SGD, MODEL.values())
        with pytest.raises(PserverError, match="pushes outside a pass"):
            client.push_pull({}, 1, {})


class Server:
    """One engine with a trainer in a pass, and a peer that sends it whatever a test likes."""

    def __init__(self) -> None:
        self.engine = Engine(EngineOptions(1), stamp=7)
        self.request = 0
        self.ask(Verb.HELLO, value=1)
        text = _configuration_text()
        self.ask(Verb.CONFIGURE, Section.text("", text))
        self.ask(Verb.SET_VALUES, Section("", np.ones(2050, np.float32)))
        self.ask(Verb.READY)
        self.ask(Verb.START_PASS)

    def ask(self, verb: Verb, *sections: Section, value: int = 0, extra: int = 0) -> Message:
        self.request += 1
        message = Message(verb, 0, 1, self.request, 7, value, extra, sections)
        replies = self.engine.handle(b"peer", message)
        assert len(replies) == 1
        return replies[0].message

    def values(self) -> list[bytes]:
        table = self.ask(Verb.PULL_TABLE, Section.text("name", "emb"), extra=20)
        return [self.ask(Verb.PULL).section("").array.tobytes(), table.section("").array.tobytes()]


def _configuration_text() -> str:
    return Configuration(tuple(MODEL.parameters), SGD, 1, 0, 0).to_text()


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
        r"gradient: expected \(2050,\) float32 for the blocks here \(fc.w: 2000, fc.b: 50\)",
    ),
    "int slab": ((slab(dtype=np.int64),), "got .* int64"),
    "no slab": ((), r"got \(0,\)"),
    "NaN in fc.w": ((slab(value=np.nan, at=1999),), "gradient of parameter fc.w is NaN"),
    "infinity in fc.b": ((slab(value=-np.inf, at=2000),), "gradient of parameter fc.b is NaN or infinite"),
    "huge but finite is no NaN, NaN row is": (
        (slab(value=3e38), *row_sections([1], bad((1, 3), np.nan))),
        "emb, row 1, is NaN",
    ),
    "negative id": ((slab(), *row_sections([-1])), "emb: expected row ids from 0 to 19, got -1"),
    "id too large": ((slab(), *row_sections([20])), "emb: expected row ids from 0 to 19, got 20"),
    "ids descend through overflow": ((slab(), *row_sections([5, -(2**63)])), "ascending"),
    "id twice": ((slab(), *row_sections([4, 4])), "ascending"),
    "width": ((slab(), *row_sections([4], np.ones((1, 4), np.float32))), r"emb: expected \(1, 3\)"),
    "unknown table": ((slab(), *row_sections([4], name="fc.w")), "sparse parameter 'fc.w' is unknown here"),
    "ids without values": ((slab(), row_sections([4])[0]), "a push is a slab"),
    "two names": (
        (slab(), row_sections([4])[0], row_sections([4], name="x")[1]),
        "row ids of 'emb' and values of 'x'",
    ),
    "ids are floats": ((slab(), Section("emb", np.ones(1, np.float32)), row_sections([1])[1]), "int64"),
    "ids are a matrix": ((slab(), Section("emb", np.ones((1, 1), np.int64)), row_sections([1])[1]), "int64"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_the_server_itself_refuses_what_a_client_would_not_send(what: str) -> None:
    sections, why = HOSTILE[what]
    server = Server()
    before = server.values()
    reply = server.ask(Verb.PUSH_PULL, *sections, value=1)
    assert reply.verb is Verb.ERROR
    assert re.search(why, reply.section("").as_text())
    assert server.values() == before
    assert server.ask(Verb.PUSH_PULL, slab(), value=1).verb is Verb.OK


REQUESTS: dict[str, tuple[Verb, tuple[Section, ...], dict[str, int], str]] = {
    "rows of a dense one": (Verb.PULL_ROWS, (Section("fc.w", np.zeros(1, np.int64)),), {}, "unknown here"),
    "rows as floats": (Verb.PULL_ROWS, (Section("emb", np.zeros(1, np.float32)),), {}, "int64"),
    "rows beyond": (
        Verb.PULL_ROWS,
        (Section("emb", np.array([2**62])),),
        {},
        "row 4611686018427387904 is not here",
    ),
    "table unknown": (Verb.PULL_TABLE, (Section.text("name", "x"),), {}, "'x' is unknown here"),
    "table unnamed": (Verb.PULL_TABLE, (), {}, "without a section named 'name'"),
    "values too late": (Verb.SET_VALUES, (slab(),), {}, "before training"),
    "not JSON": (Verb.CONFIGURE, (Section.text("", "{"),), {}, "configuration cannot be read"),
    "JSON of another kind": (Verb.CONFIGURE, (Section.text("", "[1]"),), {}, "configuration cannot be read"),
    "a reply": (Verb.OK, (), {}, "OK is not a request"),
    "a second start": (Verb.FINISH_PASS, (), {}, ""),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_other_wrong_requests_get_an_exact_answer_too(what: str) -> None:
    verb, sections, numbers, why = REQUESTS[what]
    server = Server()
    reply = server.ask(verb, *sections, **numbers)
    if why:
        assert reply.verb is Verb.ERROR
        assert why in reply.section("").as_text()
    else:
        assert reply.verb is Verb.OK
        assert "did not start" in server.ask(verb).section("").as_text()


UNCONFIGURABLE: dict[str, tuple[str, str, str]] = {
    "nested too deep": ("{", "[" * 100_000, "cannot be read"),
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
    engine.handle(b"x", Message(Verb.HELLO, session=1, request=1, value=1))
    text = _configuration_text()
    assert was in text
    sections = (Section.text("", text.replace(was, becomes, 1)),)
    (reply,) = engine.handle(b"x", Message(Verb.CONFIGURE, session=1, request=2, stamp=7, sections=sections))
    assert reply.message.verb is Verb.ERROR
    assert why in reply.message.section("").as_text()
    assert "memory" not in reply.message.section("").as_text()


def test_a_table_value_without_dimensions_is_refused_and_the_server_lives() -> None:
    engine = Engine(EngineOptions(1), stamp=7)
    engine.handle(b"x", Message(Verb.HELLO, session=1, request=1, value=1))
    text = Section.text("", _configuration_text())
    engine.handle(b"x", Message(Verb.CONFIGURE, session=1, request=2, stamp=7, sections=(text,)))
    scalar = (Section("emb", np.array(1.0, np.float32)),)
    (reply,) = engine.handle(b"x", Message(Verb.SET_VALUES, session=1, request=3, stamp=7, sections=scalar))
    assert "values of parameter emb: expected up to (20, 3)" in reply.message.section("").as_text()


def test_a_request_without_session_or_to_a_server_of_before_is_refused() -> None:
    engine = Engine(EngineOptions(1), stamp=7)
    (reply,) = engine.handle(b"x", Message(Verb.PULL, session=1, request=1, stamp=7))
    assert "no session" in reply.message.section("").as_text()
    (reply,) = engine.handle(b"x", Message(Verb.PULL, session=1, request=1, stamp=6))
    assert reply.message.verb is Verb.STATE_LOST
    assert "was restarted" in reply.message.section("").as_text()


def test_a_model_larger_than_memory_is_refused_and_the_server_lives() -> None:
    server = Engine(EngineOptions(1), stamp=7)
    server.handle(b"x", Message(Verb.HELLO, session=1, request=1, value=1))
    text = _configuration_text().replace("[20, 3]", "[200000000000, 300000]")
    sections = (Section.text("", text),)
    (reply,) = server.handle(b"x", Message(Verb.CONFIGURE, session=1, request=2, stamp=7, sections=sections))
    assert "do not fit" in reply.message.section("").as_text()
    (reply,) = server.handle(b"x", Message(Verb.PING))
    assert reply.message.verb is Verb.OK


def test_a_lost_request_or_reply_is_made_up_for() -> None:
    server = Server()
    push = Message(Verb.PUSH_PULL, 0, 1, 50, 7, 1, 0, (slab(),))
    (reply,) = server.engine.handle(b"peer", Message(Verb.STATUS, 0, 1, 50, 7))
    assert reply.message.verb is Verb.REPEAT
    (first,) = server.engine.handle(b"peer", push)
    (again,) = server.engine.handle(b"elsewhere", Message(Verb.STATUS, 0, 1, 50, 7))
    assert again.message == first.message
    (third,) = server.engine.handle(b"elsewhere", push)
    assert third.address == b"elsewhere"
    assert third.message == first.message
    assert server.engine.handle(b"peer", Message(Verb.PUSH_PULL, 0, 1, 49, 7, 1, 0, (slab(),))) == []
