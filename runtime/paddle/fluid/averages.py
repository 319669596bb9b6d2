# SPDX-License-Identifier: Apache-2.0
"""Averages that can temporarily replace parameters: ModelAverage and ExponentialMovingAverage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from paddle.fluid.backward import append_backward
from paddle.fluid.errors import FluidError, RunError
from paddle.fluid.executor import Executor
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.program import Program, default_main_program, name_scope
from paddle.fluid.program.variable import Parameter, Variable
from paddle.fluid.regularizer import WeightDecayRegularizer
from paddle.fluid.run.scope import Scope, global_scope
from paddle.graph import unique_name
from paddle.graph.block import Name
from paddle.ops.base.registry import GRAD

_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


def load_values(kept: Collection[Variable], values: Mapping[str, Any]) -> None:
    """Set variables in the current scope from a dict of arrays by name.

    Raises:
        FluidError: a name is missing, or a value has a different shape.
    """
    found = {each.name: np.array(values[each.name], each.dtype) for each in kept if each.name in values}
    for each in kept:
        if each.name not in found:
            raise FluidError(
                f"load: {each.name!r} has no value; pass one for each variable in get_opti_var_name_list()"
            )
        if found[each.name].shape != each.shape:
            raise FluidError(f"load: {each.describe()} cannot hold a value of shape {found[each.name].shape}")
    for name, value in found.items():
        global_scope().set(name, value)


class _Averages(ABC):
    """Base class of averages.

    Inside `with average.apply(executor):`, parameters in the global scope hold their averages.
    """

    def __init__(self) -> None:
        self._backup: dict[str, Any] = {}

    @abstractmethod
    def _means(self, scope: Scope) -> dict[str, Any]:
        """Return a mapping from parameter names to the averages of their values so far."""

    @contextmanager
    def apply(self, executor: Executor, need_restore: bool = True) -> Iterator[None]:
        """Set all parameters of the global scope to their averages; restore them at the end if `need_restore` is set.

        Raises:
            RunError: no update has been recorded yet.
        """
        scope = global_scope()
        means = self._means(scope)
        self._backup = {parameter: scope.get(parameter) for parameter in means}
        for parameter, mean in means.items():
            scope.set(parameter, mean)
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Executor) -> None:
        """Restore the values that the parameters had before `apply`."""
        for parameter, value in self._backup.items():
            global_scope().set(parameter, value)
        self._backup = {}


class ModelAverage(_Averages):
    """Averages parameters over a window of recent updates; `with average.apply(executor):` uses the averages.

    Create it after `minimize`, in the same program. A window ends when it contains at least `min_average_window`
    updates, and also either `max_average_window` updates or the fraction `average_window_rate` of all updates so far.
    """

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10_000,
        max_average_window: int = 10_000,
        regularization: WeightDecayRegularizer | None = None,
        name: str | None = None,
    ) -> None:
        """Append the sums to the default main program.

        Args:
            average_window_rate: length of the window as a share of all updates so far.
            min_average_window: minimum length of the window.
            max_average_window: maximum length of the window.
            regularization: must be None.
            name: part of the names of the sums and counts.

        Raises:
            FluidError: the program has no parameters to average, or regularization is given.
        """
        if regularization is not None:
            raise FluidError("ModelAverage: regularization has no effect on averages; omit it")
        super().__init__()
        program = default_main_program()
        self._attrs = {
            "average_window": float(average_window_rate),
            "min_average_window": int(min_average_window),
            "max_average_window": int(max_average_window),
        }
        self._name = name or "average"
        self._kept: dict[str, dict[str, Variable]] = {}
        for parameter in _averaged(program):
            with program._optimized_guard([parameter, f"{parameter.name}{GRAD}"]):
                self._kept[parameter.name] = self._append(parameter)
        if not self._kept:
            raise FluidError(
                "ModelAverage: the program has no parameters to average; build the network first"
            )

    def _means(self, scope: Scope) -> dict[str, Any]:
        means = {}
        for parameter, kept in self._kept.items():
            values = {name: scope.get(variable.name) for name, variable in kept.items()}
            count = int(values["num_accumulates"][0] + values["old_num_accumulates"][0])
            if not count:
                raise RunError("ModelAverage has no averages yet: train first")
            total = values["sum_1"] + values["sum_2"] + values["sum_3"]
            means[parameter] = total / total.dtype.type(count)
        return means

    def get_opti_var_name_list(self) -> list[str]:
        """Return the names of the variables that hold the sums and update counts."""
        return [each.name for kept in self._kept.values() for each in kept.values()]

    def load(self, stat_dict: Mapping[str, Any]) -> None:
        """Load sums and counts into the current scope from a mapping of names to arrays; see `Optimizer.load`."""
        load_values([each for kept in self._kept.values() for each in kept.values()], stat_dict)

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
        callbacks: Sequence[object] | None = None,
    ) -> list[tuple[Parameter, Variable]]:
        """Append the backward pass of a loss; return (parameter, gradient) pairs. See `append_backward`."""
        return append_backward(loss, parameter_list, no_grad_set, callbacks)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Name] | None = None,
        no_grad_set: Collection[Name] | None = None,
        grad_clip: object = None,
    ) -> NoReturn:
        """Raise FluidError: a ModelAverage does not update parameters.

        Raises:
            FluidError: always.
        """
        raise _updates_nothing("minimize")

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[object]
    ) -> NoReturn:
        """Raise FluidError: a ModelAverage does not update parameters."""
        raise _updates_nothing("apply_optimize")

    def apply_gradients(self, params_grads: Sequence[object]) -> NoReturn:
        """Raise FluidError: a ModelAverage does not update parameters."""
        raise _updates_nothing("apply_gradients")

    def _append(self, parameter: Parameter) -> dict[str, Variable]:
        helper = LayerHelper("average_accumulates")
        kept = {
            **{
                name: _kept(helper, f"{parameter.name}_{self._name}_{name}", parameter.shape, "float32")
                for name in _SUMS
            },
            **{
                name: _kept(helper, f"{parameter.name}_{self._name}_{name}", (1,), "int64")
                for name in _COUNTS
            },
        }
        inputs = {f"in_{name}": variable for name, variable in kept.items()}
        outputs = {f"out_{name}": variable for name, variable in kept.items()}
        helper.append_op("average_accumulates", {"param": parameter, **inputs}, outputs, self._attrs)
        return kept


class ExponentialMovingAverage(_Averages):
    """Keeps an exponential moving average of each parameter, which can temporarily replace the parameter (`apply`).

    ema = decay ema + (1 - decay) parameter, starting at 0; `apply` uses ema / (1 - decay^updates), which removes the
    bias towards 0. Create it and call `update`, which appends the operators, after `minimize`, in the same program.
    """

    def __init__(
        self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None
    ) -> None:
        """Average the parameters of the default main program.

        Args:
            decay: the decay, at least 0 and below 1.
            thres_steps: variable of the number of steps so far, (1,); limits the decay to (1 + steps) / (10 + steps).
            name: part of the names of the averages.

        Raises:
            FluidError: the program has no parameters to average, or the decay is out of range.
        """
        if not 0 <= decay < 1:
            raise FluidError(f"ExponentialMovingAverage: expected 0 <= decay < 1, got {decay}")
        super().__init__()
        self._program = default_main_program()
        self._decay, self._steps, self._name = decay, thres_steps, name or ""
        self._parameters = _averaged(self._program)
        self._kept: dict[str, Variable] = {}
        self._rest: Variable | None = None
        if not self._parameters:
            raise FluidError(
                "ExponentialMovingAverage: the program has no parameters to average; build the network first"
            )

    def update(self) -> None:
        """Append the operators that update the averages to the program.

        Raises:
            FluidError: the method was called before.
        """
        if self._rest is not None:
            raise FluidError(
                "ExponentialMovingAverage: update was called twice, so each step would count twice. Call it once"
            )
        helper = LayerHelper("moving_average")
        # The product of all decays: the weight of the initial 0.
        self._rest = _kept(helper, f"{self._name}ema_rest", (1,), "float32", 1.0)
        with self._program._optimized_guard([]), name_scope("moving_average"):
            decay = self._decay if self._steps is None else self._bounded(helper, self._steps)
            helper.append_op("assign", {"X": self._rest * decay}, {"Out": self._rest})
        for parameter in self._parameters:
            ema = _kept(helper, f"{self._name}{parameter.name}_ema", parameter.shape, parameter.dtype)
            with self._program._optimized_guard([parameter, ema]), name_scope("moving_average"):
                step = (parameter - ema) * (1.0 - decay)
                helper.append_op("elementwise_add", {"X": ema, "Y": step}, {"Out": ema})
            self._kept[parameter.name] = ema

    def _bounded(self, helper: LayerHelper, steps: Variable) -> Variable:
        steps = steps.astype("float32")
        most = steps * 0.0 + self._decay
        return helper.apply("elementwise_min", {"X": (steps + 1.0) / (steps + 10.0), "Y": most})

    def _means(self, scope: Scope) -> dict[str, Any]:
        share = 0.0 if self._rest is None else 1.0 - float(scope.get(self._rest.name)[0])
        if not share:
            raise RunError(
                "ExponentialMovingAverage has no averages yet: call update() after minimize(), then train"
            )
        found = {parameter: scope.get(ema.name) for parameter, ema in self._kept.items()}
        return {parameter: ema / ema.dtype.type(share) for parameter, ema in found.items()}


def _updates_nothing(what: str) -> FluidError:
    return FluidError(
        f"ModelAverage.{what}: a ModelAverage updates no parameters. Call this method on "
        "the optimizer that trains, then create the ModelAverage"
    )


def _averaged(program: Program) -> list[Parameter]:
    parameters = [cast(Parameter, each) for each in program.global_block().all_parameters()]
    return [each for each in parameters if each.trainable and each.do_model_average]


def _kept(
    helper: LayerHelper, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike, fill: float = 0.0
) -> Variable:
    made = helper.create_global_variable(unique_name.generate(name), shape, dtype, persistable=True)
    helper.set_variable_initializer(made, Constant(fill))
    return made
