# SPDX-License-Identifier: Apache-2.0
"""``mixed``, ``fc`` and ``embedding``, which are sums of projections, and ``concat``, which concatenates inputs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from paddle.graph import Variable
from paddle.v2 import model
from paddle.v2.attr import ParameterAttribute
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    NO_IMAGE,
    Act,
    BiasAttr,
    LayerAttr,
    LayerOutput,
    Weight,
    WeightAttr,
    activation_name,
    add_bias,
    as_list,
    build,
    declare,
    extras_of,
    or_zeros,
    register,
    require_layer,
    require_size,
    weight_attr,
)
from paddle.v2.layer.projection import Projection, project, table_projection
from paddle.v2.model import LayerConfig
from paddle_node.contract.classes import replace

__all__ = ["concat", "embedding", "fc", "mixed", "selective_fc"]


_HIDDEN = 1e4  # far below any sum that is selected


class MixedLayer(LayerOutput):
    """A sum of projections to which ``+=`` adds terms; it is declared when its ``with`` block ends."""

    def __init__(self, unfinished: LayerConfig, bias_attr: BiasAttr) -> None:
        super().__init__(unfinished)
        self._bias_attr = bias_attr
        self._terms: list[Projection] = []
        self._finished = False

    def __iadd__(self, term: Projection) -> MixedLayer:  # type: ignore[misc,override]
        """Add a projection or operator; refused once the layer is finished."""
        if self._finished:
            raise UsageError(f"mixed layer {self.name!r} is finished; += works only inside its with block")
        if not isinstance(term, Projection):
            raise UsageTypeError(
                f"mixed layer {self.name!r} accepts only projections and operators, got {term!r:.80}. To add a layer, "
                "wrap it: full_matrix_projection(layer) multiplies it by a matrix, identity_projection(layer) adds it "
                "unchanged"
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
        """Declare the layer, with the terms added so far."""
        unfinished = self.config
        if not self._terms:
            raise UsageError(f"mixed layer {self.name!r} has no projection: add at least one")
        size = unfinished.size or max(term.size for term in self._terms)
        if size == 0:
            raise UsageError(
                f"mixed layer {self.name!r}: give size to the layer or to one of its projections"
            )
        links = tuple(term.bind(self.name, index, size) for index, term in enumerate(self._terms))
        for link in links:
            if link.size != size:
                raise UsageError(
                    f"mixed layer {self.name!r} has size {size}, but its term for {link.layer!r} has size {link.size}: "
                    "identity projections keep their size, and full_matrix_projection changes it"
                )
        image = image_of(self._terms[:1])
        bias = add_bias(self.name, [1, image[0] or size], self._bias_attr)
        channels, height, width = image
        self.config = replace(
            unfinished,
            size=size,
            inputs=links,
            bias=bias,
            num_filters=channels,
            height=height,
            width=width,
        )
        self.parents = [layer for term in self._terms for layer in term.layers]
        self._finished = True
        register(self)


def mixed(
    size: int = 0,
    input: Projection | Sequence[Projection] | None = None,
    name: str | None = None,
    act: Act = None,
    bias_attr: BiasAttr = False,
    layer_attr: LayerAttr = None,
) -> MixedLayer:
    """Declare a sum of projections and operators. Without ``input``, return a context manager that accepts ``+=``."""
    name = model.current().auto_name("mixed", name)
    act_name = activation_name(act, "")
    extras = extras_of(layer_attr, act_name)
    layer = MixedLayer(LayerConfig(name, "mixed", size, activation=act_name, extras=extras), bias_attr)
    if input is not None:
        for term in input if isinstance(input, Sequence) else [input]:
            layer += term
        layer.finish()
    return layer


def fc(
    input: LayerOutput | Sequence[LayerOutput],
    size: int,
    act: Act = None,
    name: str | None = None,
    param_attr: WeightAttr | Sequence[ParameterAttribute] = None,
    bias_attr: BiasAttr = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare a fully connected layer; the default activation is Tanh.

    Args:
        input: one layer or several, each with its own weight [input size, size].
        size: the width of the output.
        act: the activation, Tanh by default.
        param_attr: one attribute for all weights, or one for each input.
        bias_attr: True or None for a bias of zeros initially, False for no bias, or a Param.
        layer_attr: dropout.
    """
    inputs = as_list(input, "fc")
    name = model.current().auto_name("fc_layer", name)
    attrs = weight_attrs(param_attr, len(inputs), name)
    act_name = activation_name(act, "tanh")
    links = [
        Projection("full_matrix", (layer,), size, attr).bind(name, index, size)
        for index, (layer, attr) in enumerate(zip(inputs, attrs, strict=True))
    ]
    bias = add_bias(name, [1, size], or_zeros(bias_attr))
    extras = extras_of(layer_attr, act_name)
    return declare(LayerConfig(name, "fc", size, tuple(links), act_name, bias, extras), inputs)


@declares(
    "input, size, select=None, act=None, name=None, pass_generation=False, has_selected_colums=True, mul_ratio=0.02, "
    "param_attr=None, bias_attr=None, layer_attr=None",
    prefix="selective_fc_layer",
    many=True,
    default_act="tanh",
    has_bias=True,
)
def selective_fc(
    input: list[LayerOutput],
    size: int,
    select: LayerOutput | None,
    pass_generation: bool,
    has_selected_colums: bool,
    mul_ratio: float,
    param_attr: WeightAttr | Sequence[ParameterAttribute],
) -> Made:
    """Declare a fully connected layer that computes only selected columns of each row, with weights [size, input size].

    Args:
        input: one layer or several.
        size: the width of the output.
        select: a sparse_binary_vector of the selected columns; all others are 0. None means all columns.
        pass_generation: has no effect, because there is only one method of computation.
        has_selected_colums: if False, all columns are computed.
        mul_ratio: has no effect: in the original it chose between two methods by the number of selected columns.
        param_attr: one attribute for all weights, or one for each input.
    """
    chosen = [select] if select is not None and has_selected_colums else []
    if chosen:
        require_layer(select, "selective_fc")
        require_size(chosen[0], size, "selective_fc: select")
    attrs = weight_attrs(param_attr, len(input), "selective_fc")
    weights = [Weight([size, each.size], attr) for each, attr in zip(input, attrs, strict=True)]
    return Made([*input, *chosen], size, {"is_selective": bool(chosen)}, weights)


def weight_attrs(
    param_attr: WeightAttr | Sequence[ParameterAttribute], count: int, layer: str
) -> list[ParameterAttribute]:
    """Return a list with the attribute of each of a layer's ``count`` weights."""
    if isinstance(param_attr, Sequence):
        if len(param_attr) != count:
            raise UsageError(
                f"layer {layer!r}: expected {count} values in param_attr, one per input, got {len(param_attr)}"
            )
        return [weight_attr(attr) for attr in param_attr]
    attr = weight_attr(param_attr)
    if attr.name and count > 1:
        raise UsageError(
            f"layer {layer!r}: {count} inputs cannot share parameter {attr.name!r}; give a list of param_attr"
        )
    return [attr] * count


def embedding(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    param_attr: WeightAttr = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare an embedding layer, which returns a row of the table [range of the input, size] for each id."""
    name = model.current().auto_name("embedding", name)
    return mixed(size, [table_projection(input, size, param_attr)], name=name, layer_attr=layer_attr)


def concat(
    input: LayerOutput | Projection | Sequence[LayerOutput] | Sequence[Projection],
    act: Act = None,
    name: str | None = None,
    layer_attr: LayerAttr = None,
    bias_attr: BiasAttr = None,
) -> LayerOutput:
    """Declare the concatenation of the columns of several layers, or of several projections, which can have a bias."""
    items = [input] if isinstance(input, (LayerOutput, Projection)) else list(input)
    name = model.current().auto_name("concat", name)
    terms = [item for item in items if isinstance(item, Projection)]
    if terms and len(terms) == len(items):
        if any(term.size == 0 for term in terms):
            raise UsageError(f"concat {name!r}: every projection needs a size")
        links = [term.bind(name, index, 0) for index, term in enumerate(terms)]
        size, parents = sum(link.size for link in links), [layer for term in terms for layer in term.layers]
        image = image_of(terms)
        return build(
            "concat2",
            parents,
            size,
            name,
            links=links,
            act=act,
            bias=bias_attr,
            bias_dims=[1, image[0] or size],
            layer_attr=layer_attr,
            image=image,
        )
    layers = [item for item in items if isinstance(item, LayerOutput)]
    if len(layers) != len(items):
        raise UsageTypeError(
            f"concat {name!r} takes either layers or projections, not both; got {items!r:.200}"
        )
    if bias_attr:
        raise UsageError(
            f"concat {name!r} of layers cannot have a bias: omit bias_attr, or concatenate projections"
        )
    image = NO_IMAGE
    if all(layer.num_filters and layer.height for layer in as_list(layers, "concat")):
        places = {layer.image[1:] for layer in layers}
        if len(places) > 1:
            sizes = [layer.image[1:] for layer in layers]
            raise UsageError(f"concat {name!r}: images have different heights or widths: {sizes}")
        image = (sum(layer.num_filters for layer in layers), *places.pop())
    size = sum(layer.size for layer in layers)
    return build("concat", layers, size, name, act=act, layer_attr=layer_attr, image=image)


@emits("fc", together=None)
def _fc(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.add_bias(emitter.add_all([*map(emitter.product, config.inputs)]), config.bias)


@emits("selective_fc", together=None)
def _selective_fc(emitter: Emitter, config: LayerConfig) -> Variable | None:
    links = config.inputs[:-1] if config.attrs["is_selective"] else config.inputs
    products = [
        emitter.binary(
            "matmul",
            emitter.rows(link.layer),
            emitter.parameter(link.parameter),
            transpose_X=False,
            transpose_Y=True,
        )
        for link in links
    ]
    value = emitter.add_bias(emitter.add_all(products), config.bias)
    if not config.attrs["is_selective"]:
        return value
    mask = emitter.dense(config.inputs[-1].layer)
    if config.activation == "softmax":
        # What is not selected is so much smaller that its exponential adds nothing to the sum.
        hidden = emitter.unary("scale", mask, scale=_HIDDEN, bias=-_HIDDEN)
        value = emitter.binary("elementwise_add", value, hidden)
    active = emitter.activated(value, config.activation)
    emitter.finish(replace(config, activation=""), emitter.binary("elementwise_mul", active, mask))
    return None


@emits("mixed", together=None)
def _mixed(emitter: Emitter, config: LayerConfig) -> Variable:
    terms = [project(emitter, link) for link in config.inputs]
    return _biased(emitter, emitter.add_all(terms), config)


@emits("concat2", together=None)
def _concat2(emitter: Emitter, config: LayerConfig) -> Variable:
    parts = [project(emitter, link) for link in config.inputs]
    return _biased(emitter, emitter.op("concat", {"X": parts}, {"axis": 1}), config)


@emits("concat", together=None)
def _concat(emitter: Emitter, config: LayerConfig) -> Variable:
    # Images are stored channel by channel, so rows side by side are channels side by side.
    return emitter.op("concat", {"X": emitter.inputs(config)}, {"axis": 1})


def image_of(terms: Sequence[Projection]) -> tuple[int, int, int]:
    """Return channels, height and width of concatenated convolutions; `NO_IMAGE` if they are not images."""
    images = [term.attrs.get("image", NO_IMAGE) for term in terms]
    places = {image[1:] for image in images}  # type: ignore[index]
    if NO_IMAGE in images or len(places) > 1:
        return NO_IMAGE
    return (sum(image[0] for image in images), *places.pop())  # type: ignore[index,misc]


def _biased(emitter: Emitter, value: Variable, config: LayerConfig) -> Variable:
    """Add a bias to every row, or one number per channel to every pixel."""
    if not config.bias or emitter.parameters[config.bias].size == config.size:
        return emitter.add_bias(value, config.bias)
    image = emitter.reshape(value, [-1, config.num_filters, config.height, config.width])
    bias = emitter.shaped_parameter(config.bias, [config.num_filters])
    return emitter.binary("elementwise_add", image, bias, axis=1)
