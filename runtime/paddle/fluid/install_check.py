# SPDX-License-Identifier: Apache-2.0
"""run_check: checks that this installation can train on one device and on two."""

from __future__ import annotations

import sys

import numpy as np

from paddle.backend import to_host
from paddle.fluid.compiler import CompiledProgram
from paddle.fluid.errors import RunError
from paddle.fluid.executor import Executor
from paddle.fluid.initializer import Constant
from paddle.fluid.layers.io import data
from paddle.fluid.layers.nn.elements import mean
from paddle.fluid.layers.nn.projections import fc
from paddle.fluid.optimizer import SGD
from paddle.fluid.param_attr import ParamAttr
from paddle.fluid.program.program import Program, program_guard
from paddle.fluid.run.places import Place, cpu_places, cuda_places, is_compiled_with_cuda
from paddle.fluid.run.scope import Scope, scope_guard
from paddle.graph import unique_name

__all__ = ["run_check"]


def run_check() -> None:
    """Train one step on one device and one step on two; print a message if the installation works.

    The check uses its own programs, names and scope.

    Raises:
        RunError: a step gave a wrong result.
    """
    sys.stdout.write("Checking the Paddle Fluid installation ...\n")
    places: list[Place] = list(cuda_places()[:2] if is_compiled_with_cuda() else cpu_places(2))
    for count in sorted({1, len(places)}):
        _train(places, count)
    sys.stdout.write(
        f"Paddle Fluid trains correctly on {' and '.join(map(str, places))}.\n"
        "Paddle Fluid is installed successfully.\n"
    )
    sys.stdout.flush()


def _train(places: list[Place], count: int) -> None:
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup), unique_name.guard(), scope_guard(scope):
        weight = ParamAttr("w", Constant(1.0))
        loss = mean(fc(data("x", [2]), 1, param_attr=weight, bias_attr=False))
        SGD(0.5).minimize(loss)
        executor = Executor(places[0])
        executor.run(startup)
        program = (
            main if count == 1 else CompiledProgram(main).with_data_parallel(loss.name, places=places[:count])
        )
        executor.run(program, feed={"x": np.ones((2 * count, 2), "float32")}, fetch_list=[loss])
    trained = to_host(scope.get("w"))
    if not np.allclose(trained, 0.5):
        raise RunError(
            f"run_check: after a step on {count} places, expected weights of 0.5, got {trained.ravel()}: this "
            "installation is broken"
        )
