# SPDX-License-Identifier: Apache-2.0
"""Deep gradient compression: operators between a gradient and its sum over trainers; see `ops.update.dgc`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from paddle.fluid.errors import FluidError
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.defaults import default_main_program
from paddle.fluid.program.variable import Parameter, Variable
from paddle.graph import unique_name

_LEAST = 16_384  # elements: smaller gradients are sent whole
_COUNTER = "__g_dgc_counter__"


@dataclass(frozen=True)
class Compression:
    """Settings of DGCMomentumOptimizer.

    Attributes:
        momentum: momentum of the accumulated gradients.
        nesterov: whether to use Nesterov momentum.
        begin: first step with compression.
        rampup: number of steps over which the values of `sparsity` are used in turn.
        sparsity: fractions of the elements that are not sent.
        norm: bound on the norm of a trainer's gradient before compression; None: no clipping.
    """

    momentum: float
    nesterov: bool
    begin: int
    rampup: int
    sparsity: tuple[float, ...]
    norm: float | None

    def __post_init__(self) -> None:
        if self.begin < 0 or self.rampup < 0:
            raise FluidError(
                f"DGCMomentumOptimizer: expected 0 or more steps, got {self.begin} and {self.rampup}"
            )
        if not self.sparsity or not all(0 <= share < 1 for share in self.sparsity):
            raise FluidError(
                f"DGCMomentumOptimizer: expected sparsity values of at least 0 and below 1, got {list(self.sparsity)}"
            )

    def takes(self, parameter: Parameter, gradient: Variable) -> bool:
        """Return whether a gradient is compressed, which requires it to be dense, float32 and large enough."""
        block = default_main_program().global_block()
        return (
            prod(parameter.shape) >= _LEAST
            and parameter.dtype == "float32"
            and not block.is_sparse(gradient.name)
        )

    def counter(self) -> Variable:
        """Return the step counter, (1,) float32, which starts at 0; there is one per program."""
        block = default_main_program().global_block()
        if block.has_var(_COUNTER):
            return block.var(_COUNTER)
        helper = LayerHelper("dgc")
        made = helper.create_global_variable(_COUNTER, (1,), "float32", persistable=True)
        helper.set_variable_initializer(made, Constant(-1.0))
        block._prepend_op("increment", {"X": made}, {"Out": made}, {"step": 1.0})
        return made

    def append(self, pairs: Sequence[tuple[Parameter, Variable]]) -> list[tuple[Parameter, Variable]]:
        """Append compression and decompression operators; return the pairs with the gradients for the updates."""
        return [
            (parameter, self._compressed(parameter, grad))
            if self.takes(parameter, grad)
            else (parameter, grad)
            for parameter, grad in pairs
        ]

    def _compressed(self, parameter: Parameter, gradient: Variable) -> Variable:
        program, helper, step = default_main_program(), LayerHelper("dgc"), self.counter()
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
            if self.norm is not None:
                gradient = helper.apply("clip_by_norm", {"X": gradient}, {"max_norm": self.norm})
            attrs = {
                "m": self.momentum,
                "use_nesterov": self.nesterov,
                "sparsity": self.sparsity,
                "rampup_begin_step": float(self.begin),
                "rampup_step": float(self.rampup),
            }
            outs = {"U_out": kept["U"], "V_out": kept["V"], "EncodeGrad": sent}
            outs["k"] = helper.create_variable_for_type_inference("float32", stop_gradient=True)
            helper.append_op("dgc", {**kept, "Grad": gradient, "current_step": step}, outs, attrs)
        with program._optimized_guard([parameter, sent]):
            return helper.apply("dgc_decode", {"X": sent, "Like": parameter})
