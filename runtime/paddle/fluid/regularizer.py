# SPDX-License-Identifier: Apache-2.0
"""Weight decay as operators that modify gradients: L2 adds coeff·w, L1 adds coeff·sign(w).

There is no factor of 1/2, and biases are decayed like all parameters. Decay is added after clipping.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from paddle import later
from paddle.fluid.program.block import Block
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.signatures import explained

_Pairs = list[tuple[Parameter, Variable]]


class WeightDecayRegularizer(ABC):
    """Base class of regularizers, which add a term to a parameter's gradient; scripts may define subclasses."""

    def __init_subclass__(cls) -> None:
        explained(cls)

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        self._regularization_coeff = float(regularization_coeff)

    @abstractmethod
    def __call__(self, param: Parameter, grad: Variable, block: Block) -> Variable:
        """Append the operators that compute the decay of a parameter, and return their result."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._regularization_coeff})"


class L2DecayRegularizer(WeightDecayRegularizer):
    """L2 weight decay: adds coeff·w to the gradient of a parameter w."""

    def __call__(self, param: Parameter, grad: Variable, block: Block) -> Variable:
        """Append the operator that computes coeff·w, and return its output."""
        decay = block.create_var(shape=param.shape, dtype=param.dtype)
        block.append_op("scale", {"X": param}, {"Out": decay}, {"scale": self._regularization_coeff})
        return decay


class L1DecayRegularizer(WeightDecayRegularizer):
    """L1 weight decay: adds coeff·sign(w) to the gradient of a parameter w."""

    def __call__(self, param: Parameter, grad: Variable, block: Block) -> Variable:
        """Append the operators that compute coeff·sign(w), and return the result."""
        decay = block.create_var(shape=param.shape, dtype=param.dtype)
        block.append_op("sign", {"X": param}, {"Out": decay})
        block.append_op("scale", {"X": decay}, {"Out": decay}, {"scale": self._regularization_coeff})
        return decay


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer


def append_regularization_ops(
    parameters_and_grads: Sequence[tuple[Parameter, Variable]],
    regularization: WeightDecayRegularizer | None = None,
) -> _Pairs:
    """Append weight decay to gradients; return (parameter, gradient with decay) pairs.

    Args:
        parameters_and_grads: (parameter, gradient) pairs of the parameters to decay.
        regularization: default for parameters without their own regularizer.
    """
    result = []
    for parameter, grad in parameters_and_grads:
        regularizer = parameter.regularizer or regularization
        if regularizer is None:
            result.append((parameter, grad))
            continue
        block = grad.block
        assert isinstance(block, Block)
        with block.program._optimized_guard([parameter, grad]):  # type: ignore[attr-defined]
            decay = regularizer(parameter, grad, block)
            total = grad
            if grad.type == VarType.SELECTED_ROWS:
                total = block.create_var(f"{grad.name}@NEWGRAD@", parameter.shape, parameter.dtype)
            block.append_op("sum", {"X": [grad, decay]}, {"Out": total})
        result.append((parameter, total))
    return result


__getattr__, __dir__ = later.attributes(__name__, {})
