# SPDX-License-Identifier: Apache-2.0
"""A distributed embedding updated by the optimizer's rule follows one machine, and continues after a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.pserver.sparse.initial import Initial
from tests.runtime.fluid.remote.test_fluid_growing_table import (
    KNOWN,
    WIDTH,
    click_batches,
    clicks,
    entered,
    spread,
)
from tests.runtime.fluid.transpiled_job import TranspiledJob, built, halves

OWN = fluid.DistributeTranspilerConfig(table_rule="own")
RULES: dict[str, Callable[[Any], Any]] = {
    "sgd": fluid.optimizer.SGD,
    "adagrad": lambda rate: fluid.optimizer.Adagrad(rate, initial_accumulator_value=0.1),
    "adam": lambda rate: fluid.optimizer.Adam(rate, lazy_mode=True),
    "ftrl": lambda rate: fluid.optimizer.Ftrl(rate, l1=0.001, l2=0.01),
    "adadelta": fluid.optimizer.Adadelta,
}


def alone(rule: Callable[[Any], Any], lazy: bool) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of one machine whose table begins with the rows of spread ids, or with 0; first values of all else."""
    main, startup, loss = built(clicks(False, KNOWN, not lazy, rule, 1.0))
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    first = {name: np.array(scope.get(name)) for name in scope.names()}
    rows = Initial.uniform(-0.1, 0.1, 5).rows(spread(np.arange(KNOWN)), WIDTH)
    scope.get("features")[...] = rows if lazy else 0
    feeds = [entered(feed, lambda ids: ids) for feed in click_batches()]
    return [float(exe.run(main, feed, [loss], scope=scope)[0][0]) for feed in feeds], first


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam", "ftrl", "adadelta"])
def test_two_trainers_and_two_servers_follow_one_machine_by_each_rule(name: str) -> None:
    # On one machine Ftrl moves all rows: those without a gradient to 0 at first, and then where the rate changes.
    lazy = name != "ftrl"
    expected, first = alone(RULES[name], lazy)
    begin = None if lazy else fluid.initializer.Constant(0.0)
    net = clicks(True, 10**11, not lazy, RULES[name], 1.0, begin)
    job = TranspiledJob(net, first=first, config=OWN)
    parts = [[halves(entered(feed, spread), at, 2) for feed in click_batches()] for at in range(2)]
    losses = job.run(lambda at: job.train(at, parts[at]))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected, rtol=2e-5)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-3)


def test_the_servers_block_names_the_rule_and_its_numbers() -> None:
    main, startup, _ = built(clicks(True, 10**11, rule=RULES["adagrad"]))
    t = fluid.DistributeTranspiler(OWN)
    t.transpile(0, main, "127.0.0.1:6174", 2, True, startup)
    program = t.get_pserver_program("127.0.0.1:6174")
    (update,) = (op for block in program.blocks for op in block.ops if op.type == "update_sparse_table")
    hyper = dict(zip(update.attrs["hyper_names"], update.attrs["hyper_values"], strict=True))  # type: ignore[call-overload]
    assert (update.attrs["rule"], update.attrs["scale"]) == ("fluid_adagrad", 0.5)
    assert hyper == {"epsilon": pytest.approx(1e-6), "initial_accumulator_value": pytest.approx(0.1)}


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="table_rule: expected 'sgd' or 'own', got 'adam'"):
        fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(table_rule="adam"))
    main, startup, _ = built(clicks(True, 10**11, rule=lambda rate: fluid.optimizer.LarsMomentum(rate, 0.9)))
    with pytest.raises(ValueError, match="lars_momentum needs all rows"):
        fluid.DistributeTranspiler(OWN).transpile(0, main, "127.0.0.1:6174", 2, True, startup)
