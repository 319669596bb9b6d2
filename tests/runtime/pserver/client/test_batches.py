# SPDX-License-Identifier: Apache-2.0
"""Batches of rows: each row travels one time, the next batch's with the answer, and the bits are those of every row."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.spec import ParameterSpec
from paddle.pserver import Batch, Client, GrowingTable, Initial, OptimizerSpec, TensorOptions
from paddle.pserver.client.links import Links
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.sparse.distinct import DistinctIds, added_up, added_up_plainly
from paddle.pserver.sparse.index import grouped_plainly
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.wire.keys import WireKeys
from tests.runtime.pserver.neutral_job import client, run, server
from tests.runtime.pserver.pserver_process import KEY

ADAGRAD = OptimizerSpec("fluid_adagrad", learning_rate=0.1)
WIDTH, HEIGHT, STEPS = 8, 6000, 4
OPTIONS = {"emb": TensorOptions(sparse=True)}
IDS = np.random.default_rng(3).zipf(1.1, (STEPS + 1, 2, 900, 3)) % (1 << 40)


def model() -> dict[str, Any]:
    table = np.random.default_rng(1).standard_normal((HEIGHT, WIDTH)).astype(np.float32)
    grown = GrowingTable(WIDTH, Initial("normal", spread=0.5, seed=4))
    return {"emb": table, "grown": grown, "w": np.ones(3, np.float32)}


def ids_of(trainer: int, step: int) -> dict[str, np.ndarray]:
    ids = IDS[step, trainer]
    return {"grown": ids, "emb": ids % HEIGHT}


def gradient(found: np.ndarray, trainer: int, step: int) -> np.ndarray:
    drawn = np.random.default_rng((trainer, step)).standard_normal(found.shape).astype(np.float32)
    return drawn + np.float32(0.1) * found


def row_by_row(each: Client, trainer: int) -> dict[str, np.ndarray]:
    each.create(model(), ADAGRAD, OPTIONS)
    for step in range(STEPS):
        ids = ids_of(trainer, step)
        rows = {name: each.pull_rows(name, theirs) for name, theirs in ids.items()}
        each.push_pull({name: (ids[name], gradient(rows[name], trainer, step)) for name in rows}, {})
    each.barrier()
    return {name: each.pull_rows(name, theirs) for name, theirs in ids_of(0, 0).items()}


def by_batches(each: Client, trainer: int) -> dict[str, np.ndarray]:
    each.create(model(), ADAGRAD, OPTIONS)
    batches = each.batch(ids_of(trainer, 0))
    for step in range(STEPS):
        for batch in batches.values():
            found = batch.rows[batch.inverse]
            batch.grad = batch.total(gradient(found, trainer, step))
        following = each.batch(ids_of(trainer, step + 1))
        each.push_pull(batches, {}, ahead=following)
        assert all(batch.has_rows for batch in following.values())
        batches = following
    each.barrier()
    return {name: batch.rows[batch.inverse] for name, batch in each.batch(ids_of(0, 0)).items()}


@pytest.mark.parametrize("within_node", [True, False])
def test_batches_and_rows_of_the_next_one_with_the_answer_give_the_bits_of_single_requests(
    within_node: bool,
) -> None:
    results = []
    for work in (row_by_row, by_batches):
        with server(2, "--ports_num=2", "--ports_num_for_sparse=1") as process:
            results += run(process, 2, work, within_node=within_node)
    for name, expected in results[0].items():
        for found in results[1:]:
            np.testing.assert_array_equal(found[name].view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("count", [5000, 40_000], ids=["ten packets", "more than an answer's memory"])
def test_many_rows_come_and_the_memory_stays_shared(count: int) -> None:
    table = TableSpec(ParameterSpec("t", (1, 64), sparse=True), Initial("uniform", spread=1.0))
    ids = np.arange(count)  # 256 bytes each: a packet takes 128 kB, an answer 8 MB
    with server(1) as process:
        links = Links([*process.endpoints], WireKeys.asked("curve", KEY), 0.0, True, 60.0, None)
        with TrainerSession(links, 0, trainer_id=0, num_trainers=1) as session:
            session.configure([], ADAGRAD, {}, tables=[table])
            session.start_pass()
            first = session.pull_rows("t", ids)
            came = session.push_pull({}, 1, {}, {"t": ids[::-1].copy()})
            assert links.is_attached(0)
    np.testing.assert_array_equal(first, table.initial.rows(ids, 64))
    np.testing.assert_array_equal(came["t"], first[::-1])


@pytest.mark.parametrize("ids", [[], [5], [-7, 3, -7, 3, 3], [9, 2, 2**62, -(2**63), 2]])
def test_equal_ids_are_found_and_their_gradients_added_in_the_order_given(ids: list[int]) -> None:
    given = np.array(ids, np.int64)
    values = np.random.default_rng(1).standard_normal((len(ids), 3)).astype(np.float32)
    found = DistinctIds.of(given)
    np.testing.assert_array_equal(found.ids, np.unique(given))
    np.testing.assert_array_equal(found.ids[found.inverse], given)
    expected = np.zeros((len(found.ids), 3), np.float32)
    for at, value in zip(found.inverse.tolist(), values, strict=True):
        expected[at] += value
    np.testing.assert_array_equal(found.add_up(values), expected)


def test_both_forms_add_up_a_hundred_equal_ids_to_the_same_bits() -> None:
    rng = np.random.default_rng(2)
    ids, values = rng.integers(0, 9, 1000), rng.standard_normal((1000, 5)).astype(np.float32)
    _, distinct, order, starts = grouped_plainly(ids)
    which = np.argsort(distinct)
    sums = values, order, starts
    np.testing.assert_array_equal(added_up(sums, which), added_up_plainly(sums, which))


def test_a_batch_refuses_gradients_that_are_not_of_its_rows_and_the_client_goes_on() -> None:
    with server(1) as process, client(process, 0, 1) as each:
        each.create(model(), ADAGRAD, OPTIONS)
        batch = each.batch("grown", np.array([[7, 7], [3, 7]]))
        assert batch.ids.tolist() == [3, 7]
        before = batch.rows
        refused: dict[str, Any] = {
            r"of tensor grown: .*\(2, 8\) float32": lambda: setattr(batch, "grad", np.ones((4, 8))),
            r"expected \(2, 2, width\)": lambda: batch.total(np.ones((4, 8), np.float32)),
            "no sparse tensor is named 'w'; sparse tensors are emb, grown": lambda: each.batch("w", [1]),
            "gradient of tensor emb: .*got a batch of tensor grown": lambda: each.push({"emb": batch}),
            "two batches of tensor grown": lambda: each.push_pull({}, {}, ahead=[batch, batch]),
            "expected a batch from Client.batch, got int": lambda: each.push_pull({}, {}, ahead=[3]),  # type: ignore[list-item]
        }
        for says, act in refused.items():
            with pytest.raises(ConfigError, match=says):
                act()
        each.push({"grown": batch})  # without a gradient: the row is not made
        np.testing.assert_array_equal(each.pull_rows("grown", batch.ids), before)


def test_batches_are_gone_with_their_last_user() -> None:
    with server(1) as process, client(process, 0, 1) as each:
        each.create(model(), ADAGRAD, OPTIONS)
        gc.disable()  # their rows are large, and few objects are made: it would come late
        try:
            batches = each.batch({"grown": np.array([1, 2]), "emb": np.array([1])})
            gone = [weakref.ref(batch) for batch in batches.values()]
            batches.pop("emb")
            assert gone[1]() is None
            assert batches["grown"].rows.shape == (2, WIDTH)
            del batches
            assert gone[0]() is None
        finally:
            gc.enable()


def test_batches_of_one_tensor_are_pushed_together_as_their_sum() -> None:
    ids, more = np.array([1, 5, 1]), np.array([5, 8])

    def train(each: Client, together: bool) -> np.ndarray:
        each.create({"t": GrowingTable(2)}, ADAGRAD)
        if together:
            batches: list[Batch] = [each.batch("t", ids), each.batch("t", more)]
            for batch in batches:
                batch.grad = batch.total(np.ones((*batch.inverse.shape, 2), np.float32))
            each.push({"t": batches})
        else:
            both = np.concatenate((ids, more))
            each.push({"t": (both, np.ones((5, 2), np.float32))})
        return each.pull_rows("t", np.array([1, 5, 8]))

    found = []
    for together in (True, False):
        with server(1) as process, client(process, 0, 1) as each:
            found.append(train(each, together))
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] < 0).all()
