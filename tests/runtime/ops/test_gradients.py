# SPDX-License-Identifier: Apache-2.0
"""Every operator's gradient equals central differences, its shape rule tells the truth, and it leaves inputs alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.ops  # noqa: F401 (fills the table)
from paddle.backend import array_module, to_host
from paddle.ops.base.lod import plain
from paddle.ops.base.registry import lookup, registered
from tests.gpus import missing_gpu
from tests.runtime.ops.control_flow_programs import CHECKED_IN_PROGRAMS
from tests.runtime.ops.gradient_cases import CASES
from tests.runtime.ops.gradient_check import Case, OpProgram, analytic, numeric

# float32 carries about seven digits; the sums here lose at most two or three of them.
_TOLERANCE = {"float64": (1e-6, 1e-7), "float32": (2e-3, 2e-4)}


OPERATORS = sorted({case.op for case in CASES})


def dtypes_of(case: Case) -> list[str]:
    """The dtypes of a case; cast names its dtypes itself, so its case exists in one of them."""
    return ["float64"] if case.op == "cast" else list(_TOLERANCE)


def for_each_case(op: str, check: Callable[[Case, str], None]) -> None:
    """Check all cases of an operator with each dtype; a failure names those that fail."""
    failed = {}
    for case in CASES:
        for dtype in dtypes_of(case) if case.op == op else ():
            try:
                check(case, dtype)
            except Exception as error:  # noqa: BLE001 - all are raised below
                failed[f"{case.name}-{dtype}"] = error
    if failed:
        names = "\n\n".join(f"{name}: {error!r}" for name, error in failed.items())
        raise AssertionError(names) from next(iter(failed.values()))


@pytest.mark.parametrize("op", OPERATORS)
def test_the_gradient_is_that_of_central_differences(op: str) -> None:
    def check(case: Case, dtype: str) -> None:
        rtol, atol = _TOLERANCE[dtype]
        computed, expected = analytic(case, dtype), numeric(case)
        assert computed.keys() == expected.keys()
        for name, gradient in computed.items():
            assert gradient.dtype == dtype, name
            np.testing.assert_allclose(gradient, expected[name], rtol=rtol, atol=atol, err_msg=name)

    for_each_case(op, check)


@pytest.mark.parametrize("op", OPERATORS)
def test_outputs_have_the_shape_and_dtype_that_were_inferred_and_inputs_stay(op: str) -> None:
    def check(case: Case, dtype: str) -> None:
        built = OpProgram(case, dtype)
        before = {name: plain(value).copy() for name, value in built.feed.items()}
        names = [name for slot in built.outputs for name in built.outputs[slot]]
        for name, value in zip(names, built.run(names), strict=True):
            if value is not None:
                declared = built.block.var(name)
                assert value.dtype == declared.dtype, name
                assert len(value.shape) == len(declared.shape), name
                # How many rows an operator on sequences puts out can depend on the offsets, other sizes on tensors.
                sizes = zip(value.shape, declared.shape, strict=True)
                assert all(
                    got == want or (want == -1 and (case.has_lod or case.is_told)) for got, want in sizes
                ), name
        for name, value in before.items():
            np.testing.assert_array_equal(plain(built.feed[name]), value, err_msg=name)

    for_each_case(op, check)


def test_every_operator_with_a_gradient_has_a_case() -> None:
    # Those of gradients: tests/runtime/fluid/program/test_fluid_second_gradients.py.
    with_gradient = {
        op for op in registered() if lookup(op).gradient is not None and not op.endswith("_grad")
    }
    assert with_gradient == {case.op for case in CASES} | CHECKED_IN_PROGRAMS


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
@pytest.mark.parametrize(
    "op", OPERATORS[:1] if missing_gpu() else OPERATORS
)  # one skipped test says it for all
def test_values_and_gradients_are_those_of_the_processor(op: str) -> None:
    def check(case: Case, dtype: str) -> None:
        found = values_on("gpu:0", case, dtype)
        assert all(
            array_module(plain(value)).__name__ == "cupy" for value in found.values() if value is not None
        )
        # As for central differences: float32 carries about seven digits, and sums are made in another order.
        agree(found, values_on("cpu", case, dtype), dtype)
        agree(analytic(case, dtype, "gpu:0"), analytic(case, dtype), dtype)

    for_each_case(op, check)


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
