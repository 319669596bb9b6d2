# SPDX-License-Identifier: Apache-2.0
"""Operators by themselves: described, declared by hand in a block, and run on a scope without a program."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.framework import OpProtoHolder
from paddle.fluid.run.scope import find_var, get_cur_scope, leave_local_scope, scoped_function, var
from paddle.fluid.run.single_operator import Operator

PLACE = fluid.CPUPlace()


def test_modules_have_the_names_that_scripts_import() -> None:
    assert import_module("paddle.fluid.op").Operator is Operator
    assert import_module("paddle.fluid.default_scope_funcs").get_cur_scope is get_cur_scope


def filled(**values: Any) -> fluid.Scope:
    """Return a scope with these values: arrays, or pairs (array, lengths of sequences)."""
    scope = fluid.Scope()
    for name, value in values.items():
        tensor = scope.var(name).get_tensor()
        rows, lengths = value if isinstance(value, tuple) else (value, [])
        tensor.set(rows, PLACE)
        if lengths:
            tensor.set_recursive_sequence_lengths(lengths)
    return scope


def tensor_in(scope: fluid.Scope, name: str) -> fluid.LoDTensor:
    handle = scope.find_var(name)
    assert handle is not None
    return handle.get_tensor()


def test_an_operator_runs_on_the_values_of_a_scope_as_often_as_they_change() -> None:
    scope = filled(x=np.ones((2, 3)))
    double = Operator("scale", X="x", Out="y", scale=2.0)
    double.run(scope, PLACE)
    assert np.array(tensor_in(scope, "y")).tolist() == [[2.0] * 3] * 2
    tensor_in(scope, "x").set(np.full((1, 3), 4, "float32"), PLACE)
    double.run(scope, PLACE)
    assert np.array(tensor_in(scope, "y")).tolist() == [[8.0] * 3]
    assert tensor_in(scope, "y")._dtype() == core.VarDesc.VarType.FP32


def test_an_operator_takes_lists_and_sequences_and_changes_its_input_in_place() -> None:
    rows = np.array([[1.0], [2.0], [4.0]])
    scope = filled(a=(rows, [[1, 2]]), b=(rows, [[1, 2]]), rate=np.array([0.5]))
    Operator("sum", X=["a", "b"], Out="total").run(scope, PLACE)
    assert tensor_in(scope, "total").recursive_sequence_lengths() == [[1, 2]]
    Operator("sequence_pool", X="total", Out="pooled", MaxIndex="at", pooltype="SUM").run(scope, PLACE)
    assert np.array(tensor_in(scope, "pooled")).tolist() == [[2.0], [12.0]]
    Operator("sgd", Param="pooled", Grad="pooled", LearningRate="rate", ParamOut="pooled").run(scope, PLACE)
    assert np.array(tensor_in(scope, "pooled")).tolist() == [[1.0], [6.0]]


def test_an_operator_that_does_not_fit_is_refused() -> None:
    with pytest.raises(core.EnforceNotMet, match=r"no attribute 'scael'.*'scale'"):
        Operator("scale", X="x", Out="y", scael=2.0)
    with pytest.raises(core.EnforceNotMet, match="output 'Out', got none"):
        Operator("scale", X="x")
    with pytest.raises(core.EnforceNotMet, match="'nowhere'"):
        Operator("scale", X="nowhere", Out="y").run(fluid.Scope(), PLACE)


def test_descriptions_list_slots_and_attributes_with_their_types() -> None:
    proto = OpProtoHolder.instance().get_op_proto("sequence_pool")
    assert [(each.name, each.duplicable, each.intermediate) for each in proto.outputs] == [
        ("Out", False, False),
        ("MaxIndex", False, True),
    ]
    types = {each.name: each.type for each in proto.attrs if not each.generated}
    assert types == {"is_test": core.AttrType.BOOLEAN, "pooltype": core.AttrType.STRING, "pad_value": 1}
    assert {each.name: each.dispensable for each in OpProtoHolder.instance().get_op_proto("lstm").inputs} == {
        "Input": False, "H0": True, "C0": True, "Weight": False, "Bias": False,
    }  # fmt: skip
    assert Operator.get_op_inputs("sum") == [("X", True)]
    assert [each.type for each in core.get_all_op_protos()] == Operator.types()


def test_variables_of_an_operator_may_all_be_declared_with_one_dtype() -> None:
    block = fluid.default_main_program().global_block()
    shapes = {"W": [5, 2], "Ids": [3, 1], "Out": [3, 2], "Best": [3, 1], "Indices": [3, 1]}
    made = {name: block.create_var(name=name, shape=shape, dtype="float64") for name, shape in shapes.items()}
    op = block.append_op("lookup_table", {"W": made["W"], "Ids": made["Ids"]}, {"Out": made["Out"]})
    block.append_op("top_k", {"X": made["Out"]}, {"Out": made["Best"], "Indices": made["Indices"]}, {"k": 1})
    op.desc.infer_var_type(block.desc)
    op.desc.infer_shape(block.desc)
    loss = block.create_var(name="loss", shape=[1], dtype="float64")
    block.append_op("mean", {"X": made["Out"]}, {"Out": loss})
    pairs = fluid.backward.append_backward(loss, parameter_list=["W"])
    ids = core.LoDTensor()
    ids.set(np.array([[4], [0], [4]], "int32"), PLACE)
    feed = {"W": np.arange(10.0).reshape(5, 2), "Ids": ids}
    exe = fluid.Executor(PLACE)
    found, at, gradient = exe.run(feed=feed, fetch_list=["Out", "Indices", pairs[0][1]])
    assert (found.tolist(), found.dtype) == ([[8.0, 9.0], [0.0, 1.0], [8.0, 9.0]], np.dtype("float64"))
    assert (at.tolist(), at.dtype) == ([[1]] * 3, np.dtype("int64"))
    np.testing.assert_allclose(gradient[:, 0], [1 / 6, 0, 0, 0, 1 / 3])


def test_a_variable_of_a_program_file_keeps_its_dtype_when_integers_are_fed() -> None:
    fluid.layers.scale(fluid.layers.data("x", [2]), 0.5, name="half")
    program = fluid.Program.parse_from_string(fluid.default_main_program().serialize_to_string())
    fed = core.LoDTensor()
    fed.set(np.array([[1, 3]], "int64"), PLACE)
    out = program.global_block().ops[0].outputs["Out"]
    (found,) = fluid.Executor(PLACE).run(program, feed={"x": fed}, fetch_list=out)
    assert (found.tolist(), found.dtype) == ([[0.5, 1.5]], np.dtype("float32"))


def test_a_layer_still_refuses_numbers_where_it_needs_ids() -> None:
    x = fluid.layers.data("x", [1])
    table = fluid.layers.create_parameter([5, 2], "float32")
    with pytest.raises(core.EnforceNotMet, match="int64, got"):
        fluid.default_main_program().global_block().append_op(
            "lookup_table", {"W": table, "Ids": x}, {"Out": "found"}
        )


def test_outputs_are_inferred_again_after_an_attribute_changed() -> None:
    x = fluid.layers.data("x", [2, 3], append_batch_size=False)
    out = fluid.layers.transpose(x, [0, 1])
    assert out.op is not None
    out.op._set_attr("axis", [1, 0])
    out.op.desc.infer_shape(out.op.block.desc)
    assert out.shape == (3, 2)


def test_selected_rows_are_made_in_a_scope_and_update_a_parameter() -> None:
    scope = filled(w=np.ones((4, 2), "float32"), rate=np.ones(1, "float32"))
    rows = scope.var("g").get_selected_rows()
    rows.set_height(4)
    rows.set_rows([3, 1, 3])
    rows.get_tensor().set(np.full((3, 2), 0.25, "float32"), PLACE)
    assert (rows.rows(), rows.height(), rows.get_tensor().shape()) == ([3, 1, 3], 4, [3, 2])
    Operator("sgd", Param="w", Grad="g", LearningRate="rate", ParamOut="w").run(scope, PLACE)
    assert np.array(tensor_in(scope, "w"))[:, 0].tolist() == [1.0, 0.75, 1.0, 0.5]
    with pytest.raises(TypeError, match="'w' holds ndarray"):
        scope.var("w").get_selected_rows()


def test_a_local_scope_is_dropped_after_its_function() -> None:
    outer = get_cur_scope()
    var("outer").get_tensor().set(np.ones(1), PLACE)
    seen = []

    def inside() -> None:
        var("inner").get_tensor().set(np.ones(1), PLACE)
        seen.append((get_cur_scope() is outer, find_var("outer") is None, find_var("inner") is None))

    scoped_function(inside)
    assert seen == [(False, False, False)]
    assert get_cur_scope() is outer
    assert find_var("inner") is None
    with pytest.raises(RuntimeError, match="no local scope"):
        leave_local_scope()


def test_integers_are_compared_with_a_number_that_has_a_fraction() -> None:
    x = fluid.layers.data("numbers", [4], dtype="int64")
    numbers = np.array([[-1, 0, 2, 3]])
    compared = [x < 2.5, x <= 2.5, x > 2.5, x >= np.float32(2.5), x < -0.5, x > -0.5]
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"numbers": numbers}, fetch_list=compared)
    expected = [numbers < 2.5, numbers <= 2.5, numbers > 2.5, numbers >= 2.5, numbers < -0.5, numbers > -0.5]
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]
    with pytest.raises(TypeError, match="cannot represent inf"):
        x < float("inf")  # noqa: B015
