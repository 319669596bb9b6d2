# SPDX-License-Identifier: Apache-2.0
"""Groups of layers, and the functions `inputs` and `outputs`, which declare a configuration's inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.trainer_config_helpers.configuration import current
from paddle.v2 import networks
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.output import LayerOutput

__all__ = ["inputs", "outputs"]
__all__ += networks.__all__

for _name in networks.__all__:
    globals()[_name] = getattr(networks, _name)


def inputs(layers: LayerOutput | Sequence[LayerOutput], *args: LayerOutput) -> None:
    """Declare which data layers take the columns of a provider's samples, in order.

    Further calls add layers. Without a call, the order is depth first from the outputs.
    """
    current().inputs += [layer.name for layer in _flat(layers, args, "inputs")]


def outputs(layers: LayerOutput | Sequence[LayerOutput], *args: LayerOutput) -> None:
    """Declare the outputs of the network: costs for training, layers to print for prediction.

    Further calls add layers.
    """
    found = _flat(layers, args, "outputs")
    if not found:
        raise UsageError("outputs: expected at least one layer, such as outputs(cost)")
    current().add_outputs(found)


def _flat(
    first: LayerOutput | Sequence[LayerOutput], more: Sequence[LayerOutput], who: str
) -> list[LayerOutput]:
    found = [*(first if isinstance(first, (list, tuple)) else [first]), *more]
    for layer in found:
        if not isinstance(layer, LayerOutput):
            raise UsageTypeError(f"{who}: expected layers, got {layer!r:.80}")
    return found
