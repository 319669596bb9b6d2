# SPDX-License-Identifier: Apache-2.0
"""Inferencer: runs a model with the parameters that `Trainer.save_params` saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle.fluid import io
from paddle.fluid.compiler import CompiledProgram
from paddle.fluid.contrib.trainer import as_list, place_or_default
from paddle.fluid.errors import FluidTypeError
from paddle.fluid.executor import Executor
from paddle.fluid.program.program import Program, program_guard
from paddle.fluid.program.variable import Variable
from paddle.fluid.run.places import Place
from paddle.fluid.run.scope import Scope, scope_guard
from paddle.graph import unique_name

__all__ = ["Inferencer"]


class Inferencer:
    """Builds a model for inference, loads its parameters and computes predictions."""

    def __init__(
        self,
        infer_func: Callable[[], Variable | Sequence[Variable]],
        param_path: str,
        place: Place | None = None,
        parallel: bool = False,
    ) -> None:
        """Build the inference program and load its parameters.

        Args:
            infer_func: declares the layers; returns the prediction, or a list of variables.
            param_path: a directory written by `Trainer.save_params`.
            place: the device; None means a GPU if there is one, else the CPU.
            parallel: run on CPU_NUM places, or on all selected GPUs.

        Raises:
            ModelFileError: a parameter's file is missing or damaged.
        """
        self.param_path, self.place, self.scope = param_path, place_or_default(place), Scope()
        self.inference_program, self.startup_program = Program(), Program()
        with program_guard(self.inference_program, self.startup_program), unique_name.guard():
            self.predict_var = infer_func()
        self.exe = Executor(self.place)
        with scope_guard(self.scope):
            io.load_params(self.exe, os.fspath(param_path), self.inference_program)
        self.inference_program = self.inference_program.clone(for_test=True)
        self._program: Any = self.inference_program
        if parallel:
            self._program = CompiledProgram(self._program).with_data_parallel()

    def infer(self, inputs: Mapping[str, Any], return_numpy: bool = True) -> list[Any]:
        """Compute and return the predictions for a minibatch.

        Args:
            inputs: arrays or LoDTensors, by the name of the data variable.
            return_numpy: whether to return numpy arrays; False: LoDTensors, which can hold sequences.

        Raises:
            FluidTypeError: inputs is not a dict.
        """
        if not isinstance(inputs, Mapping):
            raise FluidTypeError(
                f"Inferencer.infer: inputs: expected a dict of name to array, got {type(inputs).__name__}"
            )
        fetches = [each.name for each in as_list(self.predict_var)]
        return self.exe.run(self._program, inputs, fetches, scope=self.scope, return_numpy=return_numpy)
