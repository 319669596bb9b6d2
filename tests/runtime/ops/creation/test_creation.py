# SPDX-License-Identifier: Apache-2.0
"""Random operators: their distribution, and that seed, name and step alone decide what they draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle import backend
from paddle.graph import Executor, Program, Scope
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.run_op import run_op

_SHAPE = [200, 50]


def _draw(op_type: str, *, seed: int = 0, program_seed: int = 1, name: str = "out", step: int = 0) -> Any:
    program = Program()
    program.random_seed = program_seed
    program.global_block().append_op(op_type, {}, {"Out": name}, {"shape": _SHAPE, "seed": seed})
    return Executor().run(program, {}, [name], Scope(), step=step)[0]


@pytest.mark.parametrize("op_type", ["uniform_random", "gaussian_random", "truncated_gaussian_random"])
def test_seed_name_and_step_decide_what_is_drawn(op_type: str) -> None:
    drawn = _draw(op_type)
    np.testing.assert_array_equal(drawn, _draw(op_type))
    np.testing.assert_array_equal(_draw(op_type, seed=4), _draw(op_type, seed=4, program_seed=9))
    for other in (
        _draw(op_type, program_seed=2),
        _draw(op_type, name="other"),
        _draw(op_type, step=1),
        _draw(op_type, seed=4),
    ):
        assert not np.array_equal(drawn, other)


def test_uniform_numbers_fill_their_range() -> None:
    (drawn,) = run_op("uniform_random", {}, {"shape": _SHAPE, "min": 2.0, "max": 6.0})
    assert drawn.dtype == np.float32
    assert 2.0 <= drawn.min() < 2.01
    assert 5.99 < drawn.max() < 6.0
    assert drawn.mean() == pytest.approx(4.0, abs=0.05)


def test_gaussian_numbers_have_their_mean_and_deviation() -> None:
    (drawn,) = run_op("gaussian_random", {}, {"shape": _SHAPE, "mean": 3.0, "std": 0.5, "dtype": "float64"})
    assert drawn.dtype == np.float64
    assert drawn.mean() == pytest.approx(3.0, abs=0.02)
    assert drawn.std() == pytest.approx(0.5, abs=0.02)


def test_truncated_numbers_stay_within_two_deviations() -> None:
    (drawn,) = run_op("truncated_gaussian_random", {}, {"shape": _SHAPE, "mean": 1.0, "std": 0.5})
    assert np.abs(drawn - 1.0).max() <= 1.0
    assert drawn.std() == pytest.approx(0.5 * 0.8796, abs=0.02)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_leaves_the_rest_as_it_is(probability: float) -> None:
    out, mask = run_op("dropout", {"X": np.full((100, 100), 3.0)}, {"dropout_prob": probability})
    assert set(np.unique(out)) == {0.0, 3.0}
    assert (mask == 0).mean() == pytest.approx(probability, abs=0.02)
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(out, 3.0 * mask)


def test_upscaling_dropout_divides_the_rest_by_its_share() -> None:
    attrs = {"dropout_prob": 0.5, "dropout_implementation": "upscale_in_train"}
    out, _ = run_op("dropout", {"X": np.full((10, 10), 3.0)}, attrs)
    assert set(np.unique(out)) == {0.0, 6.0}


@pytest.mark.parametrize(
    ("implementation", "factor"), [("downgrade_in_infer", 0.75), ("upscale_in_train", 1.0)]
)
def test_dropout_in_test_mode_only_scales(implementation: str, factor: float) -> None:
    attrs = {"dropout_prob": 0.25, "is_test": True, "dropout_implementation": implementation}
    x = np.arange(4.0)
    np.testing.assert_allclose(run_op("dropout", {"X": x}, attrs)[0], x * factor)


def test_a_generator_depends_on_every_part_of_its_key() -> None:
    keys = [(1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (-1, 2, 3)]
    first = [backend.rng(*key).integers(0, 2**62) for key in keys]
    assert len(set(first)) == len(keys)
    assert backend.rng(*keys[0]).integers(0, 2**62) == first[0]


def test_rows_of_random_numbers_are_as_many_as_those_of_the_input() -> None:
    like = np.zeros((500, 2))
    for op, low, high in (("uniform_random", -1.0, 1.0), ("gaussian_random", -9.0, 9.0)):
        (out,) = run_op(f"{op}_batch_size_like", {"Input": like}, {"shape": [-1, 3]})
        assert (out.shape, out.dtype) == ((500, 3), np.float32)
        assert low <= out.min() < -0.5
        assert 0.5 < out.max() <= high


def test_columns_are_drawn_by_their_chances() -> None:
    (drawn,) = run_op("sampling_id", {"X": np.tile([0.0, 0.75, 0.25], (2000, 1))})
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 2000, [0, 0.75, 0.25], atol=0.04)


def test_numbers_are_spaced_evenly() -> None:
    assert run_op("range", {"Start": np.array([1]), "End": np.array([8]), "Step": np.array([3])})[
        0
    ].tolist() == [1, 4, 7]
    inputs = {"Start": np.array([0.0]), "Stop": np.array([1.0]), "Num": np.array([5])}
    assert run_op("linspace", inputs)[0].tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_each_row_comes_from_the_input_its_id_names() -> None:
    x = [np.full((3, 2), float(number)) for number in range(3)]
    (out,) = run_op("multiplex", {"Ids": np.array([[2], [0], [1]]), "X": x})
    assert out[:, 0].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("lengths", "expected"), [([[2, 0, 3]], (3, 4)), ([[2, 1], [1, 3, 1]], (3, 4)), ([[]], (0, 4))]
)
def test_a_batch_of_sequences_is_as_large_as_there_are_sequences(
    lengths: list[list[int]], expected: tuple[int, ...]
) -> None:
    like = LoDArray(np.zeros((sum(lengths[-1]), 7)), offsets_of(lengths))
    (out,) = run_op("fill_constant_batch_size_like", {"Input": like}, {"shape": [-1, 4], "value": 2.0})
    assert out.shape == expected
    assert not isinstance(out, LoDArray)
    assert (out == 2).all()
    (across,) = run_op(
        "fill_constant_batch_size_like",
        {"Input": like},
        {"shape": [5, -1], "input_dim_idx": 1, "output_dim_idx": 1},
    )
    assert across.shape == (5, 7)
