# SPDX-License-Identifier: Apache-2.0
"""What scripts of 2018 reach into: settings of parameters, roles, values in scopes, and names before 1.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid
from paddle.fluid import core, framework

fluid: Any = paddle.fluid  # as in scripts, which know no types

X = np.ones((2, 3), np.float32)


def value(name: str) -> Any:
    """Return a copy of a value of the global scope."""
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def linear() -> Any:
    """Return a loss whose gradient in `w` is 1 everywhere."""
    x = fluid.layers.data("x", [3])
    return fluid.layers.reduce_sum(fluid.layers.fc(x, 2, param_attr="w", bias_attr=False)) * 0.5


def step(optimizer: Any, loss: Any) -> Any:
    """Return by how much one step lowers `w`."""
    optimizer.minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    before = value("w")
    exe.run(feed={"x": X})
    return before - value("w")


def test_the_learning_rate_in_optimize_attr_of_a_parameter_can_be_changed() -> None:
    loss = linear()
    fluid.default_main_program().global_block().var("w").optimize_attr["learning_rate"] = 3.0
    np.testing.assert_allclose(step(fluid.optimizer.SGD(0.5), loss), np.full((3, 2), 1.5), rtol=1e-6)


def test_the_settings_of_a_parameter_can_be_replaced() -> None:
    loss = linear()
    weight = fluid.default_main_program().global_block().var("w")
    weight.optimize_attr = {"learning_rate": 2.0}
    weight.regularizer = None
    weight.gradient_clip_attr = fluid.clip.GradientClipByValue(0.25)
    np.testing.assert_allclose(step(fluid.optimizer.SGD(1.0), loss), np.full((3, 2), 0.5), rtol=1e-6)


def test_the_rate_that_a_script_enters_for_a_program_is_used() -> None:
    loss = linear()
    rate = fluid.layers.create_global_var([1], 4.0, "float32", persistable=True)
    optimizer = fluid.optimizer.SGD(learning_rate=1.0)
    optimizer._learning_rate_map[fluid.default_main_program()] = rate
    np.testing.assert_allclose(step(optimizer, loss), np.full((3, 2), 4.0), rtol=1e-6)
    assert optimizer._global_learning_rate() is rate


def test_a_parameter_built_by_hand_belongs_to_its_block_and_is_cloned() -> None:
    block = fluid.default_main_program().global_block()
    made = framework.Parameter(
        block=block, shape=[2, 2], dtype="float32", name="master", trainable=True, error_clip=None
    )
    assert block.var("master") is made
    assert framework.Variable(block, name="v", shape=[3], dtype="float32") is block.var("v")
    twin = fluid.default_main_program().clone().global_block().var("master")
    assert (type(twin), twin.shape, twin.optimize_attr) == (
        framework.Parameter,
        (2, 2),
        {"learning_rate": 1.0},
    )


def test_operators_take_the_role_that_a_script_sets_on_the_program() -> None:
    program = fluid.default_main_program()
    before = program._current_role
    program._current_role = core.op_proto_and_checker_maker.OpRole.Backward
    fluid.layers.fill_constant([1], "float32", 1.0)
    program._current_role = before
    fluid.layers.fill_constant([1], "float32", 1.0)
    assert [op.attr("op_role") for op in program.global_block().ops] == [1, 0]


def test_names_before_1_0_work_on_blocks_operators_and_programs() -> None:
    x = fluid.layers.data("x", [3])
    fluid.layers.dropout(x, 0.5)
    program = fluid.default_main_program()
    block = program.global_block()
    one = {"shape": [1], "dtype": core.VarDesc.VarType.FP32, "value": 1.0}
    for add in (block.prepend_op, lambda **op: block.insert_op(1, **op)):
        add(type="fill_constant", outputs={"Out": block.create_var(shape=[1])}, attrs=one)
    assert [op.type for op in block.slice_ops(0, 3)] == ["fill_constant", "fill_constant", "dropout"]
    assert block.ops[1].block is block
    block.remove_op(0)
    block.ops[1].set_attr("is_test", True)
    with program.optimized_guard(["p", "g"]):
        assert (
            block.append_op("fill_constant", {}, {"Out": block.create_var(shape=[1])}, one).attr("op_role")
            == 2
        )
    out = block.ops[1].output("Out")
    assert fluid.Executor(fluid.CPUPlace()).run(feed={"x": X}, fetch_list=out)[0].tolist() == (X / 2).tolist()


def test_a_program_for_inference_reads_no_batches() -> None:
    reader = fluid.layers.py_reader(2, [[-1, 3]], ["float32"])
    fluid.layers.dropout(fluid.layers.read_file(reader), 0.5)
    ops = fluid.default_main_program()._inference_optimize().global_block().ops
    assert [(op.type, op.attr("is_test")) for op in ops] == [("dropout", True)]
    assert fluid.default_main_program()._inference_optimize(False).global_block().ops[0].type == "read"


def test_a_variable_of_a_scope_is_found_before_it_has_a_value() -> None:
    scope: Any = core.Scope()
    assert scope.find_var("x") is None
    scope.var("x")
    found = scope.new_scope().find_var("x")
    assert found is not None
    assert not found.get_tensor()._is_initialized()
    found.set_int(3)
    assert (found.is_int(), found.is_float(), scope.find_var("x").get_int()) == (True, False, 3)
    found.set_float(0.5)
    assert (found.is_float(), found.get_float()) == (True, 0.5)


def test_selected_rows_can_be_made_alone() -> None:
    rows = core.SelectedRows([0, 4, 7], 10)
    rows.get_tensor().set(np.full((3, 2), 2.0, np.float32), fluid.CPUPlace())
    rows.set_height(12)
    assert (rows.rows(), rows.height(), rows.numel()) == ([0, 4, 7], 12, 6)
    assert np.array(rows.get_tensor()).tolist() == [[2.0, 2.0]] * 3


def test_sequences_set_before_or_beside_the_rows_of_a_tensor_remain() -> None:
    tensor = fluid.LoDTensor()
    tensor.set_lod([[0, 1, 3]])
    for rows in (np.zeros((3, 1), np.int64), np.ones((3, 1), np.int64)):
        tensor.set(rows, fluid.CPUPlace())
        assert tensor.lod() == [[0, 1, 3]]
    tensor.set(np.zeros((4, 1), np.int64), fluid.CPUPlace())
    assert tensor.lod() == [[0, 1, 3]]
    assert not tensor.has_valid_recursive_sequence_lengths()
    assert np.array(tensor).shape == (4, 1)
    with pytest.raises(ValueError, match=r"\(4, 1\).*\[\[0, 1, 3\]\].*set_lod"):
        tensor.value()
    tensor.set_lod([[0, 4]])
    assert tensor.has_valid_recursive_sequence_lengths()


def test_a_value_of_a_scope_is_fetched_by_name() -> None:
    step(fluid.optimizer.SGD(0.5), linear())
    assert fluid.executor._fetch_var("learning_rate_0").tolist() == [0.5]
    with pytest.raises(core.EnforceNotMet, match="absent"):
        fluid.executor.fetch_var("absent")


def test_only_the_callback_for_error_clips_is_accepted() -> None:
    loss = linear()
    with pytest.raises(ValueError, match="lambda"):
        fluid.backward.append_backward(loss, callbacks=[lambda block, context: None])
    pairs = fluid.backward.append_backward(loss, callbacks=[fluid.clip.error_clip_callback])
    assert [parameter.name for parameter, _ in pairs] == ["w"]


def test_dtypes_and_suffixes_have_the_names_of_the_original() -> None:
    assert framework.convert_np_dtype_to_dtype_("float32") == core.VarDesc.VarType.FP32
    assert framework.dtype_is_floating(core.VarDesc.VarType.FP16)
    assert not framework.dtype_is_floating("int64")
    assert framework.grad_var_name("x") == "x@GRAD" == "x" + core.kGradVarSuffix()
    assert not fluid.in_dygraph_mode()


def test_variables_of_one_name_are_handles_that_share_all_settings() -> None:
    block = fluid.default_main_program().global_block()
    first = fluid.layers.data("x", [3])
    second = framework.Variable(block, name="x")
    assert (second.describe(), second.stop_gradient) == ("x (-1, 3) float32", True)
    second.stop_gradient = False
    second.persistable = True
    assert (first.stop_gradient, block.var("x").persistable) == (False, True)
    assert block.create_var(name="x").shape == (-1, 3)


@pytest.mark.parametrize(
    "given",
    [
        {"shape": [4], "dtype": "float32"},
        {"dtype": "int64"},
        {"lod_level": 1},
        {"type": core.VarDesc.VarType.SELECTED_ROWS},
    ],
)
def test_a_second_variable_of_a_name_with_another_description_is_refused(given: Any) -> None:
    block = fluid.default_main_program().global_block()
    fluid.layers.data("x", [3])
    for make in (block.create_var, lambda **named: framework.Variable(block, **named)):
        with pytest.raises(ValueError, match="x"):
            make(name="x", **given)
    assert block.var("x").describe() == "x (-1, 3) float32"


def test_the_settings_of_the_last_declaration_of_a_parameter_count() -> None:
    x = fluid.layers.data("x", [3])
    rates = [fluid.ParamAttr(name="w", learning_rate=rate) for rate in (2.0, 3.0)]
    sides = [fluid.layers.fc(x, 2, param_attr=attr, bias_attr=False) for attr in rates]
    first = fluid.default_main_program().global_block().ops[0].input("Y")
    loss = fluid.layers.reduce_sum(fluid.layers.sums(sides)) * 0.25
    assert first == ["w"]
    np.testing.assert_allclose(step(fluid.optimizer.SGD(0.5), loss), np.full((3, 2), 1.5), rtol=1e-6)


def test_a_parameter_takes_the_place_of_a_variable_that_a_file_described() -> None:
    program = fluid.Program.parse_from_string(
        (linear(), fluid.default_main_program())[1].desc.serialize_to_string()
    )
    block = program.global_block()
    before = block.var("w")
    made = framework.Parameter(
        block, before.shape, before.dtype, name="w", optimize_attr={"learning_rate": 2.0}
    )
    assert (block.var("w") is made, block.all_parameters()) == (True, [made])
    made.stop_gradient = True
    assert before.stop_gradient
