# SPDX-License-Identifier: Apache-2.0
"""Activations of recurrent layers, by name or number, each with its derivative as a function of its result."""

from __future__ import annotations

from collections.abc import Callable

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.errors import AttrError
from paddle_node.contract.classes import NamedTuple


class Activation(NamedTuple):
    """An activation function y = function(x), and its derivative dy/dx = slope(y) as a function of y."""

    function: Callable[[Array], Array]
    slope: Callable[[Array], Array]


# In the order of the numbers used by gru_unit's attributes.
_BY_NAME = {
    "identity": Activation(lambda x: x, lambda y: array_module(y).ones_like(y)),
    "sigmoid": Activation(sigmoid, lambda y: y * (1 - y)),
    "tanh": Activation(lambda x: array_module(x).tanh(x), lambda y: 1 - y * y),
    "relu": Activation(lambda x: array_module(x).maximum(x, 0), lambda y: (y > 0).astype(y.dtype)),
}


def activation(key: str | int) -> Activation:
    """Return the activation with the given name, or with the given number in Fluid's order.

    Raises:
        AttrError: the name or number is not that of an activation.
    """
    names = list(_BY_NAME)
    name = names[key] if isinstance(key, int) and 0 <= key < len(names) else key
    if name not in _BY_NAME:
        raise AttrError(f"activation {key!r}: expected one of {', '.join(names)}, or its index in this list")
    return _BY_NAME[str(name)]
