# SPDX-License-Identifier: Apache-2.0
"""Programs as layers write them, copied, pruned and saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.framework import Parameter
from paddle.fluid.program.operator import OpRole
from paddle.graph.errors import GraphError


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
    "downsample": 32,
    "neg_overlap": 0.5,
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
    assert (op.attr("use_cudnn"), op.attr("op_callstack")) == (True, ["script.py:3"])
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
        ({"data_format": "NHWC"}, "'NHWC' would change the result.*'NCHW'"),
        ({"fuse_relu": True}, "True would change the result: omit it, or give False"),
        ({"downsample": 16}, "16 would change the result: omit it, or give 32"),
        ({"use_cudnn": "yes"}, "'use_cudnn': expected bool, got 'yes'"),
        ({"use_cudn": True}, "no attribute 'use_cudn'; did you mean 'use_cudnn'"),
        ({"strids": [1, 1]}, "no attribute 'strids'; did you mean 'strides'"),
    ],
)
def test_attributes_that_would_change_the_numbers_or_are_unknown_are_refused(
    attrs: dict[str, Any], told: str
) -> None:
    block = fluid.default_main_program().global_block()
    x = fluid.layers.data("x", [1, 2, 2])
    with pytest.raises(ValueError, match=told):
        block.append_op("conv2d", {"Input": x, "Filter": x}, {"Output": "out"}, attrs)


def test_a_layer_takes_its_programs_as_in_0_11() -> None:
    main, startup = fluid.Program(), fluid.Program()
    programs: Any = {"main_program": main, "startup_program": startup}
    x = fluid.layers.data("x", [3], **programs)
    loss = fluid.layers.mean(fluid.layers.fc(x, 2, **programs), main_program=main)
    assert loss.block.program is main
    assert sorted(op_types(startup)) == ["fill_constant", "uniform_random"]
    assert not op_types(fluid.default_main_program())
    assert not op_types(fluid.default_startup_program())


def test_slices_of_a_variable_take_steps() -> None:
    x = fluid.layers.data("x", [4, 5], append_batch_size=False)
    x.stop_gradient = False
    taken = [x[::2], x[::-1], x[1:, 4:0:-3], x[-1, ::2]]
    grads: Any = fluid.gradients(fluid.layers.reduce_sum(taken[2]), [x])
    value = np.arange(20, dtype="float32").reshape(4, 5)
    *found, slope = fluid.Executor().run(feed={"x": value}, fetch_list=[*taken, *grads])
    for got, expected in zip(
        found, (value[::2], value[::-1], value[1:, 4:0:-3], value[-1, ::2]), strict=True
    ):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(slope, [[0] * 5, *[[0, 1, 0, 0, 1]] * 3])
    with pytest.raises(TypeError, match=r"rows.*of axis 0.*unknown"):
        fluid.layers.data("rows", [2])[::2]


def test_columns_of_a_sequence_are_taken_by_few_operators_and_stay_a_sequence() -> None:
    rows = fluid.layers.data("rows", [300], lod_level=1)
    sums = fluid.layers.sequence_pool(rows[:, ::3], "sum")
    assert len(fluid.default_main_program().global_block().ops) < 10
    value = np.random.default_rng(1).standard_normal((5, 300)).astype("float32")
    fed = fluid.create_lod_tensor(value, [[2, 3]], fluid.CPUPlace())
    (got,) = fluid.Executor().run(feed={"rows": fed}, fetch_list=[sums])
    np.testing.assert_allclose(got, [value[:2, ::3].sum(0), value[2:, ::3].sum(0)], rtol=1e-5)
