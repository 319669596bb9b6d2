# SPDX-License-Identifier: Apache-2.0
"""Several distributed embeddings in one program follow one machine, and are saved and resumed to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.pserver.sparse.initial import Initial
from tests.runtime.fluid.remote.test_fluid_growing_table import entered, spread
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob, built, halves

OWN = fluid.DistributeTranspilerConfig(table_rule="own")
EPS = ["127.0.0.1:6174", "127.0.0.1:6175"]
KNOWN, STEPS, BATCH = 120, 6, 8
SEEDS = {"sites": (5, 0.1, 8), "users": (6, 0.2, 4)}
"""Table -> seed and bound of its first rows, and its width."""

RULES: dict[str, Callable[[Any], Any]] = {
    "sgd": fluid.optimizer.SGD,
    "adagrad": lambda rate: fluid.optimizer.Adagrad(rate, initial_accumulator_value=0.1),
    "lazy adam": lambda rate: fluid.optimizer.Adam(rate, lazy_mode=True),
    "ftrl": lambda rate: fluid.optimizer.Ftrl(rate, l1=0.001, l2=0.01),
}


def visits(
    rule: Callable[[Any], Any], is_distributed: bool = True, has_zeros: bool = False, has_rate: bool = False
) -> Callable[[], Any]:
    """The site and the one before come from one table, the user from another."""

    def bag(name: str, table: str) -> Any:
        seed, bound, width = SEEDS[table]
        begin = fluid.initializer.Uniform(-bound, bound, seed=seed)
        attr = fluid.ParamAttr(table, fluid.initializer.Constant(0.0) if has_zeros else begin)
        ids = fluid.layers.data(name, [1], dtype="int64", lod_level=1)
        height = 10**11 if is_distributed else KNOWN
        rows = fluid.layers.embedding(ids, [height, width], True, is_distributed, param_attr=attr)
        return fluid.layers.sequence_pool(rows, "sum")

    def net() -> Any:
        bags = [bag("user", "users"), bag("site", "sites"), bag("before", "sites")]
        numbers, click = fluid.layers.data("numbers", [4]), fluid.layers.data("click", [1])
        guess = fluid.layers.fc(fluid.layers.fc([*bags, numbers], 8, act="tanh"), 1)
        loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(guess, click))
        rule(fluid.layers.exponential_decay(0.2, 2, 0.8) if has_rate else 0.2).minimize(loss)
        return loss

    return net


def batches() -> list[Feed]:
    rng = np.random.default_rng(8)
    made = []
    for _ in range(STEPS):
        feed: Feed = {"numbers": rng.standard_normal((BATCH, 4)).astype("float32")}
        feed["click"] = rng.choice([0.0, 1.0], (BATCH, 1)).astype("float32")
        for name in ("site", "before", "user"):
            lengths = [2, 1, 3, 2] * (BATCH // 4)
            feed[name] = (rng.integers(0, KNOWN, (sum(lengths), 1)), lengths)
        made.append(feed)
    return made


def parts(trainers: int = 2) -> list[list[Feed]]:
    feeds = [entered(feed, spread) for feed in batches()]
    return [[halves(feed, at, trainers) for feed in feeds] for at in range(trainers)]


def alone(name: str) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of one machine whose tables begin with the rows of spread ids, or with 0; first values of all else."""
    has_zeros = name == "ftrl"  # which moves rows without a gradient too, on one machine
    main, startup, loss = built(visits(RULES[name], is_distributed=False, has_zeros=has_zeros))
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    first = {each: np.array(scope.get(each)) for each in scope.names()}
    for table, (seed, bound, width) in SEEDS.items() if not has_zeros else ():
        scope.get(table)[...] = Initial.uniform(-bound, bound, seed).rows(spread(np.arange(KNOWN)), width)
    feeds = [entered(feed, lambda ids: ids) for feed in batches()]
    return [float(exe.run(main, feed, [loss], scope=scope)[0][0]) for feed in feeds], first


@pytest.mark.parametrize("name", list(RULES))
def test_two_trainers_and_two_servers_follow_one_machine(name: str) -> None:
    expected, first = alone(name)
    job = TranspiledJob(visits(RULES[name], has_zeros=name == "ftrl"), first=first, config=OWN)
    feeds = parts()
    losses = job.run(lambda at: job.train(at, feeds[at]))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected, rtol=2e-5)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-3)


def test_an_asynchronous_trainer_follows_one_machine() -> None:
    expected, first = alone("adagrad")
    job = TranspiledJob(visits(RULES["adagrad"]), 1, sync=False, first=first, config=OWN)
    feeds = parts(1)
    (losses,) = job.run(lambda at: job.train(at, feeds[at]))
    np.testing.assert_allclose(losses, expected, rtol=2e-5)


def test_each_table_has_its_operators_and_blocks() -> None:
    main, startup, _ = built(visits(RULES["sgd"]))
    t = fluid.DistributeTranspiler()
    t.transpile(0, main, ",".join(EPS), 2, True, startup)
    trainer = t.get_trainer_program(wait_port=False)
    prefetches = [op for op in trainer.global_block().ops if op.type == "prefetch"]
    assert sorted(op.inputs["X"][0] for op in prefetches) == [
        "sites.prefetch_compress_in_tmp_0",
        "users.prefetch_compress_in_tmp_0",
    ]
    assert (t.table_name, trainer._distributed_lookup_table) == ("sites", "sites")
    program, begin = t.get_pserver_programs(EPS[1])
    (serve,) = program.global_block().ops
    *_, sites, looks, users, look, save = ([op.type for op in block.ops] for block in program.blocks)
    assert (sites, looks) == (users, look) == (["sum", "sgd"], ["lookup_sparse_table"])
    assert save == ["save", "save"]
    assert [each.rpartition(":")[0] for each in serve.attrs["prefetch_var_name_to_block_id"]] == [  # type: ignore[attr-defined]
        "sites.prefetch_compress_in_tmp_1",
        "users.prefetch_compress_in_tmp_1",
    ]
    assert serve.attrs["checkpint_block_id"] == program.num_blocks - 1
    assert [op.type for op in begin.global_block().ops].count("fake_init") == 2


@dataclass
class Saved(TranspiledJob):
    """A job that saves after some steps, or begins with what another one saved: on its servers, or on trainer 0."""

    folder: Path = Path()
    loads: str = ""

    def serve(self, endpoint: str) -> None:
        main, startup = self.transpiled(0)[0].get_pserver_programs(endpoint)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            if self.loads == "servers":
                fluid.io.load_persistables(exe, self.folder, main)
            exe.run(main)

    def trained(self, rank: int, feeds: list[Feed], save: bool = False) -> list[float]:
        _, main, startup, loss = self.transpiled(rank)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            if self.loads == "trainers":
                fluid.io.load_persistables(exe, self.folder, main)
            losses = [float(exe.run(main, feed, [loss])[0][0]) for feed in feeds]
            if save and rank == 0:
                fluid.io.save_persistables(exe, self.folder, main)
        exe.close()
        return losses


@pytest.mark.parametrize(
    ("name", "loads", "servers"),
    [
        ("lazy adam", "servers", 2),
        ("lazy adam", "trainers", 2),
        ("lazy adam", "servers", 3),
        ("ftrl", "servers", 2),
        ("adagrad", "trainers", 1),
        ("sgd", "trainers", 2),
    ],
)
def test_a_resumed_job_equals_one_that_was_not_interrupted(
    name: str, loads: str, servers: int, tmp_path: Path
) -> None:
    net, feeds = visits(RULES[name], has_rate=True), parts()
    straight = Saved(net, config=OWN)
    expected = straight.run(lambda at: straight.trained(at, feeds[at]))
    begun = Saved(net, config=OWN, folder=tmp_path)
    begun.run(lambda at: begun.trained(at, feeds[at][:3], save=True))
    states = ["sites_0.states", "sites_1.states"] if name != "sgd" else []
    found = sorted(each.name for each in (tmp_path / "__lookup_table__").glob("sites_*"))
    assert found == sorted(["sites_0", "sites_1", *states])
    rest = Saved(net, servers=servers, config=OWN, folder=tmp_path, loads=loads)
    losses = rest.run(lambda at: rest.trained(at, feeds[at][3:]))
    assert [each.tolist() for each in np.array(losses)] == [each[3:] for each in expected]
