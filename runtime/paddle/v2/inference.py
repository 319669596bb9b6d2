# SPDX-License-Identifier: Apache-2.0
"""Inference: computes the values of layers for given samples, with dropout and batch normalization in test mode."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from paddle.graph.operator import script_line
from paddle.graph.scope import fetched
from paddle.signatures import explained
from paddle.utils.model_config import network_in
from paddle.v2 import settings
from paddle.v2.errors import ModelFileError, UsageError
from paddle.v2.network import MAX_BYTES
from paddle.v2.parameter_format import binary
from paddle.v2.parameters import Parameters
from paddle.v2.topology import Layers, Topology
from paddle.v2.training.feeder import MISSING, DataFeeder, Feeding
from paddle.v2.training.gradient_machine import GradientMachine

Array = NDArray[Any]
_log = logging.getLogger(__name__)
_COSTS = "The output layer {!r} is a cost, which needs labels: pass the layer to infer, such as output_layer=prediction"
_ADVICE = "write each sample as a tuple, as in input=[(row,) for row in rows]"


class Inference:
    """A network for inference, created from layers or from the output of ``Topology.serialize_for_inference``.

    Args:
        parameters: values of all parameters of the network.
        output_layer: the layer or layers to compute.
        fileobj: file of ``Topology.serialize_for_inference``, also of the original, or of
            ``dump_v2_config(binary=True)``, as an alternative to output_layer.
    """

    def __init__(
        self, parameters: Parameters, output_layer: Layers | None = None, fileobj: IO[Any] | None = None
    ) -> None:
        if output_layer is not None:
            self._network = Topology(output_layer).network
        elif fileobj is not None:
            self._network = network_in(binary(fileobj).read(MAX_BYTES))
            if any(each.type == "data" and each.input_type is None for each in self._network.layers.values()):
                raise ModelFileError(
                    "this topology lacks the types of its inputs: declare the layers in Python, and pass them as "
                    "output_layer"
                )
        else:
            raise UsageError("Inference needs output_layer or fileobj")
        if isinstance(parameters, Parameters) and parameters.is_new and self._network.parameters:
            parameters.is_new = False
            _log.warning(
                "infer %s: the parameters have random initial values, such as %r: pass those that trainer.SGD has "
                "trained, or paddle.parameters.Parameters.from_tar(open(path, 'rb'))",
                script_line(),
                next(iter(self._network.parameters)),
            )
        self._machine = GradientMachine(self._network, parameters, [], device=settings.current().device)

    def iter_infer(self, input: Sequence[Any], feeding: Feeding = None) -> Iterator[list[dict[str, Array]]]:
        """Compute all samples together, and yield one result: the arrays of all output layers, by field."""
        if isinstance(input, (list, tuple)) and not input:
            return
        costs = set(self._network.costs()).intersection(self._network.outputs)
        missing = _COSTS.format(min(costs)) if costs else MISSING
        layers = self._network.layers
        feeder = DataFeeder(self._network.data_types, feeding, advice=_ADVICE, missing=missing, layers=layers)
        feed = feeder(input)
        found = self._machine.outputs(feed, self._network.outputs, ("value", "id", "prob"))
        yield [found[name] for name in self._network.outputs]

    def iter_infer_field(self, field: str | Sequence[str], **kwargs: Any) -> Iterator[list[Array]]:
        """Compute all samples together, and yield the arrays of the given fields for each output layer, in order."""
        fields = [field] if isinstance(field, str) else list(field)
        for result in self.iter_infer(**kwargs):
            for name, arrays in zip(self._network.outputs, result, strict=True):
                yield [_field(arrays, name, one) for one in fields]

    def infer(
        self,
        input: Sequence[Any],
        field: str | Sequence[str] = "value",
        flatten_result: bool = True,
        feeding: Feeding = None,
    ) -> Any:
        """Compute the values of the output layers for all samples, in one batch.

        Args:
            field: value (float32 (N, size)), id (int32 (N,)) or prob, or several of these.
            flatten_result: whether to concatenate the arrays of all output layers along axis 0.
            feeding: the column of each data layer.

        Returns:
            For one field: an array or, without flatten_result, a list of arrays. For several fields: a list of these.
                [] if there are no samples.
        """
        slots: list[list[Array]] = []
        for parts in self.iter_infer_field(field, input=input, feeding=feeding):
            slots = slots or [[] for _ in parts]
            for slot, array in zip(slots, parts, strict=True):
                slot.append(array)
        results: list[Any] = [_stack(slot) for slot in slots] if flatten_result else list(slots)
        return results[0] if len(results) == 1 else results


@explained
def infer(
    output_layer: Layers,
    parameters: Parameters,
    input: Sequence[Any],
    feeding: Feeding = None,
    field: str | Sequence[str] = "value",
) -> Any:
    """Compute the values of layers for some samples; see ``Inference.infer``."""
    return Inference(parameters, output_layer).infer(input, field, feeding=feeding)


def _field(arrays: dict[str, Array], layer: str, field: str) -> Array:
    found = arrays.get(field)
    if found is None:
        raise UsageError(f"layer {layer!r} has no field {field!r}; known fields: {sorted(arrays)}")
    return fetched(found.reshape(-1).astype(np.int32) if found.dtype.kind == "i" else found)


def _stack(arrays: list[Array]) -> Array:
    widths = {array.shape[1:] for array in arrays}
    if len(widths) > 1:
        raise UsageError(
            f"the output layers have different widths {sorted(widths)} and cannot be stacked: "
            "infer them one at a time, or use paddle.inference.Inference(...).infer(..., flatten_result=False)"
        )
    return fetched(np.concatenate(arrays, axis=0))
