# SPDX-License-Identifier: Apache-2.0
"""``Topology``: the network of given output layers, in a form for inspection and saving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from paddle.v2 import model
from paddle.v2.data_type import InputType
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from paddle.v2.model import LayerConfig
from paddle.v2.network import NetworkMessage, network_of
from paddle.v2.parameter_format import binary
from paddle_node.contract.classes import replace

Layers = LayerOutput | Sequence[LayerOutput]


class Topology:
    """The network that consists of the given layers and all layers that they depend on."""

    def __init__(self, layers: Layers, extra_layers: Layers | None = None) -> None:
        self.layers = _listed(layers)
        extra = _listed(extra_layers, or_none=True)
        if not self.layers:
            raise UsageError("Topology needs at least one layer")
        self._known = [*self.layers, *extra]
        self.network = network_of(
            model.current(), [layer.name for layer in self.layers], [layer.name for layer in extra]
        )

    def proto(self) -> NetworkMessage:
        """Return the network as the original's message `ModelConfig`."""
        return NetworkMessage(self.network)

    def get_layer(self, name: str) -> LayerOutput:
        """Return the layer that the script declared under this name, if the outputs need it.

        Raises:
            UsageError: the network has no layer of this name.
        """
        if name not in self.network.layers:
            raise UsageError(
                f"unknown layer {name!r} in this topology; known layers: {list(self.network.layers)}"
            )
        found = {layer.name: layer for layer in self._known}
        waiting = list(self._known)
        while name not in found and waiting:
            new = [parent for parent in waiting.pop().parents if parent.name not in found]
            found.update((parent.name, parent) for parent in new)
            waiting += new
        return found.get(name) or LayerOutput(self.network.layers[name])

    def get_layer_proto(self, name: str) -> Any:
        """Return the message `LayerConfig` of a layer, or None."""
        return next((layer for layer in self.proto().layers if layer.name == name), None)

    def data_layers(self) -> dict[str, LayerConfig]:
        """Return the data layers of the network by name."""
        return {name: self.network.layers[name] for name, _ in self.network.data_types}

    def data_type(self) -> list[tuple[str, InputType]]:
        """Return the (name, input type) of each data layer, in order of declaration."""
        return self.network.data_types

    def use_sparse_updater(self) -> bool:
        """Return whether any parameter is updated row by row (sparse_update)."""
        return any(config.sparse_update for config in self.network.parameters.values())

    def update_from_default(self) -> None:
        """Set momentum, decay and clipping of parameters that have none to the values of the last optimizer."""
        defaults = model.current().defaults
        parameters = {name: defaults.fill(config) for name, config in self.network.parameters.items()}
        self.network = replace(self.network, parameters=parameters)

    def make_dense(self) -> None:
        """Make every parameter dense because, as in the original, GPUs do not support updates by row."""
        parameters = {
            name: replace(config, sparse_update=False, sparse_remote_update=False)
            for name, config in self.network.parameters.items()
        }
        self.network = replace(self.network, parameters=parameters)

    def serialize_for_inference(self, stream: IO[Any]) -> None:
        """Write the network as JSON for ``Inference(fileobj=...)``."""
        binary(stream).write(self.network.to_json())


def _listed(layers: object, or_none: bool = False) -> list[LayerOutput]:
    found: list[LayerOutput] = []
    for layer in layers if isinstance(layers, (list, tuple)) else [layers]:
        if layer is None and or_none:  # what an evaluator returns, which scripts list among the extra layers
            continue
        if not isinstance(layer, LayerOutput):
            raise UsageError(f"expected layers, got {layer!r:.80}")
        found.append(layer)
    return found
