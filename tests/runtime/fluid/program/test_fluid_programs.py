# SPDX-License-Identifier: Apache-2.0
"""Programs as layers write them, copied, pruned and saved; memory_optimize changes no number."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.framework import Parameter
from paddle.fluid.program.operator import OpRole
from paddle.graph.errors import BackwardError, GraphError

_WIDTH, _LAYERS = 512, 8
_Change = Callable[[fluid.Program, fluid.framework.Variable], object]


def op_types(program: fluid.Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


def regression() -> tuple[fluid.framework.Variable, fluid.framework.Variable]:
    x = fluid.layers.data("x", [1000])
    y = fluid.layers.data("y", [1])
    out = fluid.layers.fc(
        x, 1000, param_attr=fluid.ParamAttr(name="fc_w"), bias_attr=fluid.ParamAttr(name="fc_b")
    )
    return fluid.layers.mean(fluid.layers.square_error_cost(out, fluid.layers.fc(y, 1000))), out


def test_a_layer_is_named_after_its_type_and_its_parameters_after_it() -> None:
    x = fluid.layers.data("x", [4])
    fluid.layers.fc([x, x], 3, act="tanh")
    named = fluid.layers.fc(x, 3, name="own")
    names = [parameter.name for parameter in fluid.default_main_program().global_block().all_parameters()]
    assert names == ["fc_0.w_0", "fc_0.w_1", "fc_0.b_0", "own.w_0", "own.b_0"]
    assert named.name == "own.tmp_1"
    assert named.shape == (-1, 3)


def test_first_values_are_prepended_so_the_last_parameter_comes_first() -> None:
    x = fluid.layers.data("x", [4])
    fluid.layers.fc(x, 3)
    written = [op.outputs["Out"][0] for op in fluid.default_startup_program().global_block().ops]
    assert written == ["fc_0.b_0", "fc_0.w_0"]


def test_a_shared_name_shares_the_parameter() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    for _ in range(2):
        fluid.layers.embedding(ids, [7, 2], param_attr="table")
    assert len(fluid.default_main_program().global_block().all_parameters()) == 1
    assert op_types(fluid.default_startup_program()) == ["uniform_random"]


def test_a_step_of_plain_descent_has_the_operators_of_the_original() -> None:
    x = fluid.layers.data("x", [1000])
    y = fluid.layers.data("y", [1])
    out = fluid.layers.fc(x, 1000)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.square_error_cost(out, y)))
    assert op_types(fluid.default_main_program()) == [
        "mul",
        "elementwise_add",
        "elementwise_sub",
        "square",
        "mean",
        "fill_constant",
        "mean_grad",
        "square_grad",
        "elementwise_sub_grad",
        "elementwise_add_grad",
        "mul_grad",
        "sgd",
        "sgd",
    ]
    assert op_types(fluid.default_startup_program()) == ["fill_constant", "fill_constant", "uniform_random"]


def test_updates_name_parameter_and_gradient_and_come_in_the_order_of_names() -> None:
    loss, _ = regression()
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    block = fluid.default_main_program().global_block()
    updates = [op for op in block.ops if op.attrs.get("op_role") == OpRole.OPTIMIZE]
    assert [op.attrs["op_role_var"] for op in updates] == [
        (name, f"{name}@GRAD") for name in ("fc_1.b_0", "fc_1.w_0", "fc_b", "fc_w")
    ]
    assert [op.type for op in block.ops if op.attrs.get("op_role") == OpRole.FORWARD | OpRole.LOSS] == [
        "mean"
    ]


def test_the_copy_for_tests_is_independent_and_tests() -> None:
    x = fluid.layers.data("x", [4])
    loss = fluid.layers.mean(fluid.layers.dropout(fluid.layers.fc(x, 4), 0.5))
    copy = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    assert op_types(copy) == ["mul", "elementwise_add", "dropout", "mean"]
    assert copy.global_block().ops[2].attrs["is_test"] is True
    assert all(isinstance(copy.global_block().var(name), Parameter) for name in ("fc_0.w_0", "fc_0.b_0"))


def test_pruning_keeps_what_the_target_needs() -> None:
    loss, out = regression()
    fluid.optimizer.SGD(0.1).minimize(loss)
    assert op_types(fluid.default_main_program()._prune([out])) == ["mul", "elementwise_add"]


def test_program_guard_leads_layers_elsewhere_and_back() -> None:
    outer, inner = fluid.default_main_program(), fluid.Program()
    with fluid.program_guard(inner):
        fluid.layers.data("x", [4])
    assert inner.global_block().has_var("x")
    assert fluid.default_main_program() is outer
    assert not outer.global_block().has_var("x")
    with pytest.raises(TypeError, match="main_program must be a Program"), fluid.program_guard("main"):  # type: ignore[arg-type]
        pass


def test_name_scopes_number_repeated_prefixes() -> None:
    x = fluid.layers.data("x", [4])
    with fluid.name_scope("outer_of_this_test"):
        for _ in range(2):
            with fluid.name_scope("inner"):
                fluid.layers.relu(x)
    scopes = [op.attrs.get("op_namescope") for op in fluid.default_main_program().global_block().ops]
    assert scopes == ["/outer_of_this_test/inner/", "/outer_of_this_test/inner_1/"]


def test_renaming_a_variable_renames_it_in_operators() -> None:
    x = fluid.layers.data("x", [4])
    fluid.layers.relu(x)
    block = fluid.default_main_program().global_block()
    block._rename_var("x", "z")
    assert block.ops[0].inputs["X"] == ("z",)
    assert not block.has_var("x")


def test_a_random_seed_must_be_a_number() -> None:
    with pytest.raises(GraphError, match="expected an int"):
        fluid.Program().random_seed = "1"  # type: ignore[assignment]


def test_programs_survive_their_bytes() -> None:
    loss, _ = regression()
    fluid.optimizer.Adam(0.01, regularization=fluid.regularizer.L2Decay(1e-4)).minimize(loss)
    program = fluid.default_main_program()
    twin = fluid.Program.parse_from_string(program.serialize_to_string())
    for op, copy in zip(program.global_block().ops, twin.global_block().ops, strict=True):
        assert (op.type, dict(op.inputs), dict(op.outputs)) == (
            copy.type,
            dict(copy.inputs),
            dict(copy.outputs),
        )
        for name, value in op.attrs.items():
            assert copy.attrs[name] == (pytest.approx(value) if isinstance(value, float) else value), name
    for name, variable in program.global_block().vars.items():
        other = twin.global_block().var(name)
        assert (other.shape, other.dtype, other.persistable) == (
            variable.shape,
            variable.dtype,
            variable.persistable,
        )


def test_arithmetic_on_variables_appends_operators() -> None:
    x = fluid.layers.data("x", [3])
    y = (2.0 - x) / 4 + x**2
    exe = fluid.Executor(fluid.CPUPlace())
    values = np.array([[1, 2, 3]], "float32")
    (got,) = exe.run(feed={"x": values}, fetch_list=[y])
    np.testing.assert_allclose(got, (2 - values) / 4 + values**2, rtol=1e-6)


def test_gradients_of_any_variable_can_be_asked_for() -> None:
    x = fluid.layers.data("x", [3])
    (grad,) = fluid.gradients([fluid.layers.square(x)], [x])
    assert grad is not None
    (got,) = fluid.Executor().run(feed={"x": np.array([[1, 2, 3]], "float32")}, fetch_list=[grad])
    np.testing.assert_allclose(got, [[2, 4, 6]])


def _trained(change: _Change | None, optimizer: Any = None, steps: int = 3) -> tuple[int, list[Any]]:
    """Return the bytes that a step allocates at its most, and all parameters and losses after some steps."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        fluid.default_startup_program().random_seed = 4
        x, y = fluid.layers.data("x", [_WIDTH]), fluid.layers.data("y", [1])
        hidden = x
        for _ in range(_LAYERS):
            hidden = fluid.layers.fc(hidden, _WIDTH, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        (optimizer or fluid.optimizer.SGD(0.1)).minimize(loss)
        program = fluid.default_main_program()
        if change is not None:
            change(program, loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        xs = np.random.default_rng(2).standard_normal((8, _WIDTH)).astype("float32")
        feed = {"x": xs, "y": xs[:, :1]}
        losses = [executor.run(feed=feed, fetch_list=[loss])[0] for _ in range(steps)]
        tracemalloc.start()
        try:
            losses.append(executor.run(feed=feed, fetch_list=[loss])[0])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        parameters = [
            np.array(fluid.global_scope().get(each.name)) for each in program.global_block().all_parameters()
        ]
        return peak, [*losses, *parameters]


def _same(left: list[Any], right: list[Any]) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "change",
    [
        lambda program, loss: fluid.memory_optimize(program, skip_opt_set={loss.name}),
        lambda program, loss: fluid.memory_optimize(program, {loss.name}, level=1, skip_grads=False),
        lambda program, loss: fluid.release_memory(program, skip_opt_set={loss}),
    ],
)
def test_a_step_holds_less_than_half_and_computes_the_same(change: _Change) -> None:
    peak, numbers = _trained(change)
    plain_peak, plain_numbers = _trained(None)
    _same(numbers, plain_numbers)
    gradients = _LAYERS * _WIDTH * _WIDTH * 4
    assert plain_peak > gradients
    assert peak < plain_peak / 2


def test_what_is_skipped_keeps_its_name_and_its_place() -> None:
    def change(program: fluid.Program, loss: fluid.framework.Variable) -> None:
        grads = [f"fc_{layer}.w_0@GRAD" for layer in range(_LAYERS)]
        fluid.memory_optimize(program, skip_opt_set={loss.name, *grads})
        ops = program.global_block().ops
        first = next(at for at, op in enumerate(ops) if "fc_0.w_0" in op.output_names)
        assert all(op.type != "mul_grad" for op in ops[first:])

    peak, numbers = _trained(change)
    plain_peak, plain_numbers = _trained(None)
    _same(numbers, plain_numbers)
    assert peak > plain_peak / 2


@pytest.mark.parametrize("norm", [None, 1.0])
def test_rules_with_state_and_clips_compute_the_same(norm: float | None) -> None:
    def optimizer() -> Any:
        if norm is not None:
            fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(norm))
        return fluid.optimizer.Adam(0.01, regularization=fluid.regularizer.L2Decay(1e-3))

    def change(program: fluid.Program, loss: fluid.framework.Variable) -> None:
        fluid.memory_optimize(program, skip_opt_set={loss.name}, skip_grads=False)

    _, plain = _trained(None, optimizer())
    _, changed = _trained(change, optimizer())
    _same(plain, changed)


_IDLE = {
    "op_callstack": ["script.py:3"],
    "op_device": "",
    "is_test": False,
    "use_cudnn": True,
    "use_mkldnn": False,
    "use_quantizer": False,
    "mkldnn_data_type": "float32",
    "workspace_size_MB": 512,
    "exhaustive_search": False,
    "data_format": "AnyLayout",
    "data_layout": "NCHW",
    "fuse_relu": False,
    "Scale_weights": [1.0],
    "op_role": 0,
    "op_namescope": "/own/",
}


@pytest.mark.parametrize("op_type", ["relu", "conv2d", "relu_grad"])
def test_attributes_that_all_operators_of_the_original_have_are_accepted_and_kept(op_type: str) -> None:
    inputs = {
        "relu": {"X": "x"},
        "conv2d": {"Input": "x", "Filter": "w"},
        "relu_grad": {"Out": "x", "Out@GRAD": "x"},
    }[op_type]
    out = {"relu": "Out", "conv2d": "Output", "relu_grad": "X@GRAD"}[op_type]
    main = fluid.Program()
    block = main.global_block()
    block.create_var("x", (1, 1, 2, 2))
    block.create_var("w", (1, 1, 2, 2))
    block.create_var("out", None)
    op = block.append_op(type=op_type, inputs=inputs, outputs={out: "out"}, attrs=_IDLE)
    assert (op.attr("use_cudnn"), op.attr("op_callstack")) == (True, ("script.py:3",))
    x = np.array([[[[1.0, -2], [3, 4]]]], "float32")
    results = [
        fluid.Executor(fluid.CPUPlace()).run(program, feed={"x": x, "w": x}, fetch_list=["out"])[0]
        for program in (main, fluid.Program.parse_from_string(main.serialize_to_string()))
    ]
    expected = {"relu": np.maximum(x, 0), "conv2d": [[[[30]]]], "relu_grad": np.where(x > 0, x, 0)}[op_type]
    for found in results:
        np.testing.assert_array_equal(found, expected)
    read = fluid.Program.parse_from_string(main.serialize_to_string()).global_block().ops[0]
    assert read.attrs == op.attrs
    assert main.clone(for_test=True).global_block().ops[0].attrs["is_test"] is True


@pytest.mark.parametrize(
    ("attrs", "told"),
    [
        ({"data_format": "NHWC"}, "'NHWC' would change what it computes.*'NCHW'"),
        ({"fuse_relu": True}, "True would change what it computes: leave it out, or give False"),
        ({"use_cudnn": "yes"}, "'use_cudnn': expected bool, got 'yes'"),
        ({"use_cudn": True}, "no attribute 'use_cudn': did you mean 'use_cudnn'"),
        ({"strids": [1, 1]}, "no attribute 'strids': did you mean 'strides'"),
    ],
)
def test_attributes_that_would_change_the_numbers_or_are_unknown_are_refused(
    attrs: dict[str, Any], told: str
) -> None:
    block = fluid.default_main_program().global_block()
    x = fluid.layers.data("x", [1, 2, 2])
    with pytest.raises(ValueError, match=told):
        block.append_op("conv2d", {"Input": x, "Filter": x}, {"Output": "out"}, attrs)


def _translation_like() -> fluid.framework.Variable:
    """Sparse embedding, dropout, a loop over steps, a branch, clipping by the global norm: as in books' chapters."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1])
    rows = fluid.layers.embedding(words, [10, 4], is_sparse=True, param_attr="table")
    steps = fluid.layers.DynamicRNN()
    with steps.block():
        word = steps.step_input(rows)
        before = steps.memory(shape=[4], value=0.0)
        now = fluid.layers.fc([word, before], 4, act="tanh")
        steps.update_memory(before, now)
        steps.output(now)
    outputs = steps()
    assert isinstance(outputs, fluid.framework.Variable)
    hidden = fluid.layers.sequence_last_step(outputs)
    for _ in range(3):
        hidden = fluid.layers.dropout(fluid.layers.fc(hidden, 4, act="tanh"), 0.3)
    cost = fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), label)
    loss = fluid.layers.mean(cost)
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.1))
    rate = fluid.layers.piecewise_decay([1], [0.1, 0.05])
    fluid.optimizer.Adam(rate, regularization=fluid.regularizer.L2Decay(0.01)).minimize(loss)
    return loss


def _optimized_twice(program: fluid.Program) -> None:
    fluid.memory_optimize(program)
    fluid.memory_optimize(program)


def _optimized_and_released(program: fluid.Program) -> None:
    fluid.memory_optimize(program)
    fluid.release_memory(program)


def _fetched(program: fluid.Program, start: fluid.Program, fetches: list[list[str]]) -> list[Any]:
    """Return what steps give, one step for each list of names that are fetched."""
    feed = {
        "words": fluid.create_lod_tensor(np.array([[1], [2], [1], [7], [3]]), [[2, 3]], fluid.CPUPlace()),
        "label": np.array([[0.5], [-1]], "float32"),
    }
    found = []
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(start)
        for names in fetches:
            for value in executor.run(program, feed=feed, fetch_list=names, return_numpy=False):
                sparse = isinstance(value, fluid.core.SelectedRows)
                found.append(value.to_dense() if sparse else np.array(value))
    return found


@pytest.mark.parametrize(
    "change",
    [
        fluid.memory_optimize,
        lambda program: fluid.memory_optimize(program, print_log=True, level=1),
        lambda program: fluid.memory_optimize(program, skip_grads=False),
        _optimized_twice,
        fluid.release_memory,
        _optimized_and_released,
    ],
)
def test_whatever_is_fetched_is_what_it_was_without_optimized_memory(
    change: Callable[[fluid.Program], object],
) -> None:
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
    loss = _translation_like()
    program, start = fluid.default_main_program(), fluid.default_startup_program()
    plain = program.clone()
    change(program)
    ops = plain.global_block().ops
    no_values = {
        name
        for op in ops
        for slot in ("StepScopes", "Scope", "MaxIndex")
        for name in op.outputs.get(slot, ())
    }
    names = sorted({name for op in ops for name in op.output_names} - no_values)
    pairs = zip(plain.global_block().ops, program.global_block().ops, strict=False)
    changed = {name for old, new in pairs if old != new for name in (*old.output_names, *new.output_names)}
    alone = [loss.name, *sorted(name for name in changed if name.endswith("tmp_0@GRAD"))]
    fetches = [names, *([name] for name in alone)]
    expected = _fetched(plain, start, fetches)
    for name, got, wanted in zip([*names, *alone], _fetched(program, start, fetches), expected, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=name)
    for copy in (program.clone(), fluid.Program.parse_from_string(program.serialize_to_string())):
        for name, got, wanted in zip(
            names, _fetched(copy, start, [names]), expected[: len(names)], strict=True
        ):
            np.testing.assert_array_equal(got, wanted, err_msg=name)


def test_what_comes_after_optimized_memory_is_made_of_the_programs_own_names(tmp_path: Path) -> None:
    fluid.default_startup_program().random_seed = 3
    x = fluid.layers.data("x", [4], stop_gradient=False)
    hidden = x
    for _ in range(4):
        hidden = fluid.layers.fc(hidden, 4, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square(hidden))
    fluid.backward.append_backward(loss)
    program, start = fluid.default_main_program(), fluid.default_startup_program()
    plain = program.clone()
    fluid.memory_optimize(program)
    shown = {name for op in program.global_block().ops for name in op.output_names}
    assert shown < {name for op in plain.global_block().ops for name in op.output_names}
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(start)
    feed = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype("float32")}
    (slope,) = executor.run(plain, feed=feed, fetch_list=["fc_1.tmp_0@GRAD"])
    place = str(tmp_path)
    target = program.global_block().var("fc_1.tmp_0@GRAD")
    fluid.io.save_inference_model(place, ["x"], [target], executor, program)
    loaded, _, targets = fluid.io.load_inference_model(place, executor)
    np.testing.assert_array_equal(executor.run(loaded, feed=feed, fetch_list=targets)[0], slope)
    block = program.global_block()
    total = fluid.layers.reduce_sum(block.var("fc_1.tmp_0@GRAD") * block.var("fc_2.tmp_0"))
    (of_slope,) = fluid.gradients(total, block.var("fc_1.tmp_0@GRAD"))
    assert of_slope is not None
    got = executor.run(feed=feed, fetch_list=[of_slope, "fc_2.tmp_0", total])
    np.testing.assert_array_equal(got[0], got[1])
    np.testing.assert_allclose(got[2], (slope * got[1]).sum(), rtol=1e-5)


def _slopes(pairs: list[Any], feed: dict[str, Any]) -> list[Any]:
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=[grad for _, grad in pairs])


def test_a_parameter_list_may_name_data_and_what_is_computed_of_it() -> None:
    x, still = fluid.layers.data("x", [3], stop_gradient=False), fluid.layers.data("still", [3])
    hidden = fluid.layers.square(x)
    out = fluid.layers.fc(hidden * still, 1, param_attr="w", bias_attr=False)
    loss = fluid.layers.reduce_sum(out)
    pairs = fluid.backward.append_backward(loss, parameter_list=[hidden, "x", "w"])
    assert [variable.name for variable, _ in pairs] == [hidden.name, "x", "w"]
    xs, held = np.random.default_rng(0).standard_normal((2, 2, 3)).astype("float32")
    of_hidden, of_x, of_w = _slopes(pairs, {"x": xs, "still": held})
    weights = np.array(fluid.global_scope().get("w"))[:, 0]
    np.testing.assert_allclose(of_hidden, held * weights, rtol=1e-5)
    np.testing.assert_allclose(of_x, 2 * xs * held * weights, rtol=1e-5)
    np.testing.assert_allclose(of_w[:, 0], (xs**2 * held).sum(0), rtol=1e-5)


def test_a_parameter_list_that_nothing_can_be_derived_for_is_refused() -> None:
    x, ids = fluid.layers.data("x", [3]), fluid.layers.data("ids", [1], dtype="int64")
    other = fluid.layers.data("other", [3], stop_gradient=False)
    rows = fluid.layers.embedding(ids, [5, 3])
    loss = fluid.layers.mean(fluid.layers.fc(rows * x, 1, param_attr="w"))
    cases: tuple[tuple[list[Any], str], ...] = (
        ([x], "parameter_list: x .* can have no gradient: set x.stop_gradient = False"),
        (["w", ids], "parameter_list: ids .*: only floating point numbers have one"),
        ([other], "does not depend on other"),
        ([], "does not depend on an empty list"),
        (["no_such"], "block 0 has no variable 'no_such'"),
    )
    for asked, told in cases:
        with pytest.raises((BackwardError, ValueError), match=told):
            fluid.backward.append_backward(loss, parameter_list=asked)
    x.stop_gradient = False
    with pytest.raises(BackwardError, match="does not depend on x"):
        fluid.backward.append_backward(loss, parameter_list=[x], no_grad_set={"x"})
    with pytest.raises(TypeError, match="an optimizer updates parameters, and"):
        fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=[x])


def test_gradients_leave_out_what_is_in_a_no_grad_set() -> None:
    x = fluid.layers.data("x", [3])
    left, right = fluid.layers.square(x), fluid.layers.scale(x, 3.0)
    total = left + right
    plain = fluid.gradients(total, [x, left])
    cut = fluid.backward.calc_gradient([total], [x], no_grad_set={left.name})
    assert fluid.gradients(right, left) == [None]
    xs = np.array([[1, -2, 3]], "float32")
    asked: list[Any] = [*plain, cut]
    got = fluid.Executor().run(feed={"x": xs}, fetch_list=asked)
    for value, expected in zip(got, (2 * xs + 3, np.ones_like(xs), 0 * xs + 3), strict=True):
        np.testing.assert_allclose(value, expected)


def test_gradients_of_a_sparse_table_are_known_as_rows() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    loss = fluid.layers.reduce_sum(fluid.layers.embedding(ids, [5, 2], is_sparse=True, param_attr="table"))
    table = fluid.default_main_program().global_block().var("table")
    (grad,) = fluid.gradients(loss, table)
    assert grad is not None
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))
    fluid.optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.1)).apply_gradients([(table, grad)])
    assert grad.type == fluid.core.VarDesc.VarType.SELECTED_ROWS
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    before = np.array(fluid.global_scope().get("table"))
    executor.run(feed={"ids": np.array([[1], [1]], "int64")})
    assert np.isfinite(fluid.global_scope().get("table")).all()
    assert (fluid.global_scope().get("table") != before).all()


def test_errors_are_clipped_at_activations_data_parameters_and_sparse_tables() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    x = fluid.layers.data("x", [2], stop_gradient=False)
    rows = fluid.layers.embedding(ids, [5, 2], is_sparse=True, param_attr="table")
    hidden = fluid.layers.scale(rows + x, 2.0)
    block = fluid.default_main_program().global_block()
    for variable, clip in (
        (hidden, fluid.clip.ErrorClipByValue(0.5)),
        (x, fluid.clip.ErrorClipByValue(0.25)),
        (block.var("table"), fluid.clip.ErrorClipByValue(1.5, -0.5)),
    ):
        variable._set_error_clip(clip)
    g = fluid.layers.data("g", [2])
    loss = fluid.layers.reduce_sum(hidden * g)
    pairs = fluid.backward.append_backward(loss, parameter_list=["x", "table"])
    slope = np.array([[3, -3], [0.1, -3], [-2, 0.05]], "float32")
    feed = {"ids": np.array([[1], [2], [1]]), "x": np.zeros((3, 2), "float32"), "g": slope}
    of_x, of_table = _slopes(pairs, feed)
    inner = 2 * slope.clip(-0.5, 0.5)
    np.testing.assert_allclose(of_x, inner.clip(-0.25, 0.25))
    dense = np.zeros((5, 2), "float32")
    np.add.at(dense, [1, 2, 1], inner)
    np.testing.assert_allclose(of_table.to_dense(), dense.clip(-0.5, 1.5), rtol=1e-6)


def test_errors_are_clipped_inside_a_loop_over_steps() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    rows = fluid.layers.embedding(words, [4, 2], param_attr="table")
    steps = fluid.layers.DynamicRNN()
    with steps.block():
        row = steps.step_input(rows)
        before = steps.memory(shape=[2], value=0.0)
        now = fluid.layers.scale(row + before, 3.0)
        now._set_error_clip(fluid.clip.ErrorClipByValue(0.1, -0.2))
        steps.update_memory(before, now)
        steps.output(now)
    outputs = steps()
    assert isinstance(outputs, fluid.framework.Variable)
    last = fluid.layers.sequence_last_step(outputs)
    sign = fluid.layers.assign(np.array([1, -1], "float32"))
    loss = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(last, sign))
    pairs = fluid.backward.append_backward(loss)
    ids = fluid.create_lod_tensor(np.array([[1], [2], [1]]), [[2, 1]], fluid.CPUPlace())
    (of_table,) = _slopes(pairs, {"words": ids})
    # 1 and -1 are cut to 0.1 and -0.2, times 3 they go to the row and the step before, and are cut there again
    expected = np.array([[0, 0], [0.6, -1.2], [0.3, -0.6], [0, 0]])
    np.testing.assert_allclose(of_table, expected, rtol=1e-6)


def test_a_second_loss_derives_for_what_the_first_one_updated() -> None:
    x = fluid.layers.data("x", [2])

    def out() -> fluid.framework.Variable:
        return fluid.layers.fc(x, 1, param_attr="w", bias_attr=False)

    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(out()))
    second = fluid.layers.mean(fluid.layers.square(out()))
    fluid.optimizer.SGD(0.1).minimize(second)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    weights = np.array(fluid.global_scope().get("w"))
    xs = np.array([[1, 2], [3, 4]], "float32")
    (found,) = executor.run(feed={"x": xs}, fetch_list=[second])
    weights = weights - 0.1 * xs.mean(0)[:, None]
    guess = xs @ weights
    np.testing.assert_allclose(found, (guess**2).mean(), rtol=1e-5)
    expected = weights - 0.1 * (guess * xs).sum(0)[:, None]
    np.testing.assert_allclose(fluid.global_scope().get("w"), expected, rtol=1e-4)


def test_a_second_loss_trains_a_generator_through_an_updated_judge() -> None:
    noise, x = fluid.layers.data("noise", [2]), fluid.layers.data("x", [2])
    made = fluid.layers.fc(noise, 2, param_attr="maker", bias_attr=False)

    def judged(what: fluid.framework.Variable) -> fluid.framework.Variable:
        return fluid.layers.mean(fluid.layers.fc(what, 1, param_attr="judge", bias_attr=False))

    fluid.optimizer.SGD(0.1).minimize(judged(x) - judged(made), parameter_list=["judge"])
    _, pairs = fluid.optimizer.SGD(0.1).minimize(judged(made), parameter_list=["maker"])
    assert [parameter.name for parameter, _ in pairs] == ["maker"]
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    maker, judge = (np.array(fluid.global_scope().get(name)) for name in ("maker", "judge"))
    zs, xs = np.random.default_rng(0).standard_normal((2, 3, 2)).astype("float32")
    executor.run(feed={"noise": zs, "x": xs})
    judge = judge - 0.1 * (xs.mean(0) - (zs @ maker).mean(0))[:, None]
    np.testing.assert_allclose(fluid.global_scope().get("judge"), judge, rtol=1e-4)
    expected = maker - 0.1 * np.outer(zs.mean(0), judge)
    np.testing.assert_allclose(fluid.global_scope().get("maker"), expected, rtol=1e-4, atol=1e-6)


def test_second_derivatives_are_refused_and_not_left_out() -> None:
    x = fluid.layers.data("x", [2], stop_gradient=False)
    (slope,) = fluid.gradients(fluid.layers.square(x) * x, x)
    assert slope is not None
    with pytest.raises(BackwardError, match="there are no second derivatives"):
        fluid.gradients(slope * x, x)
    slope.stop_gradient = True
    (of_x,) = fluid.gradients(slope * x, x)
    assert of_x is not None
    found = fluid.Executor().run(feed={"x": np.array([[2, 3]], "float32")}, fetch_list=[of_x])
    np.testing.assert_allclose(found[0], [[12, 27]])
