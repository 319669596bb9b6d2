# SPDX-License-Identifier: Apache-2.0
"""Fused operators equal the plain ones: softmax with cross entropy, the lookups of one table, decay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, append_backward
from paddle.graph.errors import ExecutionError
from paddle.ops.base.selected_rows import SelectedRows
from tests.runtime.graph.sample_programs import (
    Builder,
    filled_scope,
    with_gradients,
    word_feed,
    word_program,
)


def _gradient(logits: Any, label: Any, *, plain: bool, ignore_index: int = -100) -> Any:
    build = Builder(str(logits.dtype))
    x = build.block.create_parameter("x", logits.shape, logits.dtype)
    probabilities = build.op("softmax", {"X": x})
    label_variable = build.data("label", label.shape, "int64")
    inputs = {"X": probabilities, "Label": label_variable}
    costs = build.op("cross_entropy", inputs, {"ignore_index": ignore_index}, out="Y")
    append_backward(build.op("reduce_sum", {"X": costs}, {"reduce_all": True}))
    scope = filled_scope(build.program)
    scope.set("x", logits)
    # The gradient in between exists only in the plain form, so asking for it prevents the fused one.
    fetches = ["x@GRAD", *([f"{probabilities.name}@GRAD"] if plain else [])]
    return Executor().run(build.program, {"label": label}, fetches, scope)[0]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-13)])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_both_forms_agree(dtype: str, tolerance: float, scale: float) -> None:
    rng = np.random.default_rng(3)
    logits = (rng.standard_normal((6, 9)) * scale).astype(dtype)
    label = rng.integers(0, 9, (6, 1))
    fused, plain = (_gradient(logits, label, plain=plain) for plain in (False, True))
    np.testing.assert_allclose(fused, plain, rtol=tolerance, atol=tolerance)


def test_both_forms_agree_on_ignored_labels() -> None:
    rng = np.random.default_rng(4)
    logits, label = rng.standard_normal((5, 3)), np.array([[0], [2], [1], [2], [0]])
    fused, plain = (_gradient(logits, label, plain=plain, ignore_index=2) for plain in (False, True))
    np.testing.assert_allclose(fused, plain, atol=1e-13)
    assert not fused[[1, 3]].any()


def test_logits_too_far_apart_still_give_a_finite_gradient() -> None:
    logits, label = np.array([[0.0, -5000.0, 300.0]], "float32"), np.array([[1]])
    for plain in (False, True):
        assert np.isfinite(_gradient(logits, label, plain=plain)).all()


@pytest.mark.parametrize("batch", [0, 1, 8])
def test_the_gradients_of_several_lookups_in_a_table_are_summed_alike(batch: int) -> None:
    build, loss = word_program(dropout=0.0)
    with_gradients(loss)
    (part,) = [name for op in build.block.ops for name in op.writes if name.endswith("@RENAME@0")][:1]
    scope, feed = filled_scope(build.program), word_feed(batch)
    # The parts exist only in the plain form, so asking for one prevents the fused one.
    joined, plain = (
        Executor().run(build.program, feed, fetches, scope)[0]
        for fetches in (["table@GRAD"], ["table@GRAD", part])
    )
    assert isinstance(joined, SelectedRows)
    np.testing.assert_array_equal(joined.rows, plain.rows)
    np.testing.assert_allclose(joined.values, plain.values, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("shape", "dtype"), [((3, 4), "float64"), ((300, 256), "float32")])
def test_a_scaled_term_is_added_alike(shape: tuple[int, ...], dtype: str) -> None:
    build = Builder(dtype)
    grad = build.op("relu", {"X": build.data("x", shape)})
    decay = build.op("scale", {"X": build.parameter("w", shape)}, {"scale": 0.3})
    total = build.op("sum", {"X": [grad, decay]})
    scope = filled_scope(build.program)
    fed = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    # The scaled term exists only in the plain form, so asking for it prevents the fused one.
    fused, plain = (
        Executor().run(build.program, {"x": fed}, fetches, scope)[0] for fetches in ([total], [total, decay])
    )
    np.testing.assert_array_equal(fused, plain)


def test_a_scaled_value_that_changes_meanwhile_is_added_as_it_was() -> None:
    build = Builder()
    w, grad = build.parameter("w", (2,)), build.data("grad", (2,))
    decay = build.op("scale", {"X": w}, {"scale": 0.5})
    rate = build.data("rate", (1,))
    build.block.append_op("sgd", {"Param": w, "Grad": grad, "LearningRate": rate}, {"ParamOut": w}, {})
    total = build.op("sum", {"X": [grad, decay]})
    scope = filled_scope(build.program)
    expected = 0.5 * scope.get("w") + 1
    feed = {"grad": np.ones(2), "rate": np.ones(1)}
    (found,) = Executor().run(build.program, feed, [total], scope)
    np.testing.assert_allclose(found, expected)


def _lookups(
    axis: int = 1, shape: tuple[int, ...] = (-1, 1), padding_idx: int = -1, between: Any = None
) -> Any:
    """Return a builder, the rows of three lookups in two tables, and their concatenation with dense numbers."""
    build = Builder()
    table, other = build.parameter("table", (7, 2)), build.parameter("other", (5, 3))
    rows = []
    for name, source in (("a", table), ("b", table), ("c", other)):
        inputs = {"W": source, "Ids": build.data(name, shape, "int64")}
        rows.append(build.op("lookup_table", inputs, {"is_sparse": True, "padding_idx": padding_idx}))
    if between is not None:
        between(build, table)
    numbers = build.data("numbers", (*shape[:-1], 2))
    return build, rows, build.op("concat", {"X": [*rows, numbers]}, {"axis": axis})


@pytest.mark.parametrize("batch", [0, 1, 6])
@pytest.mark.parametrize("padding_idx", [-1, 2])
@pytest.mark.parametrize(("axis", "shape"), [(1, (-1, 1)), (-1, (-1, 1)), (2, (-1, 3, 1))])
def test_lookups_are_concatenated_alike(
    batch: int, padding_idx: int, axis: int, shape: tuple[int, ...]
) -> None:
    build, rows, joined = _lookups(axis, shape, padding_idx)
    append_backward(build.op("reduce_sum", {"X": build.op("square", {"X": joined})}, {"reduce_all": True}))
    rng, scope = np.random.default_rng(7), filled_scope(build.program)
    full = (batch, *shape[1:])
    feed: dict[str, Any] = {name: rng.integers(0, 5, full) for name in ("a", "b", "c")}
    feed["numbers"] = rng.standard_normal((*full[:-1], 2))
    wanted = [joined, "table@GRAD", "other@GRAD"]
    # Fetching the rows of one lookup prevents the fused form.
    fused, plain = (Executor().run(build.program, feed, each, scope) for each in (wanted, [*wanted, rows[1]]))
    np.testing.assert_array_equal(fused[0], plain[0])
    for found, expected in zip(fused[1:], plain[1:3], strict=True):
        np.testing.assert_array_equal(found.rows, expected.rows)
        np.testing.assert_array_equal(found.values, expected.values)


def test_lookups_of_a_table_that_changes_meanwhile_are_not_fused() -> None:
    def change(build: Builder, table: Any) -> None:
        build.block.append_op("increment", {"X": build.block.var("c")}, {"Out": build.block.var("c")})
        build.block.append_op("scale", {"X": table}, {"Out": table}, {"scale": 2.0})

    build, _, joined = _lookups(between=change)
    scope, ids = filled_scope(build.program), np.array([[1], [3]])
    before = scope.get("table").copy()
    feed = {"a": ids, "b": ids, "c": ids, "numbers": np.zeros((2, 2))}
    (found,) = Executor().run(build.program, feed, [joined], scope)
    np.testing.assert_array_equal(found[:, :2], before[[1, 3]])
    np.testing.assert_array_equal(found[:, 2:4], before[[1, 3]])
    np.testing.assert_array_equal(scope.get("table"), 2 * before)


def test_an_id_outside_the_table_names_its_variable() -> None:
    build, _, joined = _lookups()
    feed = {name: np.array([[1], [9 if name == "b" else 0]]) for name in ("a", "b", "c")}
    with pytest.raises(ExecutionError, match=r"'b', row 1 of Ids: id 9 is not in \[0, 7\)"):
        Executor().run(
            build.program, {**feed, "numbers": np.zeros((2, 2))}, [joined], filled_scope(build.program)
        )
