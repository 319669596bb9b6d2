# SPDX-License-Identifier: Apache-2.0
"""`declares`: declares layers as table entries, with a signature and a function of the layer's own arguments.

    @declares("input1, input2, name=None, layer_attr=None", prefix="dot_prod_layer")
    def dot_prod(input1: LayerOutput, input2: LayerOutput) -> Made:
        return Made([input1, input2], 1)

`name`, `act`, `bias_attr` and `layer_attr` have the same meaning in every layer, so `build` handles them, unless an
entry's function accepts them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

from paddle.signatures import signed
from paddle.v2.layer.output import NO_IMAGE, LayerOutput, Weight, as_list, build, or_zeros, require_layer
from paddle.v2.model import Attrs
from paddle_node.contract.classes import NamedTuple


class Made(NamedTuple):
    """The parts of a layer other than its common arguments; see `build`."""

    inputs: Sequence[LayerOutput]
    size: int
    attrs: Attrs = MappingProxyType({})
    weights: Sequence[Weight] = ()
    bias_dims: Sequence[int] = ()
    image: tuple[int, int, int] = NO_IMAGE


def declares(
    arguments: str,
    kind: str = "",
    *,
    prefix: str = "",
    many: bool = False,
    default_act: str = "",
    has_bias: bool = False,
    finish: Callable[[str, dict[str, Any], Made], Made] | None = None,
) -> Callable[[Callable[..., Made]], Callable[..., LayerOutput]]:
    """Return a decorator that turns a function into the declaration of a layer with the function's name.

    Args:
        arguments: the arguments of the declaration in Python syntax, with literal defaults.
        kind: the layer's type, an entry of LAYERS; the function's name by default.
        prefix: the prefix of automatic names; the kind by default.
        many: whether `input` can be several layers; the function then receives a list.
        default_act: the name of the activation if `act` is not given.
        has_bias: whether there is a bias if `bias_attr` is not given.
        finish: function that modifies the result, given the layer's prefix and the remaining arguments; it may remove
            some of these.
    """

    def decorate(function: Callable[..., Made]) -> Callable[..., LayerOutput]:
        name, code = function.__name__, function.__code__
        own = code.co_varnames[: code.co_argcount]

        def declare(given: dict[str, Any]) -> LayerOutput:
            if many:
                given["input"] = as_list(given["input"], name)
            elif "input" in given:
                require_layer(given["input"], name)
            made = function(**{each: given.pop(each) for each in own})
            made = made if finish is None else finish(prefix or kind or name, given, made)
            bias = given.get("bias_attr", False)
            return build(
                kind or name,
                made.inputs,
                made.size,
                given.get("name"),
                prefix=prefix,
                weights=made.weights,
                act=given.get("act"),
                default_act=default_act,
                bias=or_zeros(bias) if has_bias else bias,
                bias_dims=made.bias_dims,
                layer_attr=given.get("layer_attr"),
                image=made.image,
                attrs=made.attrs,
            )

        return signed(arguments, declare, function)

    return decorate
