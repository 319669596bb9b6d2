# SPDX-License-Identifier: Apache-2.0
"""Programs of trainers and servers have the blocks, names and operators that the original's have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.errors import PserverLost
from paddle.fluid.operator import OpRole
from paddle.fluid.transpiler import HashName, PSDispatcher

EPS = ["127.0.0.1:6174", "127.0.0.1:6175"]
SERVERS = ",".join(EPS)
FORWARD = ["mul", "elementwise_add", "elementwise_sub", "square", "mean"]
BACKWARD = ["fill_constant", "mean_grad", "square_grad", "elementwise_sub_grad", "elementwise_add_grad"]


def net(
    optimizer: Callable[[], Any] | None = None,
    w_attr: fluid.ParamAttr | None = None,
) -> None:
    x = fluid.layers.data("x", [1000])
    w_attr = w_attr or fluid.ParamAttr()
    w_attr.name = "fc_w"
    out = fluid.layers.fc(x, 1000, param_attr=w_attr, bias_attr=fluid.ParamAttr(name="fc_b"))
    y = fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    (optimizer or (lambda: fluid.optimizer.SGD(0.1)))().minimize(loss)


def transpiled(
    config: fluid.DistributeTranspilerConfig | None = None, trainer_id: int = 0, **settings: Any
) -> fluid.DistributeTranspiler:
    t = fluid.DistributeTranspiler(config)
    t.transpile(trainer_id, pservers=SERVERS, trainers=2, **settings)
    return t


def types(program: fluid.Program, block: int = 0) -> list[str]:
    return [op.type for op in program.blocks[block].ops]


def server_blocks(t: fluid.DistributeTranspiler, server: int) -> list[list[str]]:
    program = t.get_pserver_program(EPS[server])
    return [types(program, at) for at in range(program.num_blocks)]


def test_a_trainer_sends_each_gradient_when_it_is_there_and_receives_at_the_end() -> None:
    net()
    trainer = transpiled().get_trainer_program()
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
    trainer = transpiled(sync_mode=False).get_trainer_program()
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
    assert types(t.get_trainer_program()) == [
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
    assert types(t.get_trainer_program()).count("clip") == 0


def test_the_learning_rate_is_computed_on_the_server_in_a_block_before_all_others() -> None:
    net(lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(1.0, 10, 0.5, staircase=True)))
    t = transpiled()
    blocks = server_blocks(t, 0)
    assert blocks[1] == [
        *("increment", "cast", "fill_constant", "elementwise_div", "floor"),
        *("fill_constant", "elementwise_pow", "fill_constant", "elementwise_mul"),
    ]
    assert len(blocks) == 4
    assert "increment" not in types(t.get_trainer_program())


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
    assert "split_byref" not in types(t.get_trainer_program())
    np.testing.assert_array_equal(np.random.random(3), expected)


def test_a_sparse_gradient_is_split_by_rows() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [10000, 8], is_sparse=True, param_attr="table")
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(rows))
    t = transpiled()
    trainer = t.get_trainer_program()
    split = next(op for op in trainer.global_block().ops if op.type == "split_selected_rows")
    assert split.attrs["height_sections"] == (5000, 5000)
    assert server_blocks(t, 1)[1:] == [["sum", "scale", "sgd"]]


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


def test_users_can_place_parameters_themselves() -> None:
    class Last(PSDispatcher):
        def dispatch(self, varlist: Any) -> list[str]:
            return [self.eps[-1]] * len(varlist)

    net()
    t = transpiled(fluid.DistributeTranspilerConfig(split_method=Last, slice_var_up=False))
    assert server_blocks(t, 0) == [["listen_and_serv"], []]


def test_collective_mode_adds_the_meeting_to_the_startup_program() -> None:
    net()
    main = types(fluid.default_main_program())
    t = fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(mode="nccl2"))
    t.transpile(1, trainers=SERVERS, current_endpoint=EPS[1])
    last = fluid.default_startup_program().global_block().ops[-1]
    assert last.type == "gen_nccl_id"
    assert last.attrs["trainers"] == tuple(EPS)
    assert fluid.default_startup_program().global_block().has_var("NCCLID")
    assert types(fluid.default_main_program()) == main


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"trainer_id": 2}, "0 to 1, got 2"), ({"current_endpoint": "1.2.3.4:5"}, "none of the trainers")],
)
def test_a_rank_that_is_none_is_refused(settings: dict[str, Any], message: str) -> None:
    net()
    t = fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(mode="nccl2"))
    with pytest.raises(ValueError, match=message):
        t.transpile(**{"trainer_id": 0, "trainers": SERVERS, "current_endpoint": EPS[0], **settings})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (fluid.DistributeTranspilerConfig(min_block_size=100), "8192 or more"),
        (fluid.DistributeTranspilerConfig(split_method=int), "subclass of PSDispatcher"),  # type: ignore[arg-type]
        (fluid.DistributeTranspilerConfig(mode="rpc"), "'pserver' or 'nccl2'"),
    ],
)
def test_wrong_settings_are_told(config: fluid.DistributeTranspilerConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fluid.DistributeTranspiler(config)


def test_a_server_that_is_none_is_refused() -> None:
    net()
    with pytest.raises(ValueError, match="none of the servers"):
        transpiled().get_pserver_program("127.0.0.1:1")


def test_a_trainer_whose_servers_never_come_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_rpc_deadline", "200")
    net()
    t = fluid.DistributeTranspiler()
    t.transpile(0, pservers="127.0.0.1:1", trainers=2)
    with pytest.raises(PserverLost, match=r"127\.0\.0\.1:1 did not answer.*does it run"):
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())


def test_rows_of_a_sparse_table_are_fetched_in_one_place_and_the_table_is_not_received() -> None:
    ids = [fluid.layers.data(name, [1], dtype="int64") for name in ("a", "b")]
    rows = [fluid.layers.embedding(each, [10000, 8], is_sparse=True, param_attr="table") for each in ids]
    out = fluid.layers.fc(fluid.layers.concat(rows, axis=1), 1, bias_attr=False)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))
    t = transpiled()
    main = t.get_trainer_program()
    block = main.global_block()
    assert types(main)[:3] == ["distributed_lookup_table", "concat", "mul"]
    assert block.ops[0].inputs["Ids"] == ("a", "b")
    assert block.ops[0].attrs["table_names"] == ("table.block0", "table.block1")
    assert [op.outputs["Out"] for op in block.ops if op.type == "recv"] == [("fc_0.w_0",)]
    assert {each.vtype for each in t.vars_overview.distributed_vars if each.origin.name == "table"} == {
        "RemotePrefetch"
    }


def test_a_table_that_something_else_reads_is_received() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [100, 8], is_sparse=True, param_attr="table")
    table = fluid.default_main_program().global_block().var("table")
    loss = fluid.layers.mean(fluid.layers.matmul(rows, table, transpose_y=True))
    fluid.optimizer.SGD(0.1).minimize(loss)
    trainer = transpiled().get_trainer_program()
    assert "distributed_lookup_table" not in types(trainer)
    assert [op.outputs["Out"] for op in trainer.global_block().ops if op.type == "recv"] == [("table",)]


def test_parameters_that_are_clipped_by_norm_stay_whole() -> None:
    net(w_attr=fluid.ParamAttr(gradient_clip=fluid.clip.GradientClipByNorm(1.0)))
    assert "split_byref" not in types(transpiled().get_trainer_program())


def test_a_clip_by_the_norm_of_all_gradients_is_refused() -> None:
    def clipped() -> Any:
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))
        return fluid.optimizer.SGD(0.1)

    net(clipped)
    with pytest.raises(ValueError, match="computed of other parameters"):
        transpiled()


def test_a_server_that_corrects_gradients_knows_what_each_trainer_was_given() -> None:
    net()
    t = transpiled(fluid.DistributeTranspilerConfig(enable_dc_asgd=True), sync_mode=False)
    corrected = [
        "ref_by_trainer_id",
        "elementwise_sub",
        "elementwise_mul",
        "elementwise_mul",
        "elementwise_add",
    ]
    assert server_blocks(t, 0) == [["listen_and_serv"], [*corrected, "sgd"], [*corrected, "sgd"]]
    assert types(t.get_startup_program(EPS[0])).count("assign") == 4
