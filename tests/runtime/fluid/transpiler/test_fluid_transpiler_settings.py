# SPDX-License-Identifier: Apache-2.0
"""What users tell the transpiler: places, modes, what it refuses; prefetched tables and clips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.errors import ConfigError, PserverLost
from paddle.fluid.errors import FluidError
from paddle.fluid.transpiler import PSDispatcher
from paddle.graph.errors import FeedError
from tests.runtime.fluid.transpiled_net import EPS, SERVERS, net, server_blocks, transpiled, types


def test_users_can_place_parameters_themselves() -> None:
    class Last(PSDispatcher):
        def dispatch(self, varlist: Any) -> list[str]:
            return [self.eps[-1]] * len(varlist)

    net()
    t = transpiled(fluid.DistributeTranspilerConfig(split_method=Last, slice_var_up=False))
    assert server_blocks(t, 0) == [["listen_and_serv"], []]


@pytest.mark.parametrize(
    ("name", "hint"), [("slice_var", "did you mean 'slice_var_up'"), ("zone", "its fields are slice_var_up")]
)
def test_a_setting_that_does_not_exist_is_refused(name: str, hint: str) -> None:
    config = fluid.DistributeTranspilerConfig()
    with pytest.raises(AttributeError, match=f"DistributeTranspilerConfig has no field '{name}'; {hint}"):
        setattr(config, name, True)


def test_an_option_of_fluid_1_6_is_accepted_at_its_default() -> None:
    config = fluid.DistributeTranspilerConfig()
    config.geo_sgd_mode = False
    with pytest.raises(FluidError, match=r"geo_sgd_mode=True.*supports only its default, False"):
        config.geo_sgd_mode = True


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
    [({"trainer_id": 2}, "0 to 1, got 2"), ({"current_endpoint": "1.2.3.4:5"}, "not one of the trainers")],
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
    with pytest.raises(ValueError, match="not one of the servers"):
        transpiled().get_pserver_program("127.0.0.1:1")


def test_a_trainer_whose_servers_never_come_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_rpc_deadline", "200")
    net()
    t = fluid.DistributeTranspiler()
    t.transpile(0, pservers="127.0.0.1:1", trainers=2)
    with pytest.raises(PserverLost, match=r"127\.0\.0\.1:1 did not answer.*the server is running"):
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())


@pytest.mark.parametrize(
    ("pservers", "why"),
    [
        ("10.0.0.1", "'10.0.0.1': .*the port is missing"),
        ("10.0.0.1:6174,10.0.0.2", "'10.0.0.2': .*the port is missing"),
        ("10.0.0.1:6174,10.0.0.1:6174", "listed twice"),
        ("10.0.0.1:66666", "a port from 0 to 65535"),
    ],
)
def test_servers_that_cannot_be_are_told_by_transpile(pservers: str, why: str) -> None:
    net()
    with pytest.raises(ConfigError, match=f"pservers: endpoint .*{why}"):
        fluid.DistributeTranspiler().transpile(0, pservers=pservers, trainers=2)


def test_a_rate_that_only_servers_compute_is_not_to_be_fed() -> None:
    rates: list[Any] = []

    def optimizer() -> Any:
        rates.append(fluid.layers.exponential_decay(0.1, 10, 0.5))
        return fluid.optimizer.SGD(rates[0])

    net(optimizer)
    program = transpiled().get_trainer_program(wait_port=False).clone(for_test=True)
    feed = {"x": np.zeros((2, 1000), "float32"), "y": np.zeros((2, 1), "float32")}
    with pytest.raises(FeedError, match=f"{rates[0].name}.*servers compute it.*remove it from fetch_list"):
        fluid.Executor(fluid.CPUPlace()).run(program, feed, fetch_list=rates)


@pytest.mark.parametrize("trainers", ["2", 2.0, None])
def test_a_number_of_trainers_may_be_of_numpy_but_not_a_text(trainers: Any) -> None:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    t = fluid.DistributeTranspiler()
    with pytest.raises(ValueError, match=r"trainers: "):
        t.transpile(0, trainers=trainers)
    t.transpile(np.int64(1), trainers=np.int64(2))  # type: ignore[arg-type]
    assert t.get_trainer_program(wait_port=False).global_block().ops[-2].type == "recv"


def test_trainers_that_cannot_be_are_told_by_transpile() -> None:
    config = fluid.DistributeTranspilerConfig()
    config.mode = "nccl2"
    with pytest.raises(ConfigError, match=r"trainers: endpoint '10\.0\.0\.2': .*the port is missing"):
        fluid.DistributeTranspiler(config).transpile(
            0, trainers="10.0.0.1:6170,10.0.0.2", current_endpoint="10.0.0.1:6170"
        )


def test_rows_of_a_sparse_table_are_fetched_in_one_place_and_the_table_is_not_received() -> None:
    ids = [fluid.layers.data(name, [1], dtype="int64") for name in ("a", "b")]
    rows = [fluid.layers.embedding(each, [10000, 8], is_sparse=True, param_attr="table") for each in ids]
    out = fluid.layers.fc(fluid.layers.concat(rows, axis=1), 1, bias_attr=False)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out))
    t = transpiled()
    main = t.get_trainer_program(wait_port=False)
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
    trainer = transpiled().get_trainer_program(wait_port=False)
    assert "distributed_lookup_table" not in types(trainer)
    assert [op.outputs["Out"] for op in trainer.global_block().ops if op.type == "recv"] == [("table",)]


def test_parameters_that_are_clipped_by_norm_stay_whole() -> None:
    net(w_attr=fluid.ParamAttr(gradient_clip=fluid.clip.GradientClipByNorm(1.0)))
    assert "split_byref" not in types(transpiled().get_trainer_program(wait_port=False))


def clipped() -> Any:
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))
    return fluid.optimizer.SGD(0.1)


def test_synchronous_trainers_bring_the_norm_of_all_gradients_after_these() -> None:
    net(clipped)
    t = transpiled()
    trainer = t.get_trainer_program(wait_port=False).global_block().ops
    assert [op.type for op in trainer][-9:] == [
        *("send_barrier", "recv", "sum", "send", "send_barrier"),
        *("recv", "recv", "fetch_barrier", "concat"),
    ]
    norm = ["fill_constant", "sqrt", "elementwise_max", "elementwise_div"]
    for server, slices in enumerate((2, 1)):  # the weight's on both, and the bias
        listening, summing, *updates = server_blocks(t, server)
        assert listening == ["listen_and_serv"]
        assert summing == [*["sum", "scale"] * slices, *["squared_l2_norm"] * slices, "sum"]
        assert [sorted(each) for each in updates] == [sorted([*norm, "elementwise_mul", "sgd"])] * slices


@pytest.mark.parametrize(
    "clip", [fluid.clip.GradientClipByValue(0.1), fluid.clip.GradientClipByGlobalNorm(1.0)]
)
def test_optimized_memory_changes_nothing_of_what_is_sent_and_where_it_is_clipped(clip: Any) -> None:
    def optimizer() -> Any:
        fluid.clip.set_gradient_clip(clip)
        return fluid.optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.1))

    sent = []
    for change in (lambda program: None, fluid.memory_optimize, fluid.release_memory):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            net(optimizer)
            change(fluid.default_main_program())
            t = transpiled()
            ops = t.get_trainer_program(wait_port=False).global_block().ops
            blocks = [[sorted(block) for block in server_blocks(t, at)] for at in range(2)]
            sent.append((blocks, [op.inputs["X"] for op in ops if op.type == "send"]))
    assert sent[0] == sent[1] == sent[2]


def test_trainers_that_wait_for_nobody_clip_what_they_send() -> None:
    net(clipped)
    t = transpiled(fluid.DistributeTranspilerConfig(enable_dc_asgd=True), sync_mode=False)
    trainer = types(t.get_trainer_program(wait_port=False))
    assert trainer.count("squared_l2_norm") == trainer.count("elementwise_mul") == trainer.count("send") == 2
    assert all("squared_l2_norm" not in block for at in range(2) for block in server_blocks(t, at))


def test_a_clip_that_needs_more_of_other_gradients_than_their_norm_is_refused() -> None:
    class ByAnother(fluid.clip.BaseGradientClipAttr):
        def _process_context(self, context: Any, param: Any, grad: Any) -> None:
            if "mean" not in context:
                context["mean"] = fluid.layers.mean(grad)
            self.mean = context["mean"]

        def _create_operators(self, param: Any, grad: Any) -> Any:
            return param, fluid.layers.elementwise_mul(grad, self.mean)

    def by_another() -> Any:
        fluid.clip.set_gradient_clip(ByAnother())
        return fluid.optimizer.SGD(0.1)

    net(by_another)
    with pytest.raises(ValueError, match="computed from other parameters"):
        transpiled()


def test_a_parameter_with_two_gradients_is_refused() -> None:
    net()
    with pytest.warns(UserWarning, match="'mean_0.tmp_0' before"):
        fluid.optimizer.SGD(0.1).minimize(fluid.default_main_program().global_block().var("mean_0.tmp_0"))
    with pytest.raises(ValueError, match="'fc_b@GRAD' and 'fc_b@GRAD_0'"):
        transpiled()


@pytest.mark.parametrize("sync_mode", [True, False])
def test_a_program_is_transpiled_once(sync_mode: bool) -> None:
    net()
    t = transpiled(sync_mode=sync_mode)
    with pytest.raises(ValueError, match="transpiled before"):
        t.transpile(0, pservers=SERVERS, trainers=2, sync_mode=sync_mode)
    with pytest.raises(ValueError, match="transpiled before"):
        transpiled(sync_mode=sync_mode)


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
