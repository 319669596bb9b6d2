# SPDX-License-Identifier: Apache-2.0
"""What scripts reach into: slices of variables, attributes of operators, descriptions, re-exported layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import FluidTypeError

VALUES = np.arange(24, dtype="float32").reshape(2, 3, 4)


def run(*fetches: Any, **feed: Any) -> list[Any]:
    found: list[Any] = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetches))
    return found


ITEMS: list[Any] = [
    0,
    -1,
    np.int64(1),
    slice(0, 1),
    slice(1, None),
    slice(None, -1),
    (slice(None), 1),
    (slice(None), slice(0, 2)),
    (slice(None), -1, slice(1, 3)),
    (0, 1),
    (Ellipsis, 0),
    (slice(None), Ellipsis, slice(-2, None)),
]


@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_a_variable_is_sliced_like_an_array(item: Any) -> None:
    x = fluid.layers.data("x", [3, 4])
    (found,) = run(x[item], x=VALUES)
    assert found.tolist() == VALUES[item].tolist()
    assert x[item].shape[1:] == VALUES[item].shape[1:]


def test_one_number_of_a_variable_has_shape_1() -> None:
    x = fluid.layers.data("x", [3, 4])
    (found,) = run(x[1, 2, 3], x=VALUES)
    assert (found.shape, found[0]) == ((1,), 23.0)


def test_a_slice_has_a_gradient() -> None:
    x = fluid.layers.data("x", [3, 4], stop_gradient=False)
    (grad,) = fluid.gradients(fluid.layers.reduce_sum(x[:, 1]), x)
    expected = np.zeros_like(VALUES)
    expected[:, 1] = 1
    assert run(grad, x=VALUES)[0].tolist() == expected.tolist()


@pytest.mark.parametrize("item", [slice(0, 4, 2), "a", 1.5])
def test_other_indices_are_refused_with_the_variable_s_name(item: Any) -> None:
    with pytest.raises(FluidTypeError, match=r"^x"):
        fluid.layers.data("x", [3, 4])[item]


def test_an_index_beyond_a_known_size_is_refused_and_a_variable_is_not_iterated_over() -> None:
    x = fluid.layers.data("x", [3, 4])
    with pytest.raises(IndexError):
        x[:, 3]
    with pytest.raises(TypeError):
        list(x)


def test_attributes_that_are_set_count_in_the_next_run_and_not_in_clones() -> None:
    x = fluid.layers.data("x", [3, 4])
    out = fluid.layers.scale(x, 2.0)
    program = fluid.default_main_program()
    twin = program.clone()
    exe = fluid.Executor(fluid.CPUPlace())
    assert exe.run(program, {"x": VALUES}, [out])[0][1, 2, 3] == 46
    (op,) = program.global_block().ops
    op._set_attr("scale", 3)  # type: ignore[attr-defined]
    op.desc.set_attr("bias", 1.0)  # type: ignore[attr-defined]
    assert (op.attr("scale"), op.block is program.global_block(), op.idx) == (3.0, True, 0)  # type: ignore[attr-defined]
    assert exe.run(program, {"x": VALUES}, [out])[0][1, 2, 3] == 70
    op.desc.remove_attr("bias")  # type: ignore[attr-defined]
    assert exe.run(program, {"x": VALUES}, [out])[0][1, 2, 3] == 69
    assert exe.run(twin, {"x": VALUES}, [out])[0][1, 2, 3] == 46


def test_an_operator_s_variables_are_renamed_in_place() -> None:
    x, y = fluid.layers.data("x", [3, 4]), fluid.layers.data("y", [3, 4])
    out = fluid.layers.scale(x, 2.0)
    op: Any = fluid.default_main_program().global_block().ops[-1]
    op._rename_input("x", "y")
    assert op.input_arg_names == ["y"]
    assert run(out, y=VALUES)[0][1, 2, 3] == 46
    assert y.op is None


def test_operators_name_their_slots_and_the_variables_in_them() -> None:
    x = fluid.layers.data("x", [3])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr="w", bias_attr=False))
    fluid.optimizer.SGD(0.1).minimize(loss)
    ops: Any = {op.type: op for op in fluid.default_main_program().global_block().ops}
    update, product = ops["sgd"], ops["mul"]
    assert update.input_names == ["Grad", "LearningRate", "Param"]
    assert update.input_arg_names == ["w@GRAD", *update.input("LearningRate"), "w"]
    assert (update.output_names, update.output_arg_names) == (["ParamOut"], ["w"])
    assert {slot: product.input(slot) for slot in product.input_names} == {"X": ["x"], "Y": ["w"]}
    assert (product.attr("x_num_col_dims"), product.has_attr("axis")) == (1, False)
    assert set(product.attr_names) == set(product.all_attrs())
    maker: Any = fluid.core.op_proto_and_checker_maker
    roles = [ops[kind].attr(maker.kOpRoleAttrName()) for kind in ("mul", "mean", "mul_grad", "sgd")]
    role = maker.OpRole
    assert roles == [role.Forward, role.Forward | role.Loss, role.Backward, role.Optimize]
    assert update.attr(maker.kOpRoleVarAttrName()) == ["w", "w@GRAD"]
    assert product.attr(maker.kOpNameScopeAttrName()) == "/"
    kinds = fluid.core.AttrType
    assert update.attr_type("op_role_var") == kinds.STRINGS
    assert ops["fill_constant"].desc.attr_type("shape") == kinds.LONGS
    assert "Y=['w']" in product.to_string(True)


def test_descriptions_answer_as_methods() -> None:
    x = fluid.layers.data("x", [3, 4], lod_level=1)
    fluid.layers.dropout(x, 0.5)
    program = fluid.default_main_program()
    block = program.desc.block(0)
    assert (program.desc.num_blocks(), block.id, block.parent, block.op_size()) == (1, 0, -1, 1)
    op = block.op(0)
    assert (op.type(), op.input_names(), op.input("X"), op.attr("dropout_prob")) == (
        "dropout",
        ["X"],
        ["x"],
        0.5,
    )
    assert op.output_arg_names() == program.global_block().ops[0].output_arg_names  # type: ignore[attr-defined]
    var = x.desc
    assert (var.name(), var.shape(), var.persistable(), var.lod_level()) == ("x", [-1, 3, 4], False, 1)
    assert var.dtype() == fluid.core.VarDesc.VarType.FP32
    var.set_persistable(True)
    assert x.persistable
    assert fluid.Program.parse_from_string(program.desc.serialize_to_string()).global_block().has_var("x")
    assert fluid.framework._get_var("x") is x


def test_whole_numbers_are_taken_for_attributes_that_are_true_or_false() -> None:
    x = fluid.layers.data("x", [12], lod_level=1)
    layers: Any = fluid.layers
    layers.dynamic_gru(x, 4, is_reverse=0)
    dropped = layers.dropout(x, 0.5, is_test=1)
    layers.batch_norm(dropped, is_test=np.int64(1), fuse_with_relu=True)
    ops: list[Any] = fluid.default_main_program().global_block().ops
    values = {op.type: op.attr("is_reverse" if op.type == "gru" else "is_test") for op in ops}
    assert values == {"gru": False, "dropout": True, "batch_norm": True}


def test_the_original_s_attribute_of_a_fused_relu_is_taken() -> None:
    fluid.layers.batch_norm(fluid.layers.data("x", [3]))
    fluid.default_main_program().global_block().ops[-1]._set_attr("fuse_with_relu", False)  # type: ignore[attr-defined]


def test_numpy_numbers_are_dimensions() -> None:
    x, layers = fluid.layers.data("x", [3, 4]), fluid.layers
    one: Any = np.int64(1)
    assert run(layers.reduce_sum(x, dim=one), x=VALUES)[0].tolist() == VALUES.sum(1).tolist()


def test_sizes_by_tensors_alone_reshape() -> None:
    x = fluid.layers.data("x", [3, 4])
    block = fluid.default_main_program().global_block()
    sizes = [fluid.layers.fill_constant([1], "int32", size) for size in (4, 6)]
    out = block.create_var("out", (4, 6))
    block.append_op("reshape2", {"X": x, "ShapeTensor": sizes}, {"Out": out})
    assert run(out, x=VALUES)[0].shape == (4, 6)


def test_unpadded_numbers_are_a_column() -> None:
    x = fluid.layers.data("x", [3], stop_gradient=False)
    length = fluid.layers.data("length", [1], dtype="int64")
    out = fluid.layers.sequence_unpad(x, length)
    grad: Any = fluid.gradients(fluid.layers.reduce_sum(out), x)[0]
    rows = np.arange(6, dtype="float32").reshape(2, 3)
    found, derived = fluid.Executor(fluid.CPUPlace()).run(
        feed={"x": rows, "length": np.array([[1], [2]])}, fetch_list=[out, grad], return_numpy=False
    )
    assert out.shape == (-1, 1)
    assert (np.array(found).tolist(), found.lod()) == ([[0.0], [3.0], [4.0]], [[0, 1, 3]])
    assert np.array(derived).tolist() == [[1, 0, 0], [1, 1, 0]]


def test_a_schedule_of_its_own_counts_steps() -> None:
    from paddle.fluid.layers.learning_rate_scheduler import _decay_step_counter

    step = _decay_step_counter()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    assert [float(exe.run(fetch_list=[step])[0]) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        ([[2, 3]], r"sequence lengths \[2, 3\] of level 0 .* add up to the 4 rows"),
        ([[1, 1], [2, 1, 1]], r"lengths \[1, 1\] of level 0 .* add up to the 3 sequences of level 1"),
    ],
)
def test_lengths_that_do_not_fit_are_told_as_lengths(lengths: list[list[int]], text: str) -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match=text):
        fluid.create_lod_tensor(np.zeros((4, 1), "float32"), lengths, fluid.CPUPlace())
