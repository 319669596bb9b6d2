# SPDX-License-Identifier: Apache-2.0
"""FLAGS_ variables of the environment: the one that looks for NaN, and those without effect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.errors import FlagError
from paddle.graph.errors import ExecutionError

RUNTIME = Path(__file__).resolve().parents[4] / "runtime"


@pytest.mark.parametrize(("values", "what"), [([1.0, -1.0], "NaN"), ([0.0, 1.0], "infinity")])
@pytest.mark.parametrize("places", [0, 2])
def test_the_first_operator_that_puts_out_nan_or_infinity_is_named(
    places: int, values: list[float], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAGS_check_nan_inf", "1")
    x = fluid.layers.data("x", [1])
    log = fluid.layers.log(x)
    loss = fluid.layers.mean(log)
    program: Any = fluid.default_main_program()
    if places:
        program = fluid.CompiledProgram(program).with_data_parallel(places=fluid.cpu_places(places))
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(ExecutionError) as caught:
        exe.run(program, {"x": np.array([values], "float32").T}, [loss])
    assert f"variable '{log.name}' contains {what}" in str(caught.value)
    assert caught.value.op_type == "log"


def test_without_the_flag_nan_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_check_nan_inf", "0")
    out = fluid.layers.log(fluid.layers.data("x", [1]))
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": -np.ones((1, 1), "float32")}, fetch_list=[out])
    assert np.isnan(found).all()


def test_a_flag_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_check_nan_inf", "perhaps")
    with pytest.raises(FlagError, match="FLAGS_check_nan_inf"):
        fluid.Executor(fluid.CPUPlace())


def test_flags_without_effect_are_named_once() -> None:
    script = "import paddle.fluid as fluid\nfor _ in range(3):\n    fluid.Executor(fluid.CPUPlace())\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(RUNTIME), "FLAGS_eager_delete_tensor_gb": "0.0", "FLAGS_rpc_deadline": "5000"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr.count("FLAGS_eager_delete_tensor_gb") == 1
    assert "FLAGS_rpc_deadline" not in done.stderr
