# SPDX-License-Identifier: Apache-2.0
"""Saved states of a distributed embedding's rows name their update rule, and another rule refuses them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import ModelFileError
from tests.runtime.fluid.remote.test_fluid_several_tables import EPS, OWN, RULES, Saved, parts, visits
from tests.runtime.fluid.transpiled_job import built

ADAM = "lazy_adam beta1 beta2 epsilon"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a job with lazy Adam."""
    folder = tmp_path_factory.mktemp("saved")
    job, feeds = Saved(visits(RULES["lazy adam"]), config=OWN, folder=folder), parts()
    job.run(lambda at: job.trained(at, feeds[at][:1], save=True))
    return folder


@pytest.fixture
def unnamed(saved: Path, tmp_path: Path) -> Path:
    """The same files, as earlier releases wrote them."""
    for path in saved.rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(saved)
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(path.read_bytes().removesuffix(f"rule {ADAM}\n".encode()))
    return tmp_path


def load(folder: Path, name: str, side: str) -> Any:
    """Load the files into a job with a rule; return the scope."""
    main, startup, _ = built(visits(RULES[name]))
    t = fluid.DistributeTranspiler(OWN)
    t.transpile(0, main, ",".join(EPS), 2, True, startup)
    program = t.get_pserver_program(EPS[0]) if side == "server" else t.get_trainer_program(wait_port=False)
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        fluid.io.load_persistables(fluid.Executor(fluid.CPUPlace()), folder, program)
    return scope


def test_a_file_ends_with_its_rule(saved: Path) -> None:
    files = [*(saved / "__lookup_table__").glob("*.states")]
    assert len(files) == 4
    assert all(path.read_bytes().endswith(f"rule {ADAM}\n".encode()) for path in files)


@pytest.mark.parametrize("side", ["server", "trainer"])
@pytest.mark.parametrize("name", ["ftrl", "adagrad", "sgd"])
def test_another_rule_refuses_it_by_name(saved: Path, name: str, side: str) -> None:
    """Ftrl has as many states as Adam."""
    with pytest.raises(ModelFileError, match=rf"lazy_adam\(beta1, beta2, epsilon\).*by (fluid_)?{name}\("):
        load(saved, name, side)


@pytest.mark.parametrize("side", ["server", "trainer"])
def test_a_file_without_a_rule_is_accepted_with_a_warning(
    unnamed: Path, saved: Path, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        scope = load(unnamed, "lazy adam", side)
    assert "does not name an update rule" in caplog.text
    expected = load(saved, "lazy adam", side)
    assert scope.get("sites").values.tolist() == expected.get("sites").values.tolist()


@pytest.mark.parametrize("name", ["adagrad", "sgd"])
def test_a_file_without_a_rule_is_refused_if_the_number_of_states_differs(unnamed: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match="20 columns per row and names no update rule"):
        load(unnamed, name, "server")


def test_an_unexpected_end_is_refused(unnamed: Path) -> None:
    path = unnamed / "__lookup_table__" / "sites_0.states"
    path.write_bytes(path.read_bytes() + b"rule lazy_adam beta1")
    with pytest.raises(ModelFileError, match=r"sites_0\.states is damaged: unexpected data"):
        load(unnamed, "lazy adam", "server")
