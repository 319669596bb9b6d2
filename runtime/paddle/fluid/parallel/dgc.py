# SPDX-License-Identifier: Apache-2.0
"""Deep gradient compression (Lin et al., 2018) before gradients are summed over trainers; see `ops.update.dgc`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.block import Block
from paddle.fluid.program.program import default_main_program
from paddle.fluid.program.variable import Parameter, Variable
from paddle.graph import unique_name

_LEAST = 16_384  # elements: smaller gradients are sent whole
_COUNTER = "__g_dgc_counter__"
_Pair = tuple[Parameter, Variable]


class DeepGradientCompression:
    """Mixin of momentum optimizers: sends only the largest elements of each gradient that has 16,384 or more elements.

    For trainers without servers (mode "nccl2"); a single trainer computes the same updates.
    """

    def __init__(
        self,
        learning_rate: float | Variable,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = [0.999],
        use_nesterov: bool = False,
        local_grad_clip_norm: float | None = None,
        num_trainers: int | None = None,
        regularization: object = None,
        name: str | None = None,
    ) -> None:
        """Create the optimizer.

        Args:
            learning_rate: the learning rate; see `Optimizer`.
            momentum: momentum of updates before rampup_begin_step, then of the accumulated gradients.
            rampup_begin_step: first step with compressed gradients.
            rampup_step: number of steps over which `sparsity` is traversed.
            sparsity: shares of the elements that are not sent, each at least 0 and below 1.
            use_nesterov: whether to use Nesterov momentum.
            local_grad_clip_norm: with num_trainers: each trainer's gradient is clipped to norm / num_trainers².
            num_trainers: number of trainers, for local_grad_clip_norm.
            regularization: added to the sum of the sent gradients.
            name: prefix of the names of the optimizer's variables.

        Raises:
            FluidError: a step or share is out of range, or local_grad_clip_norm is given without num_trainers.
        """
        optimizer: Any = super()
        optimizer.__init__(learning_rate, momentum, use_nesterov, regularization, name)
        if local_grad_clip_norm is not None and not num_trainers:
            raise FluidError(
                "DGCMomentumOptimizer: local_grad_clip_norm needs num_trainers; give the number of trainers"
            )
        if rampup_begin_step < 0 or rampup_step < 0:
            raise FluidError(
                "DGCMomentumOptimizer: expected rampup_begin_step and rampup_step of at least 0, got "
                f"{rampup_begin_step} and {rampup_step}"
            )
        if not sparsity or not all(0 <= share < 1 for share in sparsity):
            raise FluidError(
                f"DGCMomentumOptimizer: expected sparsity values of at least 0 and below 1, got {list(sparsity)}"
            )
        self._begin = float(rampup_begin_step)
        self._norm = None if local_grad_clip_norm is None else local_grad_clip_norm / (num_trainers or 1) ** 2
        self._sent = {
            "m": momentum,
            "use_nesterov": use_nesterov,
            "sparsity": tuple(float(each) for each in sparsity),
            "rampup_begin_step": self._begin,
            "rampup_step": float(rampup_step),
        }
        self._compressed: set[str] = set()

    def apply_gradients(self, params_grads: Sequence[_Pair]) -> Any:
        """Append compression, clipping, decay and updates; return the update operators."""
        optimizer: Any = super()
        large = [parameter.name for parameter, grad in params_grads if _is_compressed(parameter, grad)]
        self._compressed.update(large)
        return optimizer.apply_gradients(
            [
                (parameter, self._decoded(parameter, grad) if parameter.name in large else grad)
                for parameter, grad in params_grads
            ]
        )

    def _append_optimize_op(self, block: Block, param_and_grad: _Pair) -> Any:
        optimizer: Any = super()
        op = optimizer._append_optimize_op(block, param_and_grad)
        if param_and_grad[0].name not in self._compressed:
            return op
        block._remove_op(-1)
        inputs = {**op.inputs, "current_step": _counter()}
        return block.append_op(
            "dgc_momentum", inputs, op.outputs, {**op.attrs, "rampup_begin_step": self._begin}
        )

    def _decoded(self, parameter: Parameter, gradient: Variable) -> Variable:
        """Append compression and decompression; return the gradient for the update."""
        program, helper, step = default_main_program(), LayerHelper("dgc"), _counter()
        kept = {}
        for slot in ("U", "V"):
            name = unique_name.generate(f"{parameter.name}_dgc_{slot.lower()}_")
            kept[slot] = helper.create_global_variable(
                name, parameter.shape, parameter.dtype, persistable=True
            )
            helper.set_variable_initializer(kept[slot], Constant(0.0))
        sent = helper.create_global_variable(
            f"{gradient.name}@DGC", (prod(parameter.shape),), parameter.dtype
        )
        with program._backward_role_guard():
            if self._norm is not None:
                gradient = helper.apply("clip_by_norm", {"X": gradient}, {"max_norm": self._norm})
            outs = {"U_out": kept["U"], "V_out": kept["V"], "EncodeGrad": sent}
            outs["k"] = helper.create_variable_for_type_inference("float32", stop_gradient=True)
            helper.append_op("dgc", {**kept, "Grad": gradient, "current_step": step}, outs, self._sent)
        with program._optimized_guard([parameter, sent]):
            return helper.apply("dgc_decode", {"X": sent, "Like": parameter})


def _is_compressed(parameter: Parameter, gradient: Variable) -> bool:
    """Return whether a gradient is compressed, which requires it to be dense, float32 and large enough."""
    block = default_main_program().global_block()
    return (
        prod(parameter.shape) >= _LEAST
        and parameter.dtype == "float32"
        and not block.is_sparse(gradient.name)
    )


def _counter() -> Variable:
    """Return the step counter, (1,) float32, which starts at 0; there is one per program."""
    block = default_main_program().global_block()
    if block.has_var(_COUNTER):
        return block.var(_COUNTER)
    helper = LayerHelper("dgc")
    made = helper.create_global_variable(_COUNTER, (1,), "float32", persistable=True)
    helper.set_variable_initializer(made, Constant(-1.0))
    block._prepend_op("increment", {"X": made}, {"Out": made}, {"step": 1.0})
    return made
