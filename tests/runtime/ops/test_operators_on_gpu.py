# SPDX-License-Identifier: Apache-2.0
"""Every operator gives on a GPU what it gives on the processor, values and gradients, to the same tolerances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.backend import array_module, to_host
from paddle.ops.base.lod import plain
from tests.gpus import missing_gpu
from tests.runtime.ops.gradient_cases import CASES
from tests.runtime.ops.gradient_check import Case, OpProgram, analytic

# As for central differences: float32 carries about seven digits, and sums are made in another order.
_TOLERANCE = {"float64": (1e-6, 1e-7), "float32": (2e-3, 2e-4)}
_RUNS = [(case, dtype) for case in CASES for dtype in _TOLERANCE if case.op != "cast" or dtype == "float64"]
# Without a GPU one skipped test says so, and not thousands.
_HERE = _RUNS[:1] if missing_gpu() else _RUNS


def values_on(device: str, case: Case, dtype: str) -> dict[str, Any]:
    """The float outputs of an operator on a device, by name."""
    built = OpProgram(case, dtype, device=device)
    return dict(zip(built.float_outputs, built.run(built.float_outputs), strict=True))


def agree(found: dict[str, Any], expected: dict[str, Any], dtype: str) -> None:
    """Compare arrays of any device, by name."""
    rtol, atol = _TOLERANCE[dtype]
    assert found.keys() == expected.keys()
    for name, value in found.items():
        if expected[name] is None:
            assert value is None, name
            continue
        host, other = to_host(plain(value)), to_host(plain(expected[name]))
        assert host.dtype == other.dtype, name
        np.testing.assert_allclose(host, other, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "dtype"), _HERE, ids=[f"{case.name}-{dtype}" for case, dtype in _HERE])
def test_values_and_gradients_are_those_of_the_processor(case: Case, dtype: str) -> None:
    found = values_on("gpu:0", case, dtype)
    assert all(array_module(plain(value)).__name__ == "cupy" for value in found.values() if value is not None)
    agree(found, values_on("cpu", case, dtype), dtype)
    agree(analytic(case, dtype, "gpu:0"), analytic(case, dtype), dtype)


def test_the_comparison_sees_a_wrong_digit() -> None:
    case = CASES[0]
    expected = analytic(case, "float64")
    agree(expected, analytic(case, "float64"), "float64")
    wrong = {name: value * (1 + 1e-4) for name, value in expected.items()}
    with pytest.raises(AssertionError):
        agree(wrong, expected, "float64")


def test_the_harness_runs_every_case_on_the_processor_alike() -> None:
    for case in CASES[::40]:
        agree(values_on("cpu", case, "float32"), values_on("cpu", case, "float32"), "float32")
