# SPDX-License-Identifier: Apache-2.0
"""append_backward: which gradients are made, under which names, and that shared and branching values add up."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.graph import Executor, Parameter, SelectedRows, append_backward
from paddle.graph.errors import BackwardError
from paddle.ops.base.dtypes import VarType
from tests.runtime.graph.sample_programs import Builder, filled_scope, with_gradients, word_feed, word_program


def _types(build: Builder) -> list[str]:
    return [op.type for op in build.block.ops]


def test_pairs_come_in_the_order_the_parameters_were_created() -> None:
    _, loss = word_program()
    pairs = append_backward(loss)
    assert [parameter.name for parameter, _ in pairs] == [
        "table",
        "hidden.w",
        "hidden.b",
        "output.w",
        "output.b",
    ]
    assert all(gradient.name == f"{parameter.name}@GRAD" for parameter, gradient in pairs)
    assert all(gradient.shape == parameter.shape for parameter, gradient in pairs)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_table_used_four_times_gets_the_sum_of_four_gradients(sparse: bool) -> None:
    build, loss = word_program(sparse=sparse, dropout=0)
    names = with_gradients(loss)
    assert build.block.ops[-1].type == "sum"
    assert build.block.ops[-1].inputs["X"] == tuple(f"table@GRAD@RENAME@{n}" for n in range(4))
    scope, executor, feed = filled_scope(build.program), Executor(), word_feed()
    gradient = executor.run(build.program, feed, [names[0]], scope)[0]
    assert isinstance(gradient, SelectedRows) is sparse
    dense = gradient.to_dense() if sparse else gradient
    table, step = scope.get("table"), 1e-5
    touched = np.unique(np.concatenate([feed[f"word_{n}"] for n in range(4)]))
    for row in touched[:5]:
        kept = table[row, 1]
        sides = []
        for value in (kept + step, kept - step):
            table[row, 1] = value
            sides.append(executor.run(build.program, feed, [loss], scope)[0].item())
        table[row, 1] = kept
        np.testing.assert_allclose(dense[row, 1], (sides[0] - sides[1]) / (2 * step), rtol=1e-5)
    untouched = np.setdiff1d(np.arange(len(dense)), touched)
    assert not dense[untouched].any()


def test_a_sparse_gradient_has_unique_ascending_rows() -> None:
    build, loss = word_program()
    names = with_gradients(loss)
    (gradient,) = Executor().run(build.program, word_feed(batch=50), names[:1], filled_scope(build.program))
    assert (np.diff(gradient.rows) > 0).all()
    assert gradient.height == 30


def test_a_sparse_and_a_dense_gradient_of_one_table_add_up_to_a_dense_one() -> None:
    build = Builder()
    table = build.parameter("table", (4, 2))
    ids = build.data("ids", (-1, 1), "int64")
    rows = build.op("lookup_table", {"W": table, "Ids": ids}, {"is_sparse": True})
    total = build.op("sum", {"X": [build.op("mean", {"X": rows}), build.op("mean", {"X": table})]})
    append_backward(total)
    feed = {"ids": np.array([[1], [1]])}
    (gradient,) = Executor().run(build.program, feed, ["table@GRAD"], filled_scope(build.program))
    of_rows = np.array([[0.0], [0.5], [0.0], [0.0]])
    np.testing.assert_allclose(gradient, np.full((4, 2), 1 / 8) + of_rows)


def test_a_value_read_twice_by_one_operator_gets_both_shares() -> None:
    build = Builder()
    w = build.parameter("w", (3,))
    append_backward(build.op("mean", {"X": build.op("elementwise_mul", {"X": w, "Y": w})}))
    scope = filled_scope(build.program)
    (gradient,) = Executor().run(build.program, {}, ["w@GRAD"], scope)
    np.testing.assert_allclose(gradient, 2 * scope.get("w") / 3)


def test_the_sum_stands_right_before_the_first_reader() -> None:
    build = Builder()
    inner = build.op("tanh", {"X": build.parameter("w", (3,))})
    both = build.op("sum", {"X": [build.op("square", {"X": inner}), build.op("exp", {"X": inner})]})
    append_backward(build.op("mean", {"X": both}))
    assert _types(build)[-2:] == ["sum", "tanh_grad"]


def test_nothing_is_derived_behind_stop_gradient() -> None:
    build = Builder()
    frozen = build.op("tanh", {"X": build.parameter("frozen", (3,))})
    frozen.stop_gradient = True
    total = build.op("elementwise_mul", {"X": build.parameter("w", (3,)), "Y": frozen})
    pairs = append_backward(build.op("mean", {"X": total}))
    assert [parameter.name for parameter, _ in pairs] == ["w"]
    assert "tanh_grad" not in _types(build)


def test_parameters_that_are_not_trainable_get_no_gradient() -> None:
    build = Builder()
    total = build.op(
        "elementwise_mul",
        {"X": build.parameter("w", (3,)), "Y": build.parameter("still", (3,), trainable=False)},
    )
    pairs = append_backward(build.op("mean", {"X": total}))
    assert [parameter.name for parameter, _ in pairs] == ["w"]
    assert not build.block.has_var("still@GRAD")


def test_the_first_layer_gets_no_gradient_of_its_data() -> None:
    build = Builder()
    out = build.fc(build.data("x", (-1, 4)), 2, "fc")
    append_backward(build.op("mean", {"X": out}))
    (grad,) = [op for op in build.block.ops if op.type == "mul_grad"]
    assert grad.outputs["X@GRAD"] == ("@EMPTY@",)


def test_data_without_stop_gradient_gets_its_gradient() -> None:
    build = Builder()
    x = build.block.create_var("x", (3,), build.dtype)
    append_backward(build.op("mean", {"X": build.op("square", {"X": x})}))
    value = np.array([1.0, -2.0, 3.0])
    (gradient,) = Executor().run(build.program, {"x": value}, ["x@GRAD"])
    np.testing.assert_allclose(gradient, 2 * value / 3)


def test_a_parameter_list_keeps_the_others_out() -> None:
    build, loss = word_program()
    pairs = append_backward(loss, parameter_list=["output.b"])
    assert [parameter.name for parameter, _ in pairs] == ["output.b"]
    assert "lookup_table_grad" not in _types(build)


def test_a_no_grad_set_lets_nothing_through() -> None:
    build, loss = word_program()
    hidden = next(op for op in build.block.ops if op.type == "sigmoid").writes[0]
    pairs = append_backward(loss, no_grad_set={hidden})
    assert [parameter.name for parameter, _ in pairs] == ["output.w", "output.b"]


def test_an_output_that_nobody_reads_counts_as_zero() -> None:
    build = Builder()
    w = build.parameter("w", (2, 4))
    build.block.append_op("split", {"X": w}, {"Out": ["left", "right"]}, {"num": 2, "axis": 1})
    append_backward(build.op("reduce_sum", {"X": "left"}, {"reduce_all": True}))
    (gradient,) = Executor().run(build.program, {}, ["w@GRAD"], filled_scope(build.program))
    np.testing.assert_array_equal(gradient, [[1, 1, 0, 0], [1, 1, 0, 0]])


def test_two_losses_in_one_program_have_gradients_of_their_own() -> None:
    build = Builder()
    w = build.parameter("w", (3,))
    first = append_backward(build.op("mean", {"X": w}))
    second = append_backward(build.op("mean", {"X": build.op("scale", {"X": w}, {"scale": 3.0})}))
    names = [first[0][1].name, second[0][1].name]
    one, three = Executor().run(build.program, {}, names, filled_scope(build.program))
    np.testing.assert_allclose(three, 3 * one)


def test_a_loss_of_several_numbers_is_refused() -> None:
    build = Builder()
    loss = build.op("square", {"X": build.parameter("w", (3,))})
    with pytest.raises(BackwardError, match=r"loss square_1 \(3,\).*append a mean or reduce_sum"):
        append_backward(loss)


def test_a_loss_that_no_parameter_reaches_is_refused() -> None:
    build = Builder()
    with pytest.raises(BackwardError, match="does not depend on any trainable parameter"):
        append_backward(build.op("mean", {"X": build.data("x", (3,))}))


def test_operators_without_a_gradient_let_none_through() -> None:
    build = Builder()
    w = build.parameter("w", (3, 1))
    same_size = build.op(
        "fill_constant_batch_size_like", {"Input": w}, {"shape": [-1, 1], "value": 2.0, "dtype": VarType.FP64}
    )
    with pytest.raises(BackwardError, match="does not depend on any trainable parameter"):
        append_backward(build.op("mean", {"X": same_size}))
    both = build.op("elementwise_mul", {"X": w, "Y": same_size})
    ((parameter, gradient),) = append_backward(build.op("mean", {"X": both}))
    (found,) = Executor().run(build.program, {}, [gradient.name], filled_scope(build.program))
    np.testing.assert_allclose(found, np.full((3, 1), 2 / 3), rtol=1e-6)
    assert parameter.name == "w"


def test_a_loss_over_an_output_that_has_no_gradient_is_refused() -> None:
    build = Builder()
    x = build.parameter("w", (1, 4, 2, 2))
    build.block.append_op("lrn", {"X": x}, {"Out": "out", "MidOut": "mid"})
    with pytest.raises(BackwardError, match=r"lrn.*'MidOut', which has no gradient"):
        append_backward(build.op("mean", {"X": "mid"}))


def test_a_variable_written_twice_on_the_way_is_refused() -> None:
    build = Builder()
    build.parameter("w", (3,))
    build.block.append_op("tanh", {"X": "w"}, {"Out": "y"})
    build.block.append_op("exp", {"X": "y"}, {"Out": "y"})
    with pytest.raises(BackwardError, match="'y' is written 2 times"):
        append_backward(build.op("mean", {"X": "y"}))


def test_gradients_of_parameters_are_not_parameters() -> None:
    build, loss = word_program()
    append_backward(loss)
    assert not any(name.endswith("@GRAD") for name in map(str, build.block.all_parameters()))
    assert not isinstance(build.block.var("table@GRAD"), Parameter)
