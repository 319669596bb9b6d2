# SPDX-License-Identifier: Apache-2.0
"""LayerOutput, the result of layer functions, and the functions that declare layers.

A LayerOutput names a declaration in ``paddle.v2.model``; adding, subtracting and scaling one declares further layers,
by rules of this module that ``slope_intercept``, ``mixed`` and ``scaling`` share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from paddle.v2 import activation, model, pooling
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.data_type import DataType, InputType
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.model import ZEROS, Attrs, Extras, InputConfig, LayerConfig
from paddle.v2.network import NetworkMessage, network_of
from paddle_node.contract.classes import NamedTuple, replace

__all__ = ["LayerOutput", "parse_network"]

Act: TypeAlias = activation.Base | None
LayerAttr: TypeAlias = ExtraLayerAttribute | None
WeightAttr: TypeAlias = ParameterAttribute | None
BiasAttr: TypeAlias = ParameterAttribute | bool | None
NO_IMAGE = (0, 0, 0)


class Weight(NamedTuple):
    """The weight of a layer for one of its inputs; `size` is the number of elements if `dims` is empty."""

    dims: Sequence[int]
    attr: WeightAttr = None
    size: int | None = None


class LayerOutput:
    """A declared layer, as layer functions return it.

    ``size`` is the width of a row, (num_filters * height * width) for images.
    """

    def __init__(self, config: LayerConfig, parents: Sequence[LayerOutput] = ()) -> None:
        self.config = config
        self.parents = list(parents)

    @property
    def name(self) -> str:
        """The name of the layer, unique within the process."""
        return self.config.name

    @property
    def full_name(self) -> str:
        """The layer's full name, which ends with ``@<group>`` within the step of a group."""
        return self.config.name

    @property
    def outputs(self) -> list[str]:
        """The names that `get_output` accepts for this layer."""
        return ["default", "state"] if self.layer_type == "lstm_step" else ["default"]

    @property
    def reverse(self) -> bool | None:
        """Return whether a recurrent layer runs from the last row to the first; None for other layers."""
        found = self.config.attrs.get("reverse")
        return None if found is None else bool(found)

    @property
    def depth(self) -> int:
        """The depth of a volume; 1 for an image."""
        return int(self.config.attrs.get("depth", 1))  # type: ignore[arg-type]

    @property
    def layer_type(self) -> str:
        """The type of the layer, such as fc."""
        return self.config.type

    @property
    def size(self) -> int:
        """The width of a row: the number of values per row, or per sample for images."""
        return self.config.size

    @property
    def activation(self) -> str:
        """The name of the activation; empty for linear."""
        return self.config.activation

    @property
    def num_filters(self) -> int:
        """The number of channels of an image; 0 for other layers."""
        return self.config.num_filters

    @property
    def height(self) -> int:
        """The height of an image; 0 if unknown."""
        return self.config.height

    @property
    def width(self) -> int:
        """The width of an image; 0 if unknown."""
        return self.config.width

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height and width of an image; each is 0 if unknown or if this is not an image."""
        return self.num_filters, self.height, self.width

    @property
    def volume(self) -> dict[str, int]:
        """The attribute in which a layer of the same shape stores its depth; empty for an image."""
        return {"depth": self.depth} if self.depth > 1 else {}

    @property
    def data_type(self) -> InputType | None:
        """The input type of a data layer or of a step's view of it."""
        if self.layer_type == "group_input" and self.parents:
            return self.parents[0].data_type
        return self.config.input_type

    def set_input(self, input: LayerOutput) -> None:
        """Set the layer of the step whose previous value an unnamed memory returns."""
        require_layer(input, "set_input")
        space = model.current()
        if self.layer_type != "memory" or self.name not in space.layers:
            raise UsageError(f"set_input needs a memory, got {self!r}")
        require_size(input, self.size, f"set_input of memory {self.name!r}")
        attrs = {**self.config.attrs, "of": input.name}
        self.config = space.layers[self.name] = replace(space.layers[self.name], attrs=attrs)

    def __repr__(self) -> str:
        return f"LayerOutput({self.name!r}, type={self.layer_type!r}, size={self.size})"

    def __add__(self, other: LayerOutput | float) -> LayerOutput:
        if isinstance(other, (int, float, np.number)):
            return affine(self, 1.0, float(other))
        if isinstance(other, LayerOutput):
            return add(self, other)
        return NotImplemented

    __radd__ = __add__

    def __neg__(self) -> LayerOutput:
        return affine(self, -1.0, 0.0)

    def __sub__(self, other: LayerOutput | float) -> LayerOutput:
        if isinstance(other, (int, float, np.number)):
            return affine(self, 1.0, -float(other))
        if isinstance(other, LayerOutput):
            return add(self, affine(other, -1.0, 0.0))
        return NotImplemented

    def __rsub__(self, other: float) -> LayerOutput:
        number = isinstance(other, (int, float, np.number))
        return affine(self, -1.0, float(other)) if number else NotImplemented

    def __mul__(self, other: LayerOutput | float) -> LayerOutput:
        if isinstance(other, (int, float, np.number)):
            return affine(self, float(other), 0.0)
        if isinstance(other, LayerOutput):
            return multiply(self, other)
        return NotImplemented

    __rmul__ = __mul__


def declare(config: LayerConfig, parents: Sequence[LayerOutput]) -> LayerOutput:
    """Add a layer with this configuration to the current model and return it."""
    layer = LayerOutput(config, parents)
    register(layer)
    return layer


def register(layer: LayerOutput) -> None:
    """Add a declared layer to the current model."""
    model.current().add_layer(layer.config)


def build(
    kind: str,
    inputs: Sequence[LayerOutput],
    size: int,
    name: str | None = None,
    *,
    prefix: str = "",
    weights: Sequence[Weight] = (),
    links: Sequence[InputConfig] = (),
    act: Act = None,
    default_act: str = "",
    bias: BiasAttr = False,
    bias_dims: Sequence[int] = (),
    layer_attr: LayerAttr = None,
    image: tuple[int, int, int] = NO_IMAGE,
    attrs: Attrs | None = None,
) -> LayerOutput:
    """Declare a layer of any type; return its output.

    Args:
        kind: the layer's type, an entry of LAYERS.
        inputs: the layer's inputs, in order.
        size: width of its rows.
        prefix: prefix of its automatic name; the kind by default.
        weights: weights of the first inputs, one each.
        links: configurations of its inputs, if they contain more than names and weights.
        act: the user's activation; `default_act` is the name of the default one.
        bias: the user's bias, or the layer's default; it is [1, size] unless there are `bias_dims`.
        layer_attr: dropout and error clipping.
        image: channels, height and width of the output.
        attrs: settings of the kind.
    """
    space = model.current()
    name = space.auto_name(prefix or kind, name)
    act_name = activation_name(act, default_act)
    parameters = [
        space.add_parameter(f"_{name}.w{at}", weight.dims, weight_attr(weight.attr), size=weight.size)
        for at, weight in enumerate(weights)
    ]
    parameters += [""] * (len(inputs) - len(parameters))
    config = LayerConfig(
        name,
        kind,
        size,
        tuple(links)
        or tuple(InputConfig(layer.name, of) for layer, of in zip(inputs, parameters, strict=True)),
        act_name,
        add_bias(name, bias_dims or [1, size], bias),
        extras_of(layer_attr, act_name),
        *image,
        attrs=attrs or {},
    )
    return declare(config, inputs)


def affine(
    layer: LayerOutput, slope: float, intercept: float, name: str | None = None, layer_attr: LayerAttr = None
) -> LayerOutput:
    """Declare slope * x + intercept, element by element, with two constants."""
    return build(
        "slope_intercept",
        [layer],
        layer.size,
        name,
        prefix="slope_intercept_layer",
        layer_attr=layer_attr,
        image=layer.image,
        attrs={"slope": float(slope), "intercept": float(intercept)},
    )


def add(left: LayerOutput, right: LayerOutput) -> LayerOutput:
    """Declare the sum of two layers; a layer of size 1 is added to every column of the other layer."""
    if left.size == 1 and right.size > 1:
        left, right = right, left
    if right.size not in (1, left.size):
        raise UsageError(
            f"cannot add {left!r} and {right!r}: their sizes must be equal, or one of them must be 1"
        )
    if right.size != left.size:
        attrs = {"times": left.size, "as_row_vector": True}
        right = build("repeat", [right], left.size, prefix="repeat_layer", attrs=attrs)
    links = [InputConfig(side.name, projection="identity", size=left.size) for side in (left, right)]
    return build("mixed", [left, right], left.size, links=links)


def multiply(left: LayerOutput, right: LayerOutput) -> LayerOutput:
    """Declare the product of a layer and a layer of size 1, whose numbers multiply the rows."""
    if left.size != 1 and right.size != 1:
        raise UsageError(f"cannot multiply {left!r} and {right!r}: one of them must have size 1")
    weight, rows = (left, right) if left.size == 1 else (right, left)
    return build("scaling", [weight, rows], rows.size, prefix="scaling_layer", image=rows.image)


def parse_network(
    output_layers: LayerOutput | Sequence[LayerOutput],
    extra_layers: LayerOutput | Sequence[LayerOutput] | None = None,
) -> NetworkMessage:
    """Return the network of the given layers as the original's message `ModelConfig`."""
    outputs = as_list(output_layers, "parse_network")
    extra = [] if extra_layers is None else as_list(extra_layers, "parse_network")
    names = [layer.name for layer in outputs], [layer.name for layer in extra]
    return NetworkMessage(network_of(model.current(), *names))


def as_list(layers: LayerOutput | Sequence[LayerOutput], who: str) -> list[LayerOutput]:
    """Return a layer or a sequence of layers as a list."""
    if not isinstance(layers, (list, tuple)):
        require_layer(layers, who)
    found = [layers] if isinstance(layers, LayerOutput) else list(layers)
    if not found:
        raise UsageError(f"{who} needs at least one input layer")
    for layer in found:
        require_layer(layer, who)
    return found


def require_layer(layer: object, who: str) -> None:
    """Check that an argument is a layer; `who` names the function in the error."""
    if not isinstance(layer, LayerOutput):
        hint = "; pass the layer itself, which paddle.layer.data or another layer returned"
        raise UsageTypeError(
            f"{who} takes layers, got {type(layer).__name__}: {layer!r:.80}{hint if isinstance(layer, str) else ''}"
        )


def is_index(layer: LayerOutput) -> bool:
    """Return whether a data layer, or a step's view of one, has integers; True if its type is unknown."""
    while layer.layer_type == "group_input" and layer.parents:
        layer = layer.parents[0]
    if layer.data_type is None:  # a configuration of `paddle train` leaves it to its data provider
        return layer.layer_type == "data"
    return layer.data_type.type == DataType.Index


def require_size(layer: LayerOutput, size: int, who: str) -> None:
    """Check that a layer has the given width."""
    if layer.size != size:
        raise UsageError(f"{who}: layer {layer.name!r} has size {layer.size}; expected {size}")


def require_same_size(layers: Iterable[LayerOutput], who: str) -> int:
    """Check that layers have the same width; return that width."""
    sizes = {layer.name: layer.size for layer in layers}
    if len(set(sizes.values())) != 1:
        raise UsageError(f"{who}: inputs must have the same size, got {sizes}")
    return next(iter(sizes.values()))


def activation_name(act: Act, default: str) -> str:
    """Return the name of an activation, or of the layer's default one."""
    if act is None:
        return default
    if isinstance(act, type) or not isinstance(act, activation.Base):
        hint = "; pass several layers as one list" if isinstance(act, LayerOutput) else ""
        raise UsageTypeError(f"act takes an instance such as paddle.activation.Relu(), got {act!r}{hint}")
    return act.name


def pooling_of(given: pooling.BasePoolingType | None, argument: str) -> pooling.BasePoolingType:
    """Return the pooling that a layer's argument selects, Max by default."""
    if given is None:
        return pooling.Max()
    if not isinstance(given, pooling.BasePoolingType):
        raise UsageTypeError(f"{argument} takes an instance such as paddle.pooling.Max(), got {given!r}")
    return given


def extras_of(layer_attr: LayerAttr, activation: str = "") -> Extras:
    """Return the settings of a layer_attr that apply to the layer's output."""
    if layer_attr is None:
        return Extras()
    if not isinstance(layer_attr, ExtraLayerAttribute):
        raise UsageTypeError(f"layer_attr takes paddle.attr.Extra(...), got {layer_attr!r}")
    if layer_attr.drop_rate and activation == "softmax":
        raise UsageError("a layer with softmax activation cannot have dropout: omit drop_rate")
    return Extras(float(layer_attr.drop_rate or 0.0), float(layer_attr.error_clipping_threshold or 0.0))


def require_no_extras(layer_attr: LayerAttr, who: str) -> None:
    """Check that a layer_attr contains neither dropout nor error clipping, which these layers do not support."""
    for name, value in vars(extras_of(layer_attr)).items():
        if value:
            raise UsageError(f"{who} does not support {name}: set it in the layer_attr of its input")


def weight_attr(param_attr: WeightAttr, argument: str = "param_attr") -> ParameterAttribute:
    """Return the attribute of a weight, or an attribute with all defaults; check its type."""
    if param_attr is None:
        return ParameterAttribute()
    if not isinstance(param_attr, ParameterAttribute):
        raise UsageTypeError(f"{argument} takes paddle.attr.Param(...), got {param_attr!r}")
    return param_attr


def or_zeros(bias_attr: BiasAttr) -> BiasAttr:
    """Replace an omitted bias attribute (None) with True, which means a bias of zeros."""
    return True if bias_attr is None else bias_attr


def add_bias(layer_name: str, dims: Sequence[int], bias_attr: BiasAttr) -> str:
    """Register a bias and return its name, which is empty if there is no bias (False, None or, in old scripts, "").

    A Param without ``initial_*`` starts as N(0, 1/sqrt(dims[0])), so a plain ``Param(learning_rate=2)`` on a
    [1, size] bias is N(0, 1), as in the original.
    """
    if not bias_attr:
        return ""
    bias_attr = ZEROS if bias_attr is True else bias_attr
    return model.current().add_parameter(f"_{layer_name}.wbias", dims, weight_attr(bias_attr, "bias_attr"))
