# SPDX-License-Identifier: Apache-2.0
"""ModelAverage: parameters that are the mean of their values over a window of the last updates, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from paddle.fluid.errors import FluidError, RunError
from paddle.fluid.executor import Executor
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.defaults import default_main_program
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import Regularizer
from paddle.fluid.run.scope import global_scope
from paddle.graph import unique_name
from paddle.ops.base.registry import GRAD

_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


class ModelAverage:
    """Sums up the parameters after each update; `with average.apply(executor):` they are their means.

    Make it after `minimize`, in the same program. A window is cut when it has `min_average_window` updates and
    `max_average_window`, or `average_window_rate` of all updates so far.
    """

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10_000,
        max_average_window: int = 10_000,
        regularization: Regularizer | None = None,
        name: str | None = None,
    ) -> None:
        """Append the sums to the default main program.

        Args:
            average_window_rate: length of the window in updates so far.
            min_average_window: its smallest length.
            max_average_window: its greatest length.
            regularization: must be None.
            name: part of the names of what is kept.

        Raises:
            FluidError: the program has no parameter to take the mean of, or regularization is given.
        """
        if regularization is not None:
            raise FluidError("ModelAverage: regularization has no meaning for means")
        program = default_main_program()
        self._attrs = {
            "average_window": float(average_window_rate),
            "min_average_window": int(min_average_window),
            "max_average_window": int(max_average_window),
        }
        self._name = name or "average"
        self._kept: dict[str, dict[str, Variable]] = {}
        self._backup: dict[str, Any] = {}
        for each in program.global_block().all_parameters():
            parameter = cast(Parameter, each)
            if parameter.trainable and parameter.do_model_average:
                with program._optimized_guard([parameter, f"{parameter.name}{GRAD}"]):
                    self._kept[parameter.name] = self._append(parameter)
        if not self._kept:
            raise FluidError("ModelAverage: the program has no parameter to take the mean of")

    @contextmanager
    def apply(self, executor: Executor, need_restore: bool = True) -> Iterator[None]:
        """Make all parameters of the global scope their means; give them back at the end, if that is needed.

        Raises:
            RunError: no update has been taken in yet.
        """
        scope = global_scope()
        means = {}
        for parameter, kept in self._kept.items():
            values = {name: scope.get(variable.name) for name, variable in kept.items()}
            count = int(values["num_accumulates"][0] + values["old_num_accumulates"][0])
            if not count:
                raise RunError("ModelAverage: there is no update to take the mean of: train first")
            total = values["sum_1"] + values["sum_2"] + values["sum_3"]
            means[parameter] = total / total.dtype.type(count)
        self._backup = {parameter: scope.get(parameter) for parameter in means}
        for parameter, mean in means.items():
            scope.set(parameter, mean)
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Executor) -> None:
        """Give the parameters the values back that they had before `apply`."""
        for parameter, value in self._backup.items():
            global_scope().set(parameter, value)
        self._backup = {}

    def _append(self, parameter: Parameter) -> dict[str, Variable]:
        helper = LayerHelper("average_accumulates")
        kept = {
            **{name: self._variable(helper, parameter, name, parameter.shape, "float32") for name in _SUMS},
            **{name: self._variable(helper, parameter, name, (1,), "int64") for name in _COUNTS},
        }
        inputs = {f"in_{name}": variable for name, variable in kept.items()}
        outputs = {f"out_{name}": variable for name, variable in kept.items()}
        helper.append_op("average_accumulates", {"param": parameter, **inputs}, outputs, self._attrs)
        return kept

    def _variable(
        self, helper: LayerHelper, parameter: Parameter, name: str, shape: tuple[int, ...], dtype: str
    ) -> Variable:
        made = helper.create_global_variable(
            unique_name.generate(f"{parameter.name}_{self._name}_{name}"), shape, dtype, persistable=True
        )
        helper.set_variable_initializer(made, Constant(0.0))
        return made
