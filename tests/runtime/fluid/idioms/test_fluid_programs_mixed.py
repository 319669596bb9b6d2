# SPDX-License-Identifier: Apache-2.0
"""How scripts put programs together: clones at odd moments, two optimizers, files in the middle, guards in guards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers

_ROWS = np.random.default_rng(3).standard_normal((16, 3)).astype("float32")
_TARGET = (_ROWS @ np.array([[1.0], [-2], [0.5]], "float32")).astype("float32")
_FEED = {"x": _ROWS, "target": _TARGET}


def net(width: int = 4) -> Any:
    x, target = layers.data("x", [3]), layers.data("target", [1])
    hidden = layers.fc(x, width, act="tanh", param_attr="hidden_w", bias_attr="hidden_b")
    out = layers.fc(hidden, 1, param_attr=fluid.ParamAttr(name="out_w"), bias_attr=False)
    return layers.mean(layers.square_error_cost(out, target))


def started() -> fluid.Executor:
    fluid.default_startup_program().random_seed = 7
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def cost(exe: fluid.Executor, program: Any, loss: Any) -> float:
    return float(exe.run(program, feed=_FEED, fetch_list=[loss.name])[0].item())


def value(name: str) -> Any:
    found: Any = fluid.global_scope().find_var(name)
    return np.array(found.get_tensor())


def test_clones_made_before_between_and_after_the_optimizer_see_the_same_parameters() -> None:
    loss = net()
    main = fluid.default_main_program()
    before = main.clone(for_test=True)
    pairs = fluid.optimizer.SGD(0.05).backward(loss)
    between = main.clone()
    fluid.optimizer.SGD(0.05).apply_gradients(pairs)
    after = main.clone()
    exe = started()
    first = [cost(exe, program, loss) for program in (before, between)]
    assert first[0] == first[1]
    assert cost(exe, before, loss) == first[0]  # neither has updates
    assert cost(exe, after, loss) == first[0]
    assert cost(exe, before, loss) < first[0]
    kinds = [op.type for op in between.global_block().ops]
    assert "sgd" not in kinds
    assert "mul_grad" in kinds
    assert [op.type for op in main.global_block().ops] == [op.type for op in after.global_block().ops]


def test_two_optimizers_of_one_program_each_move_their_own_parameters() -> None:
    loss = net()
    block = fluid.default_main_program().global_block()
    slow, fast = [["hidden_w", "hidden_b"], ["out_w"]]
    fluid.optimizer.SGD(0.0).minimize(loss, parameter_list=slow)
    fluid.optimizer.Adam(0.05).minimize(loss, parameter_list=fast)
    exe = started()
    kept = {name: value(name) for name in (*slow, *fast)}
    losses = [cost(exe, None, loss) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert all((value(name) == kept[name]).all() for name in slow)
    assert (value("out_w") != kept["out_w"]).any()
    assert sum(op.type == "adam" for op in block.ops) == 1


def test_two_programs_with_one_startup_program_play_against_each_other() -> None:
    """As a GAN does: the one's parameters stay while the other's move."""
    startup, makes, judges = fluid.Program(), fluid.Program(), fluid.Program()

    def judged(x: Any) -> Any:
        return layers.fc(x, 1, param_attr="judge_w", bias_attr="judge_b")

    with fluid.program_guard(makes, startup):
        made = layers.fc(layers.data("noise", [2]), 3, param_attr="maker_w", bias_attr=False)
        fooled = layers.mean(layers.softplus(layers.scale(judged(made), -1.0)))
        names = [p.name for p in makes.global_block().all_parameters() if p.name.startswith("maker")]
        fluid.optimizer.Adam(0.1).minimize(fooled, startup, parameter_list=names)
    with fluid.program_guard(judges, startup):
        caught = layers.mean(layers.softplus(judged(layers.data("x", [3]))))
        fluid.optimizer.SGD(0.1).minimize(caught)
    startup.random_seed = 5
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    noise = np.random.default_rng(1).standard_normal((8, 2)).astype("float32")
    for program, fetched, feed, moves in (
        (makes, fooled, {"noise": noise}, "maker_w"),
        (judges, caught, {"x": _ROWS}, "judge_w"),
    ):
        kept = {name: value(name) for name in ("maker_w", "judge_w")}
        exe.run(program, feed=feed, fetch_list=[fetched])
        assert [name for name in kept if (value(name) != kept[name]).any()] == [moves]


@pytest.mark.parametrize("filename", [None, "all"])
def test_what_was_saved_in_the_middle_continues_bit_by_bit(tmp_path: Path, filename: str | None) -> None:
    loss = net()
    fluid.optimizer.Adam(
        layers.exponential_decay(0.05, 2, 0.5), regularization=fluid.regularizer.L2Decay(1e-3)
    ).minimize(loss)
    exe = started()
    main = fluid.default_main_program()
    for _ in range(3):
        cost(exe, main, loss)
    fluid.io.save_persistables(exe, str(tmp_path), main, filename)
    expected = [cost(exe, main, loss) for _ in range(4)]
    fluid.io.load_persistables(exe, str(tmp_path), main, filename)
    assert [cost(exe, main, loss) for _ in range(4)] == expected
    with fluid.scope_guard(fluid.Scope()):
        exe.run(fluid.default_startup_program())
        fluid.io.load_persistables(exe, str(tmp_path), main, filename)
        assert [cost(exe, main, loss) for _ in range(4)] == expected


def test_a_wider_net_restores_what_fits_by_the_files_that_are_there(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        net()
        exe = started()
        fluid.io.save_params(exe, str(tmp_path))
        saved = value("hidden_w")
    os.remove(tmp_path / "out_w")
    net()
    exe = started()
    drawn = value("out_w")
    fluid.io.load_vars(
        exe,
        str(tmp_path),
        predicate=lambda var: (
            fluid.io.is_persistable(var) and os.path.exists(os.path.join(str(tmp_path), var.name))
        ),
    )
    np.testing.assert_array_equal(value("hidden_w"), saved)
    np.testing.assert_array_equal(value("out_w"), drawn)


def test_guards_in_guards_give_back_names_programs_and_scopes() -> None:
    outer = fluid.default_main_program()
    with fluid.unique_name.guard("train_"):
        first = layers.fc(layers.data("x", [3]), 2)
        inner = fluid.Program()
        with fluid.program_guard(inner, fluid.Program()), fluid.unique_name.guard("train_"):
            same = layers.fc(layers.data("x", [3]), 2)
            with fluid.name_scope("deep"), fluid.scope_guard(fluid.Scope()):
                layers.relu(same)
            last: Any = inner.global_block().ops[-1]
            assert last.attr("op_namescope") == "/deep/"
        second = layers.fc(layers.data("x", [3]), 2)
    assert fluid.default_main_program() is outer
    names = [each.name for each in (first, same, second)]
    assert names[0] == names[1]
    assert names[2] == names[0].replace("fc_0", "fc_1")
    parameters = [p.name for p in inner.global_block().all_parameters()]
    assert parameters == ["train_train_fc_0.w_0", "train_train_fc_0.b_0"]  # the prefix counts for both parts


def test_a_block_that_asks_for_the_host_knows_it() -> None:
    with fluid.initializer.init_on_cpu():
        with fluid.initializer.init_on_cpu():
            pass
        assert fluid.initializer.force_init_on_cpu()
    assert not fluid.initializer.force_init_on_cpu()


def test_state_that_is_fed_and_assigned_carries_over_batches() -> None:
    """As a language model does with the last states of the cuDNN form of LSTM."""
    x = layers.data("x", [2, -1, 3], append_batch_size=False)
    states = [layers.data(name, [1, -1, 4], append_batch_size=False) for name in ("init_h", "init_c")]
    for each in states:
        each.persistable = True
    out, *last = layers.lstm(x, *states, 2, 4, 1)
    for new, old in zip(last, states, strict=True):
        layers.assign(new, old)
    exe = started()
    whole = np.random.default_rng(2).standard_normal((4, 5, 3)).astype("float32")
    zeros = np.zeros((1, 5, 4), "float32")
    (first,) = exe.run(feed={"x": whole[:2], "init_h": zeros, "init_c": zeros}, fetch_list=[out])
    (second,) = exe.run(feed={"x": whole[2:]}, fetch_list=[out])
    (at_once,) = exe.run(feed={"x": whole, "init_h": zeros, "init_c": zeros}, fetch_list=[out])
    np.testing.assert_allclose(np.concatenate([first, second]), at_once, rtol=1e-5, atol=1e-6)


def test_costs_take_all_parameters_of_a_block_as_a_penalty() -> None:
    loss = net()
    squares = [
        layers.reduce_sum(layers.square(p)) for p in fluid.default_main_program().block(0).all_parameters()
    ]
    total = loss + 0.01 * sum(squares)
    fluid.optimizer.SGD(0.05).minimize(total)
    exe = started()
    names = ("hidden_w", "hidden_b", "out_w")
    kept = {name: value(name) for name in names}
    plain, found = exe.run(feed=_FEED, fetch_list=[loss, total])
    penalty = sum(float((each**2).sum()) for each in kept.values())
    assert found.item() == pytest.approx(plain.item() + 0.01 * penalty, rel=1e-5)


def test_an_average_of_the_parameters_is_put_in_for_a_while() -> None:
    loss = net()
    fluid.optimizer.SGD(0.1).minimize(loss)
    average = fluid.optimizer.ModelAverage(0.5, min_average_window=2, max_average_window=10)
    test = fluid.default_main_program().clone(for_test=True)
    exe = started()
    seen = []
    for _ in range(6):
        cost(exe, None, loss)
        seen.append(value("out_w"))
    with average.apply(exe):
        within = value("out_w")
    np.testing.assert_array_equal(value("out_w"), seen[-1])
    assert (within != seen[-1]).any()
    assert (within >= np.min(seen, axis=0) - 1e-6).all()
    assert (within <= np.max(seen, axis=0) + 1e-6).all()
    assert test.num_blocks == 1
