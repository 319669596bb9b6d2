# SPDX-License-Identifier: Apache-2.0
"""Numbers evenly spaced, and rows picked from several inputs."""

from __future__ import annotations

import numpy as np

from tests.runtime.ops.run_op import run_op


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
