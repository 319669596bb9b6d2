# SPDX-License-Identifier: Apache-2.0
"""Requests that no trainer of ours would send: a server refuses them, goes on, and writes where it may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.backend import Device
from paddle.errors import ConfigError, PserverError
from paddle.fluid.files.variable_files import checked_place, plain_wire_folders
from paddle.fluid.remote.distribution import serving_operator
from paddle.fluid.remote.served_program import ServedProgram
from paddle.pserver.program_server import ProgramServer
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.program_service import ProgramService
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.wire.codec import decode, encode
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Fetch, Hello, Lookup, Save, Step, Verb

EP = "127.0.0.1:6174"
Ask = Callable[[Message], Message]


@pytest.fixture(scope="module")
def server() -> ServedProgram:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64")
        rows = fluid.layers.embedding(
            ids, [10**11, 8], is_sparse=True, is_distributed=True, param_attr=fluid.ParamAttr("table")
        )
        guess = fluid.layers.fc(rows, 1, param_attr=fluid.ParamAttr("w"), bias_attr=False)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(guess))
    t = fluid.DistributeTranspiler()
    t.transpile(0, main, EP, 1, True, startup)
    program, begin = t.get_pserver_programs(EP)
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(begin, scope=scope)
    operator = serving_operator(program)
    assert operator is not None
    return ServedProgram(program, operator, scope, Device("cpu"), plain_wire_folders())


@pytest.fixture
def ask(server: ServedProgram) -> Ask:
    engine = Engine(EngineOptions(1), 1, serve=lambda desk: ProgramService(desk, server, is_sync=True))
    count = 0

    def asked(message: Message) -> Message:
        nonlocal count
        count += 1
        whole = message._replace(session=7, request=count, stamp=1)
        (reply,) = engine.handle(b"it", decode(encode(whole)))
        return decode(encode(reply.message))

    asked(Message(Hello(1)))
    return asked


def text(content: str) -> tuple[Section]:
    return (Section.text("text", content),)


def ids(name: str, *numbers: int) -> tuple[Section]:
    return (Section(f"={name}", np.array(numbers, np.int64)),)


WRONG = {
    "save: nothing": Message(Save()),
    "save: no path": Message(Save(), sections=text("table")),
    "save: an empty path": Message(Save(), sections=text("table\n")),
    "save: a folder": Message(Save(), sections=text("table\n/")),
    "save: a zero byte": Message(Save(), sections=text("table\n\0")),
    "save: two paths": Message(Save(), sections=text("table\na\nb")),
    "fetch: row of 5000 digits": Message(Fetch(), sections=text("9" * 5000 + ":w")),
    "fetch: row beyond int64": Message(Fetch(), sections=text("9" * 25 + ":w")),
    "fetch: 17 MiB of names": Message(Fetch(), sections=text("0:w\n" * (17 << 18))),
    "lookup: the table by its own name": Message(Lookup(), sections=ids("table", 0)),
    "lookup: a row below": Message(Lookup(), sections=ids("w", -1)),
    "lookup: a row beyond": Message(Lookup(), sections=ids("w", 1 << 62)),
    "step: an unknown gradient": Message(Step(), sections=(Section("=x", np.ones(1, np.float32)),)),
    "step: numbers without rows": Message(Step(), sections=(Section("#x", np.array([1, 2])),)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_request_is_refused_and_the_next_one_answered(ask: Ask, what: str) -> None:
    assert ask(WRONG[what]).verb is Verb.ERROR
    assert ask(Message(Fetch(), sections=text("0:w"))).verb is Verb.OK


def test_a_row_far_beyond_a_variables_end_is_answered_with_none(ask: Ask) -> None:
    (_, part) = ask(Message(Fetch(), sections=text(f"{10**17}:w"))).sections
    assert part.array.shape == (0, 1)


def test_with_a_plain_wire_files_are_below_the_working_or_temporary_directory(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inside = plain_wire_folders()
    for path in ("table_0", "model/__lookup_table__/table_12", f"{tmp_path}/a/../table_1"):
        assert checked_place("table", path, inside).is_relative_to(tmp_path)
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "table_7").symlink_to("/usr/table_7")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "table_8").write_text("somebody's notes")
    for path in (
        *("/usr/table_0", "../" * 40 + "usr/table_0", "link/table_0", "table_7", "table_8", "round/table_0"),
        *(".ssh/table_0", "notes", "table_", "table_0.txt", "..", "a/.."),
    ):
        with pytest.raises(PserverError):
            checked_place("table", path, inside)
    assert (tmp_path / "table_8").read_text() == "somebody's notes"
    for path in ("/usr/table_0", "table_8", "notes"):
        assert checked_place("table", path, None) == Path(path)


def test_a_table_is_saved_again_in_its_own_place_alone(ask: Ask, tmp_path: Path) -> None:
    save = Message(Save(), sections=text(f"table\n{tmp_path}/t/table_0"))
    assert ask(save).verb is ask(save).verb is Verb.OK
    (place,) = (tmp_path / "t").iterdir()
    assert place.name == "table_0"
    place.write_bytes(b"#!/bin/sh")
    assert ask(save).verb is Verb.ERROR
    assert place.read_bytes() == b"#!/bin/sh"


def test_a_working_directory_above_everything_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert Path("/") not in plain_wire_folders()


@pytest.mark.parametrize(
    "endpoint", ["", ":80", "host", "..:6170", f"{'a' * 70}.b:6170", "127.0.0.1:" + "9" * 5000]
)
def test_an_endpoint_that_cannot_be_is_told(server: ServedProgram, endpoint: str) -> None:
    with pytest.raises(ConfigError, match="endpoint"):
        ProgramServer(endpoint, None, EngineOptions(1), server, is_sync=True)
