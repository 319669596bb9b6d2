# SPDX-License-Identifier: Apache-2.0
"""Decoupled weight decay, as in AdamW: w = w − c·w before the update (Loshchilov and Hutter, 2019)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from paddle.fluid import layers
from paddle.fluid.errors import FluidTypeError
from paddle.fluid.optimizer import Optimizer
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program, name_scope
from paddle.fluid.program.variable import Parameter, Variable
from paddle.graph.block import Name

__all__ = ["extend_with_decoupled_weight_decay"]

Pair = tuple[Parameter, Variable]


def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Any]:
    """Return a subclass of an optimizer class with the additional arguments `weight_decay` and `apply_decay_param_fun`.

    Example: `AdamW = extend_with_decoupled_weight_decay(fluid.optimizer.Adam)`, `AdamW(0.01, learning_rate=0.1)`.
    `weight_decay` is a number or a Variable (1,) and is not multiplied by the learning rate. `apply_decay_param_fun`
    returns whether the parameter with a given name decays; None means all parameters decay.

    Raises:
        FluidTypeError: base_optimizer is not an optimizer class; on construction: the decay is not a number or a
            Variable.
    """
    if not (isinstance(base_optimizer, type) and issubclass(base_optimizer, Optimizer)):
        raise FluidTypeError(
            f"extend_with_decoupled_weight_decay: expected a class of optimizers, got {base_optimizer!r}"
        )
    base: Any = base_optimizer

    class OptimizerWithDecoupledWeightDecay(base):  # type: ignore[misc]
        """The base optimizer with decoupled weight decay."""

        def __init__(
            self,
            weight_decay: float | Variable,
            apply_decay_param_fun: Callable[[str], bool] | None = None,
            **named: object,
        ) -> None:
            if isinstance(weight_decay, bool) or not isinstance(weight_decay, (int, float, Variable)):
                raise FluidTypeError(f"weight_decay: expected a number or a Variable, got {weight_decay!r}")
            super().__init__(**named)
            self._coefficient, self._decays_name = weight_decay, apply_decay_param_fun

        def minimize(
            self,
            loss: Variable,
            startup_program: Program | None = None,
            parameter_list: Sequence[Name] | None = None,
            no_grad_set: Collection[Name] | None = None,
            grad_clip: Any = None,
        ) -> tuple[list[Operator], list[Pair]]:
            """Append backward pass, decay and updates; return (update operators, [(parameter, gradient)])."""
            pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
            for parameter, gradient in pairs:
                if grad_clip is not None:
                    parameter.gradient_clip_attr = grad_clip
                if self._decays_name is None or self._decays_name(parameter.name):
                    self._decay(parameter, gradient)
            return self.apply_optimize(loss, startup_program, pairs), pairs

        def _decay(self, parameter: Parameter, gradient: Variable) -> None:
            program: Any = parameter.block.program
            if self._coefficient == 0.0:
                return
            with program._optimized_guard([parameter, gradient]), name_scope("weight decay"):
                left = layers.elementwise_sub(parameter, parameter * self._coefficient)
                layers.assign(left, parameter)

    return OptimizerWithDecoupledWeightDecay
