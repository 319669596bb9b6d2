# SPDX-License-Identifier: Apache-2.0
"""Neural network layers, one family per module. Depends on `control_flow`.

Each module lists its layers in `__all__`. A new family needs a new module, its name in the list below, and a line in
`layers`, which exports all layers. A module must not have the name of a layer.
"""

from paddle.fluid.errors import answering
from paddle.fluid.layers.nn import (
    convolutions,
    elements,
    losses,
    normalization,
    projections,
    python_functions,
    recurrent,
    resizing,
    sequences,
    shaping,
    structured_losses,
)

_FAMILIES = (
    convolutions, elements, losses, normalization, projections, python_functions,
    recurrent, resizing, sequences, shaping, structured_losses,
)  # fmt: skip
__all__ = [name for family in _FAMILIES for name in family.__all__]

__getattr__ = answering(__name__, "paddle.fluid.layers", "paddle.fluid.initializer", "paddle.fluid.framework")
