# SPDX-License-Identifier: Apache-2.0
"""Parameter servers begin with what trainers load or set between their startup program and their first step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import RunError
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob, built, halves

STEPS, BATCH, WORDS = 3, 8, 40
Load = Callable[[fluid.Executor, fluid.Program], None]


def net(is_distributed: bool = False, is_sparse: bool = True) -> Callable[[], Any]:
    """A bag of words into a layer that is cut over servers."""

    def made() -> Any:
        # Slices of a constant are what slices of the whole are, which those of random numbers are not.
        same = fluid.initializer.Constant(0.03)
        words = fluid.layers.data("words", [1], dtype="int64")
        table = fluid.ParamAttr("table", initializer=same)
        rows = fluid.layers.embedding(
            words, [WORDS, 8], is_sparse=is_sparse, is_distributed=is_distributed, param_attr=table
        )
        hidden = fluid.layers.fc(rows, 2600, param_attr=fluid.ParamAttr("wide", initializer=same), act="tanh")
        y = fluid.layers.data("y", [1])
        guess = fluid.layers.fc(hidden, 1, param_attr=same)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
        optimizer = fluid.optimizer.SGD(0.05) if is_distributed else fluid.optimizer.Adam(0.01)
        optimizer.minimize(loss)
        return loss

    return made


def batches() -> list[Feed]:
    rng = np.random.default_rng(5)
    return [
        {"words": rng.integers(0, WORDS, (BATCH, 1)), "y": rng.standard_normal((BATCH, 1)).astype("float32")}
        for _ in range(STEPS)
    ]


def loading(job: TranspiledJob, trainer: int, load: Load | None, steps: int = STEPS) -> list[float]:
    """Be a trainer that loads after its startup program; return its losses."""
    _, main, startup, loss = job.transpiled(trainer)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(scope), contextlib.closing(exe):
        exe.run(startup)
        if load is not None:
            load(exe, main)
        return [
            float(exe.run(main, halves(feed, trainer, job.trainers), [loss])[0][0])
            for feed in batches()[:steps]
        ]


def trained(folder: Path, made: Callable[[], Any], load: Load) -> list[float]:
    """Save a model that was trained for two steps, and return the losses of one that goes on with what is loaded."""
    main, startup, loss = built(made)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for feed in batches()[:2]:
            exe.run(main, feed, [loss])
        fluid.io.save_persistables(exe, str(folder), main)
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        load(exe, main)
        return [float(exe.run(main, feed, [loss])[0][0]) for feed in batches()]


def load_vars(folder: Path) -> Load:
    def load(exe: fluid.Executor, program: fluid.Program) -> None:
        fluid.io.load_vars(exe, str(folder), program, predicate=lambda each: each.name in ("table", "wide"))

    return load


def setting(name: str, shape: tuple[int, ...]) -> Load:
    def load(exe: fluid.Executor, program: fluid.Program) -> None:
        value = np.linspace(-0.5, 0.5, int(np.prod(shape)), dtype="float32").reshape(shape)
        handle = fluid.global_scope().find_var(name)
        assert handle is not None
        handle.get_tensor().set(value, fluid.CPUPlace())

    return load


FORMS: dict[str, Callable[[Path], Load]] = {
    "load_params": lambda folder: lambda exe, program: fluid.io.load_params(exe, str(folder), program),
    "load_persistables": lambda folder: (
        lambda exe, program: fluid.io.load_persistables(exe, str(folder), program)
    ),
    "load_vars": load_vars,
    "set a sparse table": lambda folder: setting("table", (WORDS, 8)),
    "set a parameter that is cut": lambda folder: setting("wide", (8, 2600)),
    "set the learning rate": lambda folder: setting("learning_rate_0", (1,)),
}


@pytest.mark.parametrize("everywhere", [True, False], ids=["all trainers", "trainer 0"])
@pytest.mark.parametrize("form", list(FORMS))
def test_two_trainers_follow_one_process_from_what_was_loaded(
    form: str, everywhere: bool, tmp_path: Path
) -> None:
    load = FORMS[form](tmp_path)
    expected = trained(tmp_path, net(), load)
    job = TranspiledJob(net())
    found = job.run(lambda at: loading(job, at, load if everywhere or not at else None))
    assert np.mean(found, axis=0) == pytest.approx(expected, rel=2e-4)


def test_a_distributed_table_begins_with_the_rows_that_were_set(tmp_path: Path) -> None:
    load = setting("table", (WORDS, 8))
    main, startup, loss = built(net(is_distributed=True))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        load(exe, main)
        expected = [float(exe.run(main, feed, [loss])[0][0]) for feed in batches()[:1]]
    job = TranspiledJob(net(is_distributed=True))
    found = job.run(lambda at: loading(job, at, load if not at else None, steps=1))
    assert np.mean(found, axis=0) == pytest.approx(expected, rel=2e-4)


def test_what_another_trainer_alone_sets_stops_the_job_with_its_name() -> None:
    job = TranspiledJob(net())
    with pytest.raises(RunError, match=r"'wide' was set on trainer 1 .*trainer 0"):
        job.run(
            lambda at: loading(job, at, setting("wide", (8, 2600)) if at else None, steps=0 if not at else 1)
        )


def test_asynchronous_servers_begin_with_what_trainer_0_set() -> None:
    load = setting("wide", (8, 2600))
    job = TranspiledJob(net(), trainers=1, sync=False)
    (found,) = job.run(lambda at: loading(job, at, load))
    main, startup, loss = built(net())
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        load(exe, main)
        expected = [float(exe.run(main, feed, [loss])[0][0]) for feed in batches()]
    assert found == pytest.approx(expected, rel=2e-4)
