# SPDX-License-Identifier: Apache-2.0
"""Flags in gflags' syntax."""

from __future__ import annotations

import pytest

from paddle.errors import FlagError
from paddle.flags import describe, parse_arguments, read_flags
from paddle_node.contract.flags import INIT_FLAGS, PSERVER_FLAGS, parse_bool


@pytest.mark.parametrize("word", ["1", "t", "true", "y", "yes", "True", "YES", "T"])
def test_these_words_are_true(word: str) -> None:
    assert parse_bool(word) is True


@pytest.mark.parametrize("word", ["0", "f", "false", "n", "no", "False", "NO"])
def test_these_words_are_false(word: str) -> None:
    assert parse_bool(word) is False


@pytest.mark.parametrize("word", ["", "maybe", "2", "on", "None"])
def test_other_words_are_neither(word: str) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        parse_bool(word)


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["--port=7164"], {"port": "7164"}),
        (["--port", "7164"], {"port": "7164"}),
        (["-port=7164"], {"port": "7164"}),
        (["--small_messages"], {"small_messages": "true"}),
        (["--nosmall_messages"], {"small_messages": "false"}),
        (["--small_messages=False"], {"small_messages": "False"}),
        (["--nics="], {"nics": ""}),
        (["--comment=a b=$(id) 'ü"], {"comment": "a b=$(id) 'ü"}),
        (["--comment", "--port=1"], {"comment": "--port=1"}),
        (["--port=1", "--port=2"], {"port": "2"}),
    ],
)
def test_flags_are_read_in_every_form_gflags_has(arguments: list[str], given: dict[str, str]) -> None:
    assert parse_arguments(PSERVER_FLAGS, arguments) == given


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--prot=1"], "unknown command line flag 'prot'; did you mean 'port'?"),
        (["--noport"], "unknown command line flag 'noport'"),
        (["--zzzzzz"], "unknown command line flag 'zzzzzz'$"),
        (["--port"], "flag --port needs a value"),
        (["pserver"], "Unknown commandline argument: pserver"),
        (["--port=1", "--"], "Unknown commandline argument: --"),
        (["--small_messages", "true"], "Unknown commandline argument: true"),
    ],
)
def test_what_is_no_flag_is_an_error(arguments: list[str], why: str) -> None:
    with pytest.raises(FlagError, match=why.replace("?", r"\?")):
        parse_arguments(PSERVER_FLAGS, arguments)


def test_values_get_the_type_of_their_flag_and_the_rest_their_default() -> None:
    values = read_flags(
        INIT_FLAGS, {"use_gpu": "True", "trainer_id": "3", "port": 8000, "checkgrad_eps": "1e-3"}
    )
    assert values["use_gpu"] is True
    assert values["trainer_id"] == 3
    assert values["port"] == 8000
    assert values["checkgrad_eps"] == 1e-3
    assert values["num_gradient_servers"] == 1
    assert set(values) == set(INIT_FLAGS)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"port": "x"}, "flag --port: expected a whole number, got 'x'"),
        ({"port": 1.5}, "flag --port: expected a whole number, got '1.5'"),
        ({"port": "7_164"}, "flag --port: expected a whole number, got '7_164'"),
        ({"port": 70000}, "flag --port: expected 0 to 65535, got 70000"),
        ({"port": "9" * 400}, "flag --port: expected 0 to 65535, got 9"),
        ({"ports_num": 0}, "flag --ports_num: expected 1 to 1024, got 0"),
        ({"ports_num_for_sparse": -1}, "flag --ports_num_for_sparse: expected 0 to 1024, got -1"),
        ({"num_gradient_servers": 0}, "flag --num_gradient_servers: expected 1 to 65535, got 0"),
        ({"trainer_count": 0}, "flag --trainer_count: expected 1 to 2147483647, got 0"),
        ({"trainer_id": -1}, "flag --trainer_id: expected 0 to 65534, got -1"),
        ({"log_period": -1}, "flag --log_period: expected 0 to 2147483647, got -1"),
        (
            {"port": 65535, "ports_num_for_sparse": 1},
            "--ports_num_for_sparse: expected ports up to 65535, got 65535 to 65536 .1 .* 1 sparse",
        ),
        ({"use_gpu": "maybe"}, "flag --use_gpu: expected true or false, got 'maybe'"),
        ({"checkgrad_eps": ""}, "flag --checkgrad_eps: expected a number"),
        ({"trainer_cuont": 1}, "unknown command line flag 'trainer_cuont'; did you mean 'trainer_count'"),
    ],
)
def test_values_that_do_not_fit_are_named(given: dict[str, object], why: str) -> None:
    with pytest.raises(FlagError, match=why):
        read_flags(INIT_FLAGS, given)


@pytest.mark.parametrize(
    "flag", ["barrier_timeout_s=nan", "barrier_timeout_s=0", "port_tries=-1", "async_lagged_ratio_min=inf"]
)
def test_a_server_is_not_started_with_numbers_out_of_range(flag: str) -> None:
    name, _, _ = flag.partition("=")
    with pytest.raises(FlagError, match=f"flag --{name}: expected 0.* to .*, got"):
        read_flags(PSERVER_FLAGS, parse_arguments(PSERVER_FLAGS, [f"--{flag}"]))


def test_the_last_port_may_be_the_last_there_is() -> None:
    assert read_flags(INIT_FLAGS, {"port": 65534, "ports_num": 2})["ports_num"] == 2


def test_the_period_of_a_trainers_log_is_told_as_a_flag_with_an_effect() -> None:
    assert not INIT_FLAGS["log_period"].ignored


def test_defaults_are_those_of_the_documents() -> None:
    values = read_flags(PSERVER_FLAGS, {})
    assert values["port"] == 7164
    assert (values["ports_num"], values["ports_num_for_sparse"], values["num_gradient_servers"]) == (1, 0, 1)


@pytest.mark.parametrize("table", [INIT_FLAGS, PSERVER_FLAGS])
def test_help_names_every_flag(table: dict[str, object]) -> None:
    text = describe(table)  # type: ignore[arg-type]
    assert [name for name in table if name not in text] == []


def test_every_flag_with_an_effect_says_what_it_is() -> None:
    silent = [
        name
        for table in (INIT_FLAGS, PSERVER_FLAGS)
        for name, flag in table.items()
        if not flag.ignored and not flag.about
    ]
    assert silent == []
