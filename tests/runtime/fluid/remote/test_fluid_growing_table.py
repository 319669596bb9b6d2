# SPDX-License-Identifier: Apache-2.0
"""A distributed embedding: its operators, and training on ids that no table of known height could have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import FluidError
from paddle.graph.errors import ExecutionError
from paddle.pserver.sparse.initial import Initial
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob, built, halves

EPS = ["127.0.0.1:6174", "127.0.0.1:6175"]
BEGIN = fluid.initializer.Uniform(-0.1, 0.1, seed=5)
KNOWN, WIDTH, STEPS, BATCH = 300, 8, 4, 8


def types(program: fluid.Program, block: int = 0) -> list[str]:
    return [op.type for op in program.blocks[block].ops]


def three_embeddings() -> Any:
    def pooled(name: str, table: str, is_distributed: bool) -> Any:
        ids = fluid.layers.data(name, [1], dtype="int64", lod_level=1)
        attr = fluid.ParamAttr(name=table)
        rows = fluid.layers.embedding(ids, [10_000, 500], True, is_distributed, param_attr=attr)
        return fluid.layers.sequence_pool(rows, "average")

    parts = [pooled("title", "shared_w", True), pooled("brand", "shared_w", True)]
    parts.append(pooled("profile", "profile_emb", False))
    guess = fluid.layers.fc(fluid.layers.concat(parts, axis=1), 2, param_attr="fc_w", bias_attr="fc_b")
    label = fluid.layers.data("label", [1], dtype="int64")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(guess, label))
    fluid.optimizer.Adam(0.003).minimize(loss)
    return loss


def transpiled(net: Callable[[], Any], sync: bool = True) -> tuple[fluid.DistributeTranspiler, fluid.Program]:
    main, startup, _ = built(net)
    t = fluid.DistributeTranspiler()
    t.transpile(0, main, ",".join(EPS), 2, sync, startup)
    return t, startup


def test_a_trainer_splits_ids_fetches_and_merges_rows_and_sends_split_gradients() -> None:
    t, startup = transpiled(three_embeddings)
    trainer = t.get_trainer_program(wait_port=False)
    assert types(trainer) == [
        *("split_ids", "prefetch", "merge_ids", "sequence_pool", "sequence_pool"),
        *(
            "distributed_lookup_table",
            "sequence_pool",
            "concat",
            "mul",
            "elementwise_add",
            "cross_entropy",
            "mean",
        ),
        *(
            "fill_constant",
            "mean_grad",
            "cross_entropy_grad",
            "elementwise_add_grad",
            "send",
            "mul_grad",
            "send",
        ),
        *("concat_grad", "sequence_pool_grad", "lookup_table_grad", "split_selected_rows", "send"),
        *("sequence_pool_grad", "lookup_table_grad", "sequence_pool_grad", "lookup_table_grad"),
        *("sum", "split_ids", "send", "send_barrier", "recv", "recv", "fetch_barrier"),
    ]
    assert types(startup) == [
        *(["fill_constant"] * 14 + ["uniform_random"] * 2),
        *("recv", "recv", "recv", "fetch_barrier", "concat", "fake_init"),
    ]
    sent = [op.inputs["X"] for op in trainer.global_block().ops if op.type == "send"]
    assert ("shared_w@GRAD.trainer_0.pserver_0", "shared_w@GRAD.trainer_0.pserver_1") in sent
    prefetch = next(op for op in trainer.global_block().ops if op.type == "prefetch")
    assert prefetch.inputs["X"] == ("prefetch_compress_in_tmp_0", "prefetch_compress_in_tmp_1")
    assert prefetch.attrs["epmap"] == tuple(EPS)
    assert (trainer._distributed_lookup_table, t.table_name) == ("shared_w", "shared_w")
    assert t.has_distributed_lookup_table


@pytest.mark.parametrize(("sync", "update"), [(True, ["sum", "sgd"]), (False, ["sgd"])])
def test_a_server_has_blocks_that_update_look_up_and_save_its_rows(sync: bool, update: list[str]) -> None:
    t, _ = transpiled(three_embeddings, sync)
    program, startup = t.get_pserver_programs(EPS[1])
    (serve,) = program.global_block().ops
    table = serve.attrs["optimize_blocks"][-1]  # type: ignore[index]
    assert types(program, table) == update
    assert types(program, table + 1) == ["lookup_sparse_table"]
    assert types(program, table + 2) == ["save"]
    assert program.num_blocks == table + 3
    assert serve.attrs["prefetch_var_name_to_block_id"] == (f"prefetch_compress_in_tmp_1:{table + 1}",)
    assert serve.attrs["checkpint_block_id"] == table + 2
    variable = program.global_block().var("shared_w")
    assert (variable.shape, variable.type) == ((5000, 500), fluid.core.VarDesc.VarType.SELECTED_ROWS)
    assert program.global_block().var("kLookupTablePath").type == fluid.core.VarDesc.VarType.RAW
    assert types(startup).count("fake_init") == 1


def spread(rows: np.ndarray) -> np.ndarray:
    """Return ids all over int64, negative ones too."""
    return (rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def clicks(
    is_distributed: bool,
    height: int,
    is_constant: bool = False,
    rule: Callable[[Any], Any] = fluid.optimizer.SGD,
    table_rate: float | None = None,
    begin: Any = None,
) -> Callable[[], Any]:
    """Two bags of features and numbers; whether it was clicked."""

    def bag(name: str) -> Any:
        ids = fluid.layers.data(name, [1], dtype="int64", lod_level=1)
        # The servers add the gradients of the table, and take the mean of all others.
        rate = table_rate or (1.0 if is_distributed else 2.0)
        attr = fluid.ParamAttr(name="features", initializer=begin or BEGIN, learning_rate=rate)
        rows = fluid.layers.embedding(ids, [height, WIDTH], True, is_distributed, param_attr=attr)
        return fluid.layers.sequence_pool(rows, "sum")

    def net() -> Any:
        numbers, click = fluid.layers.data("numbers", [4]), fluid.layers.data("click", [1])
        hidden = fluid.layers.fc([bag("site"), bag("user"), numbers], 16, act="relu")
        guess = fluid.layers.fc(hidden, 1)
        loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(guess, click))
        eta = 0.5 if is_constant else fluid.layers.exponential_decay(0.5, 2, 0.7)
        rule(eta).minimize(loss)
        return loss

    return net


def click_batches() -> list[Feed]:
    rng = np.random.default_rng(4)
    made = []
    for _ in range(STEPS):
        feed: Feed = {"numbers": rng.standard_normal((BATCH, 4)).astype("float32")}
        feed["click"] = rng.choice([0.0, 1.0], (BATCH, 1)).astype("float32")
        for name in ("site", "user"):
            lengths = [3, 1, 2, 4] * (BATCH // 4)
            feed[name] = (rng.integers(0, KNOWN, (sum(lengths), 1)), lengths)
        made.append(feed)
    return made


def entered(feed: Feed, ids: Callable[[np.ndarray], np.ndarray]) -> Feed:
    return {
        name: fluid.create_lod_tensor(ids(value[0]), [value[1]], fluid.CPUPlace())
        if isinstance(value, tuple)
        else value
        for name, value in feed.items()
    }


@pytest.fixture(scope="module")
def on_one_machine() -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of one machine whose table begins with the rows of spread ids; first values of all else."""
    main, startup, loss = built(clicks(is_distributed=False, height=KNOWN))
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    first = {name: np.array(scope.get(name)) for name in scope.names()}
    scope.get("features")[...] = Initial.uniform(-0.1, 0.1, 5).rows(spread(np.arange(KNOWN)), WIDTH)
    feeds = [entered(feed, lambda ids: ids) for feed in click_batches()]
    return [float(exe.run(main, feed, [loss], scope=scope)[0][0]) for feed in feeds], first


@pytest.mark.parametrize(
    ("places", "by_itself"),
    [(0, False), (2, False), (0, True)],
    ids=["Executor", "2 places", "ParallelExecutor"],
)
def test_two_trainers_and_two_servers_follow_one_machine_on_ids_from_all_over_int64(
    monkeypatch: pytest.MonkeyPatch,
    on_one_machine: tuple[list[float], dict[str, np.ndarray]],
    places: int,
    by_itself: bool,
) -> None:
    monkeypatch.setenv("CPU_NUM", "4")
    expected, first = on_one_machine
    job = TranspiledJob(clicks(is_distributed=True, height=10**11), first=first)
    parts = [[halves(entered(feed, spread), at, 2) for feed in click_batches()] for at in range(2)]
    losses = job.run(lambda at: job.train(at, parts[at], places, by_itself=by_itself))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected, rtol=1e-5)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-3)


@pytest.mark.parametrize(
    ("places", "by_itself"),
    [(1, False), (2, False), (None, False), (0, True)],
    ids=["1 place", "2 places", "CPU_NUM places", "ParallelExecutor"],
)
@pytest.mark.parametrize(
    "rule",
    [fluid.optimizer.SGD, fluid.optimizer.Adagrad, fluid.optimizer.Adam],
    ids=["sgd", "adagrad", "adam"],
)
@pytest.mark.parametrize(("sync", "trainers"), [(True, 2), (False, 1)], ids=["synchronous", "asynchronous"])
def test_trainers_with_several_places_train_a_distributed_embedding_as_the_executor_does(
    monkeypatch: pytest.MonkeyPatch,
    rule: Callable[[Any], Any],
    places: int | None,
    by_itself: bool,
    sync: bool,
    trainers: int,
) -> None:
    monkeypatch.setenv("CPU_NUM", "4")
    net = clicks(is_distributed=True, height=10**11, rule=rule)
    batches = [entered(feed, spread) for feed in click_batches()]
    parts = [[halves(feed, at, trainers) for feed in batches] for at in range(trainers)]
    plain, job = (TranspiledJob(net, trainers, sync=sync) for _ in range(2))
    expected = plain.run(lambda at: plain.train(at, parts[at]))
    losses = job.run(lambda at: job.train(at, parts[at], places, by_itself=by_itself))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


@dataclass
class Resumed(TranspiledJob):
    """Servers begin with the files of another job."""

    folder: Path = Path()

    def serve(self, endpoint: str) -> None:
        main, startup = self.transpiled(0)[0].get_pserver_programs(endpoint)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            fluid.io.load_persistables(exe, self.folder, main)
            exe.run(main)


def test_more_servers_go_on_from_what_was_saved(
    on_one_machine: tuple[list[float], dict[str, np.ndarray]], tmp_path: Path
) -> None:
    expected, first = on_one_machine
    net, batches = (
        clicks(is_distributed=True, height=10**11),
        [entered(feed, spread) for feed in click_batches()],
    )
    job = TranspiledJob(net, first=first)

    job.save_after(batches[:2], tmp_path)
    files = sorted((tmp_path / "__lookup_table__").iterdir())
    assert [each.name for each in files] == ["features_0", "features_1"]
    assert not (tmp_path / "features").exists()
    rest = Resumed(net, servers=3, folder=tmp_path)
    losses = rest.run(lambda at: rest.train(at, [halves(feed, at, 2) for feed in batches[2:]]))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected[2:], rtol=1e-5)


def test_asynchronous_trainers_learn_with_a_distributed_embedding() -> None:
    batches = [entered(feed, spread) for feed in click_batches()[:1] * 40]
    job = TranspiledJob(clicks(is_distributed=True, height=10**11, is_constant=True), sync=False)
    losses = job.run(lambda at: job.train(at, [halves(feed, at, 2) for feed in batches]))
    assert max(seen[-1] for seen in losses) < 0.3  # guessing: 0.69


def misused(
    two_tables: bool = False, padding_idx: int | None = None, is_sparse: bool = True, dtype: str = "float32"
) -> Callable[[], Any]:
    def net() -> Any:
        ids = fluid.layers.data("ids", [1], dtype="int64")
        attr = fluid.ParamAttr(name="table", initializer=BEGIN)
        rows = fluid.layers.embedding(
            ids, [10, 4], is_sparse, True, padding_idx, param_attr=attr, dtype=dtype
        )
        if two_tables:
            rows = rows + fluid.layers.embedding(ids, [10, 4], param_attr=attr)
        loss = fluid.layers.mean(fluid.layers.fc(rows, 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    return net


def test_a_test_copy_from_before_transpile_names_the_copy_to_use() -> None:
    main, startup, loss = built(misused())
    early = main.clone(for_test=True)
    fluid.DistributeTranspiler().transpile(0, main, "127.0.0.1:6174", 2, True, startup)
    block, exe, scope = startup.global_block(), fluid.Executor(), fluid.Scope()
    block.ops = [op for op in block.ops if op.type not in ("recv", "fetch_barrier")]
    exe.run(startup, scope=scope)
    why = pytest.raises(ExecutionError, match=r"on the parameter servers.*get_trainer_program\(\)\.clone")
    with pytest.warns(UserWarning, match="clone before minimize"), why:
        exe.run(early, {"ids": np.array([[3]])}, [loss], scope=scope)


@pytest.mark.parametrize(
    ("net", "why"),
    [
        (misused(two_tables=True), "all its lookups must be is_distributed and is_sparse"),
        (misused(is_sparse=False), "all its lookups must be is_distributed and is_sparse"),
        (misused(padding_idx=3), "padding_idx is not supported"),
        (misused(dtype="float64"), "'table' is distributed and has dtype float64"),
    ],
)
def test_a_distributed_embedding_that_servers_cannot_serve_is_refused(
    net: Callable[[], Any], why: str
) -> None:
    with pytest.raises(FluidError, match=why):
        transpiled(net)


@pytest.mark.parametrize(
    ("pservers", "trainers", "words"),
    [
        ("127.0.0.1:6174", 0, "at least 1 trainer"),
        ("", 1, "10.0.0.2:6174"),
        (["127.0.0.1:6174"], 1, "10.0.0.2:6174"),
    ],
)
def test_a_job_without_trainers_or_with_endpoints_that_are_no_text_is_refused(
    pservers: Any, trainers: int, words: str
) -> None:
    with pytest.raises(FluidError, match=words):
        fluid.DistributeTranspiler().transpile(0, fluid.Program(), pservers=pservers, trainers=trainers)
