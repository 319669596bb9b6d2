# SPDX-License-Identifier: Apache-2.0
"""Programs of trainers and servers have the original's blocks and names; how parameters are cut; the manual's calls."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.program.operator import OpRole
from paddle.fluid.transpiler import HashName, RoundRobin, slice_variable
from tests.runtime.fluid.transpiled_net import EPS, net, server_blocks, transpiled, types

FORWARD = ["mul", "elementwise_add", "elementwise_sub", "square", "mean"]

SENDERS = (".trainer_0", ".trainer_1")

BACKWARD = ["fill_constant", "mean_grad", "square_grad", "elementwise_sub_grad", "elementwise_add_grad"]


def test_a_trainer_sends_each_gradient_when_it_is_there_and_receives_at_the_end() -> None:
    net()
    trainer = transpiled().get_trainer_program(wait_port=False)
    assert types(trainer) == [
        *FORWARD,
        *BACKWARD,
        *(
            "send",
            "mul_grad",
            "split_byref",
            "send",
            "send_barrier",
            "recv",
            "recv",
            "fetch_barrier",
            "concat",
        ),
    ]
    assert types(fluid.default_startup_program()) == [
        *("fill_constant", "fill_constant", "uniform_random"),
        *("recv", "recv", "fetch_barrier", "concat"),
    ]
    block = trainer.global_block()
    sends = [op for op in block.ops if op.type == "send"]
    assert sends[0].inputs["X"] == ("fc_b@GRAD.trainer_0",)
    assert sends[1].inputs["X"] == ("fc_w@GRAD.block0.trainer_0", "fc_w@GRAD.block1.trainer_0")
    assert sends[1].attrs["epmap"] == (EPS[1], EPS[0])
    split = next(op for op in block.ops if op.type == "split_byref")
    assert split.attrs["sections"] == (500, 500)
    assert split.attrs["op_role"] == OpRole.DIST
    assert all(op.attrs["op_role"] == OpRole.RPC for op in sends)
    assert block.var("fc_w.block1").shape == (500, 1000)


def test_an_asynchronous_trainer_has_no_barriers_and_no_names_of_its_own() -> None:
    net()
    trainer = transpiled(sync_mode=False).get_trainer_program(wait_port=False)
    assert types(trainer) == [
        *FORWARD,
        *BACKWARD,
        *("send", "mul_grad", "split_byref", "send", "recv", "recv", "concat"),
    ]
    sends = [op.inputs["X"] for op in trainer.global_block().ops if op.type == "send"]
    assert sends == [("fc_b@GRAD",), ("fc_w@GRAD.block0", "fc_w@GRAD.block1")]


def test_large_blocks_leave_parameters_whole() -> None:
    net()
    t = transpiled(fluid.DistributeTranspilerConfig(min_block_size=1048576))
    assert types(t.get_trainer_program(wait_port=False)) == [
        *FORWARD,
        *BACKWARD,
        *("send", "mul_grad", "send", "send_barrier", "recv", "recv", "fetch_barrier"),
    ]
    startups = [types(t.get_startup_program(ep)) for ep in EPS]
    assert startups == [["fill_constant"] * 2, ["fill_constant", "uniform_random"]]


def test_a_server_merges_averages_and_updates_each_slice_in_a_block() -> None:
    net()
    t = transpiled()
    program, startup = t.get_pserver_programs(EPS[0])
    assert server_blocks(t, 0) == [["listen_and_serv"], ["sum", "scale", "sgd"], ["sum", "scale", "sgd"]]
    assert types(startup) == ["fill_constant", "fill_constant", "uniform_random"]
    assert startup.global_block().var("fc_w.block1").shape == (500, 1000)
    assert startup.global_block().ops[2].attrs["shape"] == (500, 1000)
    serve = program.global_block().ops[0]
    assert serve.attrs["optimize_blocks"] == (1, 2)
    assert serve.attrs["Fanin"] == 2
    assert serve.attrs["grad_to_block_id"] == ("fc_b@GRAD:1", "fc_w@GRAD.block1:2")
    assert set(serve.inputs["X"]) == {
        f"{grad}.trainer_{at}" for grad in ("fc_b@GRAD", "fc_w@GRAD.block1") for at in range(2)
    }
    assert program.blocks[1].ops[1].attrs["scale"] == 0.5


def test_an_asynchronous_server_only_updates() -> None:
    net()
    assert server_blocks(transpiled(sync_mode=False), 0) == [["listen_and_serv"], ["sgd"], ["sgd"]]


@pytest.mark.parametrize(
    ("make", "ops"),
    [
        (lambda: fluid.optimizer.Adam(0.1), ["adam", "scale", "scale"]),
        (lambda: fluid.optimizer.RMSProp(0.1), ["rmsprop"]),
        (lambda: fluid.optimizer.Momentum(0.1, 0.9), ["momentum"]),
        (
            lambda: fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(0.1)),
            ["scale", "sum", "momentum"],
        ),
    ],
)
def test_a_servers_state_has_the_slices_size(make: Callable[[], Any], ops: list[str]) -> None:
    net(make)
    t = transpiled()
    assert server_blocks(t, 0)[1:] == [["sum", "scale", *ops]] * 2
    startup = t.get_startup_program(EPS[0])
    states = [v for v in startup.list_vars() if v.name.startswith("fc_w_") and v.shape != (1,)]
    assert {state.shape for state in states} == {(500, 1000)}


def test_clips_and_decay_run_on_the_server_after_averaging() -> None:
    attr = fluid.ParamAttr(
        regularizer=fluid.regularizer.L2Decay(0.1), gradient_clip=fluid.clip.GradientClipByValue(1.0)
    )
    net(w_attr=attr)
    t = transpiled()
    assert server_blocks(t, 0)[1:] == [
        ["sum", "scale", "sgd"],
        ["sum", "scale", "clip", "scale", "sum", "sgd"],
    ]
    assert types(t.get_trainer_program(wait_port=False)).count("clip") == 0


def test_the_learning_rate_is_computed_on_the_server_in_a_block_before_all_others() -> None:
    net(lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(1.0, 10, 0.5, staircase=True)))
    t = transpiled()
    blocks = server_blocks(t, 0)
    assert blocks[1] == [
        *("increment", "cast", "fill_constant", "elementwise_div", "floor"),
        *("fill_constant", "elementwise_pow", "fill_constant", "elementwise_mul"),
    ]
    assert len(blocks) == 4
    assert "increment" not in types(t.get_trainer_program(wait_port=False))


def test_cases_of_the_learning_rate_take_their_blocks_along() -> None:
    net(lambda: fluid.optimizer.SGD(fluid.layers.piecewise_decay([10, 20], [1.0, 0.5, 0.1])))
    blocks = server_blocks(transpiled(), 0)
    case = ["fill_constant", "fill_constant", "less_than", "logical_not"]
    assert blocks[1] == [
        *("increment", "cast", *case, "conditional_block"),
        *(*case, "logical_and", "logical_and", "conditional_block", "fill_constant", "conditional_block"),
    ]
    assert blocks[2:5] == [["assign"]] * 3
    assert len(blocks) == 7


def test_a_server_without_parameters_has_one_empty_block() -> None:
    x = fluid.layers.data("x", [1000])
    out = fluid.layers.fc(x, 1000, param_attr="fc_w", bias_attr=False)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))
    t = transpiled(fluid.DistributeTranspilerConfig(slice_var_up=False))
    assert server_blocks(t, 1) == [["listen_and_serv"], []]


def test_settings_may_be_given_in_their_older_place() -> None:
    net()
    np.random.seed(4)
    expected = np.random.random(3)
    np.random.seed(4)
    t = transpiled(slice_var_up=False, split_method=HashName)
    assert "split_byref" not in types(t.get_trainer_program(wait_port=False))
    np.testing.assert_array_equal(np.random.random(3), expected)


def test_a_sparse_gradient_is_split_by_rows() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [10000, 8], is_sparse=True, param_attr="table")
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(rows))
    t = transpiled()
    trainer = t.get_trainer_program(wait_port=False)
    split = next(op for op in trainer.global_block().ops if op.type == "split_selected_rows")
    assert split.attrs["height_sections"] == (5000, 5000)
    assert server_blocks(t, 1)[1:] == [["sum", "scale", "sgd"]]
    (serve,) = t.get_pserver_program(t.pserver_endpoints[1]).global_block().ops
    assert serve.attrs["sparse_grad_to_param"] == ("table@GRAD.block1:table.block1",)


def test_the_overview_adds_up_to_the_whole() -> None:
    net()
    t = transpiled()
    parts = [each for each in t.vars_overview.distributed_vars if each.origin.name == "fc_w"]
    assert sum(int(np.prod(each.slice.shape)) for each in parts) == 1000 * 1000
    assert [(each.block_id, each.offset, each.endpoint) for each in parts] == [
        (0, 0, EPS[1]),
        (1, 500000, EPS[0]),
    ]
    assert t.param_grad_ep_mapping[EPS[0]]["params"] == ["fc_b", "fc_w.block1"]
    grouped = t.vars_overview.get_distributed_vars_by_vtypes(["Param"], groupby=True)
    assert {name: len(each) for name, each in grouped.items()} == {"fc_b": 1, "fc_w": 2}


def test_a_server_declares_parameters_then_the_gradients_of_each_and_its_startup_program_declares_them_too() -> (
    None
):
    net()
    program, startup = transpiled().get_pserver_programs(EPS[0])
    grads = [f"{name}{end}" for name in ("fc_b@GRAD", "fc_w@GRAD.block1") for end in ("", *SENDERS)]
    expected = ["fc_b", "fc_w.block1", *grads, "learning_rate_0"]
    assert list(program.global_block().vars) == list(startup.global_block().vars) == expected


def test_attributes_are_lists_and_bodies_are_blocks() -> None:
    net()
    t = transpiled()
    program = t.get_pserver_program(EPS[0])
    serve: Any = program.global_block().ops[0]
    assert serve.all_attrs()["optimize_blocks"] == serve.attr("optimize_blocks") == program.blocks[1:]
    assert serve.attr("grad_to_block_id") == ["fc_b@GRAD:1", "fc_w@GRAD.block1:2"]
    ops: Any = t.origin_program.global_block().ops
    (barrier,) = (op for op in ops if op.type == "send_barrier")
    assert barrier.attr("endpoints") == EPS


class Named(SimpleNamespace):
    name: str
    shape: tuple[int, ...]


@pytest.mark.parametrize(
    ("shape", "servers", "least", "sizes"),
    [
        ((3, 5), 10, 1024, [15]),
        ((1024,), 10, 1024, [1024]),
        ((28, 784), 10, 1024, [2352] * 9 + [784]),
        ((8, 1020), 10, 1024, [2040] * 4),
        ((800, 10), 10, 1024, [1150] * 6 + [1100]),
        ((28, 784), 10, 8192, [10976] * 2),
        ((8, 1020), 10, 8192, [8160]),
        ((800, 10), 10, 8192, [8000]),
        ((6, 33, 33, 33), 10, 8192, [35937] * 6),
        ((1000, 1000), 2, 8192, [500000] * 2),
        ((10000, 1), 2, 8192, [10000]),
        ((16384,), 2, 8192, [8192] * 2),
        ((5, 5000), 2, 8192, [15000, 10000]),
        ((3, 8192), 4, 8192, [8192] * 3),
        ((7, 4096), 3, 8192, [12288, 12288, 4096]),
    ],
)
def test_slices_are_whole_rows_of_a_least_size(
    shape: tuple[int, ...], servers: int, least: int, sizes: list[int]
) -> None:
    expected = [f"v:{index}:{size}" for index, size in enumerate(sizes)]
    assert slice_variable([Named(name="v", shape=shape)], servers, least) == expected


def test_hashed_names_send_a_gradient_to_its_parameter() -> None:
    dispatcher = HashName([f"127.0.0.1:{port}" for port in range(6170, 6180)])
    for name in ("fc_0.w_0", "fc_0.b_0", "emb.block3"):
        base, _, block = name.partition(".block")
        grad = f"{base}@GRAD" + (f".block{block}" if block else "")
        where = dispatcher.dispatch([Named(name=name), Named(name=grad), Named(name=f"{grad}.trainer_4")])
        assert len(set(where)) == 1


def test_round_robin_goes_on_where_it_ended() -> None:
    dispatcher = RoundRobin(EPS)
    three = [Named(name=name) for name in "abc"]
    assert dispatcher.dispatch(three) == [EPS[0], EPS[1], EPS[0]]
    assert dispatcher.dispatch(three[:1]) == [EPS[1]]
    dispatcher.reset()
    assert dispatcher.dispatch(three[:1]) == [EPS[0]]


def train_net() -> fluid.framework.Variable:
    words = fluid.layers.data("words", [1], dtype="int64")
    emb = fluid.layers.embedding(words, size=[5000, 16], is_sparse=True)
    out = fluid.layers.fc(fluid.layers.fc(emb, 64, act="tanh"), 1)
    loss = fluid.layers.mean(out)
    fluid.optimizer.Adam(learning_rate=1e-3).minimize(loss)
    return loss


def test_both_roles_get_their_programs_after_memory_optimize() -> None:
    train_net()
    pserver_endpoints = "192.168.1.1:6170,192.168.1.2:6170"
    trainers = 4
    programs = {}
    for role in ("PSERVER", "TRAINER"):
        main, startup = fluid.default_main_program().clone(), fluid.default_startup_program().clone()
        with fluid.program_guard(main, startup):
            if role == "TRAINER":
                fluid.memory_optimize(fluid.default_main_program())
            t = fluid.DistributeTranspiler()
            t.transpile(0, pservers=pserver_endpoints, trainers=trainers)
            if role == "PSERVER":
                for current_endpoint in pserver_endpoints.split(","):
                    pserver_prog = t.get_pserver_program(current_endpoint)
                    pserver_startup = t.get_startup_program(current_endpoint, pserver_prog)
                    programs[current_endpoint] = (pserver_prog, pserver_startup)
            else:
                programs["trainer"] = (t.get_trainer_program(wait_port=False), startup)
    sent = {
        (name, endpoint)
        for op in programs["trainer"][0].global_block().ops
        if op.type == "send"
        for name, endpoint in zip(op.inputs["X"], op.attrs["epmap"], strict=True)  # type: ignore[call-overload]
    }
    heard = {
        (name, endpoint)
        for endpoint, (program, _) in programs.items()
        if endpoint != "trainer"
        for name in program.global_block().ops[-1].inputs["X"]
        if name.endswith(".trainer_0")
    }
    assert sent == heard
    assert len(sent) == 6  # the table's two slices, two weights and two biases


@pytest.mark.parametrize("settings", [{"sync_mode": False}, {"slice_var_up": False}])
def test_the_manuals_settings_are_taken_by_transpile(settings: dict[str, bool]) -> None:
    train_net()
    t = fluid.DistributeTranspiler()
    t.transpile(0, pservers="127.0.0.1:6170,127.0.0.1:6171", trainers=2, **settings)  # type: ignore[arg-type]
    types = [op.type for op in t.get_trainer_program(wait_port=False).global_block().ops]
    assert ("send_barrier" in types) == settings.get("sync_mode", True)
    assert ("split_selected_rows" in types) == settings.get("slice_var_up", True)


def test_the_manuals_distributed_embedding_lies_on_servers_alone() -> None:
    words = fluid.layers.data("words", [1], dtype="int64")
    emb = fluid.layers.embedding(is_distributed=True, input=words, size=[10, 4], is_sparse=True)
    fluid.optimizer.Adam().minimize(fluid.layers.mean(fluid.layers.fc(emb, 2)))
    t = fluid.DistributeTranspiler()
    t.transpile(0, pservers="127.0.0.1:6170,127.0.0.1:6171", trainers=2)
    types = [op.type for op in t.get_trainer_program(wait_port=False).global_block().ops]
    assert {"split_ids", "prefetch", "merge_ids"} <= set(types)
    assert not {"lookup_table", "adam", "sgd"} & set(types)
    for endpoint in t.pserver_endpoints:
        blocks = t.get_pserver_program(endpoint).blocks
        assert "lookup_sparse_table" in [op.type for block in blocks for op in block.ops]


@pytest.mark.parametrize("distributed", [False, True])
def test_a_test_copy_of_a_trainers_program_sends_nothing_and_still_fetches_rows(distributed: bool) -> None:
    words = fluid.layers.data("words", [1], dtype="int64")
    emb = fluid.layers.embedding(words, [5000, 16], is_sparse=True, is_distributed=distributed)
    loss = fluid.layers.mean(fluid.layers.fc(emb, 1))
    optimizer = fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 10, 0.9))
    optimizer.minimize(loss)
    t = fluid.DistributeTranspiler()
    t.transpile(0, pservers=",".join(EPS), trainers=2)
    copy = t.get_trainer_program(wait_port=False).clone(for_test=True)
    lookup = ["split_ids", "prefetch", "merge_ids"] if distributed else ["distributed_lookup_table"]
    assert [op.type for op in copy.global_block().ops] == [*lookup, "mul", "elementwise_add", "mean"]


def test_a_test_copy_of_a_collective_trainers_program_has_the_forward_pass_alone() -> None:
    loss = train_net()
    config = fluid.DistributeTranspilerConfig()
    config.mode = "nccl2"
    fluid.DistributeTranspiler(config).transpile(0, trainers=",".join(EPS), current_endpoint=EPS[0])
    copy = fluid.default_main_program().clone(for_test=True)
    assert copy.global_block().ops[-1].writes == (loss.name,)
