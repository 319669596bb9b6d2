# SPDX-License-Identifier: Apache-2.0
"""The calls of the manual on distributed training build the programs that they should."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid


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
                fluid.memory_optimize(fluid.default_main_program(), skip_grads=True)
            t = fluid.DistributeTranspiler()
            t.transpile(0, pservers=pserver_endpoints, trainers=trainers)
            if role == "PSERVER":
                for current_endpoint in pserver_endpoints.split(","):
                    pserver_prog = t.get_pserver_program(current_endpoint)
                    pserver_startup = t.get_startup_program(current_endpoint, pserver_prog)
                    programs[current_endpoint] = (pserver_prog, pserver_startup)
            else:
                programs["trainer"] = (t.get_trainer_program(), startup)
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
    types = [op.type for op in t.get_trainer_program().global_block().ops]
    assert ("send_barrier" in types) == settings.get("sync_mode", True)
    assert ("split_selected_rows" in types) == settings.get("slice_var_up", True)


def test_the_manuals_distributed_embedding_lies_on_servers_alone() -> None:
    words = fluid.layers.data("words", [1], dtype="int64")
    emb = fluid.layers.embedding(is_distributed=True, input=words, size=[10, 4], is_sparse=True)
    fluid.optimizer.Adam().minimize(fluid.layers.mean(fluid.layers.fc(emb, 2)))
    t = fluid.DistributeTranspiler()
    t.transpile(0, pservers="127.0.0.1:6170,127.0.0.1:6171", trainers=2)
    types = [op.type for op in t.get_trainer_program().global_block().ops]
    assert {"split_ids", "prefetch", "merge_ids"} <= set(types)
    assert not {"lookup_table", "adam", "sgd"} & set(types)
    for endpoint in t.pserver_endpoints:
        blocks = t.get_pserver_program(endpoint).blocks
        assert "lookup_sparse_table" in [op.type for block in blocks for op in block.ops]
