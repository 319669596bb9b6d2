# SPDX-License-Identifier: Apache-2.0
"""``mixed`` (a sum of projections), ``embedding`` and ``concat``."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    as_list,
    declare,
    extras_of,
    register,
    require_layer,
)
from paddle.v2.layer.projection import Projection, project, table_projection
from paddle.v2.model import Extras, InputConfig, LayerConfig


class MixedLayer(LayerOutput):
    """A sum of projections that is declared when its ``with`` block ends."""

    def __init__(self, unfinished: LayerConfig, bias_attr: BiasAttr) -> None:
        super().__init__(unfinished)
        self._bias_attr = bias_attr
        self._terms: list[Projection] = []
        self._finished = False

    def __iadd__(self, term: Projection) -> MixedLayer:  # type: ignore[misc,override]
        """Add a projection or operator; refused once the layer is finished."""
        if self._finished:
            raise UsageError(f"mixed layer {self.name!r} is finished; += works inside its with block only")
        if not isinstance(term, Projection):
            raise UsageTypeError(
                f"mixed layer {self.name!r} adds projections, got {term!r:.80}; wrap a layer: "
                "full_matrix_projection(layer) multiplies it by a matrix, identity_projection(layer) adds it as it is"
            )
        self._terms.append(term)
        return self

    def __enter__(self) -> MixedLayer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()

    def finish(self) -> None:
        """Declare the layer from the terms added so far."""
        unfinished = self.config
        if not self._terms:
            raise UsageError(f"mixed layer {self.name!r} has no projection")
        size = unfinished.size or max(term.size for term in self._terms)
        if size == 0:
            raise UsageError(f"mixed layer {self.name!r}: give it or one of its projections a size")
        links = tuple(term.bind(self.name, index, size) for index, term in enumerate(self._terms))
        for link in links:
            if link.size != size:
                raise UsageError(
                    f"mixed layer {self.name!r} has size {size}, its term over {link.layer!r} {link.size}"
                )
        self.config = LayerConfig(
            unfinished.name,
            "mixed",
            size,
            links,
            unfinished.activation,
            add_bias(unfinished.name, [1, size], self._bias_attr, default=False),
            unfinished.extras,
        )
        self.parents = [layer for term in self._terms for layer in term.layers]
        self._finished = True
        register(self)


def mixed(
    size: int = 0,
    input: Projection | Sequence[Projection] | None = None,
    name: str | None = None,
    act: activation.Base | None = None,
    bias_attr: BiasAttr = False,
    layer_attr: ExtraLayerAttribute | None = None,
) -> MixedLayer:
    """Declare a sum of projections and operators; without ``input``, a context manager that takes them by ``+=``."""
    name = model.current().auto_name("mixed", name)
    act_name = activation_name(act, "")
    layer = MixedLayer(
        LayerConfig(name, "mixed", size, activation=act_name, extras=extras_of(layer_attr, act_name)),
        bias_attr,
    )
    if input is not None:
        for term in input if isinstance(input, Sequence) else [input]:
            layer += term
        layer.finish()
    return layer


def embedding(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare a table lookup: one row of [range of the input, size] per id."""
    name = model.current().auto_name("embedding", name)
    return mixed(size, [table_projection(input, size, param_attr)], name=name, layer_attr=layer_attr)


def concat(
    input: LayerOutput | Projection | Sequence[LayerOutput] | Sequence[Projection],
    act: activation.Base | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
    bias_attr: BiasAttr = None,
) -> LayerOutput:
    """Declare inputs side by side: all layers, or all projections (only these can have a bias)."""
    items = [input] if isinstance(input, (LayerOutput, Projection)) else list(input)
    name = model.current().auto_name("concat", name)
    act_name = activation_name(act, "")
    extras = extras_of(layer_attr, act_name)
    projections = [item for item in items if isinstance(item, Projection)]
    if projections and len(projections) == len(items):
        if any(term.size == 0 for term in projections):
            raise UsageError(f"concat {name!r}: every projection needs a size")
        links = tuple(term.bind(name, index, 0) for index, term in enumerate(projections))
        size = sum(link.size for link in links)
        bias = add_bias(name, [1, size], bias_attr, default=False)
        parents = [layer for term in projections for layer in term.layers]
        return declare(LayerConfig(name, "concat2", size, links, act_name, bias, extras), parents)
    layers = [item for item in items if isinstance(item, LayerOutput)]
    if len(layers) != len(items):
        raise UsageTypeError(f"concat {name!r} takes layers only or projections only, got {items!r:.200}")
    return _concat_layers(as_list(layers, "concat"), name, act_name, extras, bias_attr)


def _concat_layers(
    layers: list[LayerOutput], name: str, act_name: str, extras: Extras, bias_attr: BiasAttr
) -> LayerOutput:
    if bias_attr:
        raise UsageError(f"concat {name!r} of layers has no bias")
    for layer in layers:
        require_layer(layer, "concat")
    size = sum(layer.size for layer in layers)
    first = layers[0]
    images = all(layer.num_filters and layer.height for layer in layers)
    if images and any((layer.height, layer.width) != (first.height, first.width) for layer in layers):
        raise UsageError(
            f"concat {name!r}: images differ in height or width: {[(i.height, i.width) for i in layers]}"
        )
    links = tuple(InputConfig(layer.name) for layer in layers)
    config = LayerConfig(
        name,
        "concat",
        size,
        links,
        act_name,
        extras=extras,
        num_filters=sum(layer.num_filters for layer in layers) if images else 0,
        height=first.height if images else 0,
        width=first.width if images else 0,
    )
    return declare(config, layers)


@emits("mixed")
def _emit_mixed(emitter: Emitter, config: LayerConfig) -> None:
    terms = [project(emitter, link) for link in config.inputs]
    emitter.finish(config, emitter.add_bias(emitter.add_all(terms), config.bias))


@emits("concat2")
def _emit_concat2(emitter: Emitter, config: LayerConfig) -> None:
    parts = [project(emitter, link) for link in config.inputs]
    emitter.finish(config, emitter.add_bias(emitter.op("concat", {"X": parts}, {"axis": 1}), config.bias))


@emits("concat")
def _emit_concat(emitter: Emitter, config: LayerConfig) -> None:
    # Images are stored channel by channel, so rows side by side are channels side by side.
    parts = [emitter.rows(link.layer) for link in config.inputs]
    emitter.finish(config, emitter.op("concat", {"X": parts}, {"axis": 1}))
