# SPDX-License-Identifier: Apache-2.0
"""Values as scripts give and take them: dtypes that differ, comparisons of variables, sequences in the scope, Print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.errors import PaddleError

layers = fluid.layers


def _run(feed: dict[str, Any], *fetches: Any, return_numpy: bool = True) -> list[Any]:
    return fluid.Executor(fluid.CPUPlace()).run(
        feed=feed, fetch_list=list(fetches), return_numpy=return_numpy
    )


@pytest.mark.parametrize("declared", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("given", ["int32", "int64", "uint8", "bool"])
def test_whole_numbers_fill_variables_of_other_dtypes(declared: str, given: str) -> None:
    x = layers.data("x", [3], dtype=declared)
    doubled = layers.elementwise_add(x, x)
    (found,) = _run({"x": np.array([[0, 1, 1]], given)}, doubled)
    assert found.dtype == declared
    assert found.tolist() == [[0, 2, 2]]


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        ("float32", np.array([[0.5]])),
        ("int64", np.array([[1.0]], "float32")),
        ("float32", np.array([[2**24 + 1]])),
        ("float32", np.array([[2**53 + 1]])),
        ("float32", np.array([[2**63 - 1]])),
        ("float64", np.array([[2**53 + 1]])),
        ("float64", np.array([[2**64 - 1]], "uint64")),
        ("float16", np.array([[70_000]], "int32")),
        ("int32", np.array([[2**31]])),
        ("int64", np.array([[2**64 - 1]], "uint64")),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.dtype} {value[0, 0]}",
)
def test_numbers_that_a_dtype_cannot_hold_are_refused(declared: str, given: np.ndarray) -> None:
    x = layers.data("x", [1], dtype=declared)
    with pytest.raises(PaddleError, match=f"'x' fed.*pass it as .astype\\('{declared}'\\)"):
        _run({"x": given}, layers.elementwise_add(x, x))


def test_sequences_of_whole_numbers_are_converted_with_their_lengths() -> None:
    x = layers.data("x", [1], lod_level=1)
    tensor = fluid.create_lod_tensor(np.array([[1], [2], [3]]), [[2, 1]], fluid.CPUPlace())
    (found,) = _run({"x": tensor}, layers.sequence_pool(x, "sum"))
    assert found.tolist() == [[3.0], [3.0]]


def test_equality_of_variables_is_an_operator() -> None:
    guess, label = layers.data("guess", [1], dtype="int64"), layers.data("label", [1], dtype="int64")
    right = layers.mean(layers.cast(guess == label, "float32"))
    not_two = layers.cast(guess != 2, "int64")
    feed = {"guess": np.array([[1], [2], [3], [4]]), "label": np.array([[1], [2], [4], [3]])}
    found, others = _run(feed, right, not_two)
    assert found.tolist() == [0.5]
    assert others.tolist() == [[1], [0], [1], [1]]


def test_variables_are_compared_with_other_objects_and_are_keys() -> None:
    x, y = layers.data("x", [1]), layers.data("y", [1])
    count = len(fluid.default_main_program().global_block().ops)
    assert x != "x"
    assert (x == None) is False  # noqa: E711 (what scripts write)
    assert {x: 1, y: 2}[y] == 2
    assert len({x, y, x}) == 2
    assert len(fluid.default_main_program().global_block().ops) == count


def _lengths(variable: Any) -> list[list[int]]:
    found = fluid.global_scope().find_var(variable.name)
    assert found is not None
    return found.get_tensor().recursive_sequence_lengths()


def test_persistable_results_keep_their_sequences_in_the_scope() -> None:
    x = layers.data("x", [2])  # declared without sequences, fed with them
    hidden = layers.fc(x, 3, act="tanh")
    hidden.persistable = True
    pooled = layers.sequence_pool(hidden, "sum")
    state = layers.create_global_var([1, 2], 0.0, "float32", persistable=True)
    layers.assign(x, state)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rows = np.random.default_rng(0).standard_normal((5, 2)).astype("float32")
    for lengths in ([2, 3], [1, 1, 3]):
        feed = {"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}
        values, sums = exe.run(feed=feed, fetch_list=[hidden, pooled], return_numpy=False)
        assert values.recursive_sequence_lengths() == _lengths(hidden) == _lengths(state) == [lengths]
        expected = np.add.reduceat(np.array(values), np.cumsum([0, *lengths[:-1]]))
        np.testing.assert_allclose(np.array(sums), expected, rtol=1e-5)
    # Another program reads both, with their sequences; without them, after a run that had none.
    later = fluid.Program()
    with fluid.program_guard(later):
        twin = later.global_block().create_var(hidden.name, [-1, 3], "float32", persistable=True)
        last = layers.sequence_last_step(layers.scale(twin, 2.0))
        kept = layers.scale(twin, 1.0)
    found, again = exe.run(later, fetch_list=[last, twin], return_numpy=False)
    np.testing.assert_allclose(np.array(found), 2 * np.array(values)[[0, 1, 4]], rtol=1e-6)
    assert again.recursive_sequence_lengths() == [[1, 1, 3]]
    exe.run(feed={"x": rows}, fetch_list=[hidden])
    assert _lengths(hidden) == []
    assert exe.run(later.clone(), fetch_list=[kept.name])[0].shape == (5, 3)


def test_parameters_and_running_means_never_take_sequences() -> None:
    x = layers.data("x", [5], lod_level=1)
    y = layers.batch_norm(layers.fc(x, 5))  # as many channels as rows
    fluid.optimizer.Momentum(0.1, 0.9).minimize(layers.mean(layers.square(y)))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": fluid.create_lod_tensor(np.eye(5, dtype="float32"), [[2, 3]], fluid.CPUPlace())}
    exe.run(feed=feed)
    names = [each.name for each in fluid.default_main_program().list_vars() if each.persistable]
    assert len(names) > 6
    assert all(fluid.global_scope().find_var(name).get_tensor().lod() == [] for name in names)  # type: ignore[union-attr]


@pytest.mark.parametrize(("first_n", "shown"), [(2, 2), (-1, 4), (0, 4)])
def test_print_shows_the_first_runs(first_n: int, shown: int, capfd: pytest.CaptureFixture[str]) -> None:
    x = layers.data("x", [1])
    out = layers.Print(x, first_n=first_n, message="seen")
    exe = fluid.Executor(fluid.CPUPlace())
    for number in range(4):
        # Other fetches are another plan of the same operator.
        fetches = [out] if number % 2 else [out, layers.scale(out, 1.0)]
        exe.run(feed={"x": np.full((1, 1), number, "float32")}, fetch_list=fetches)
    assert capfd.readouterr().err.count("seen") == shown
