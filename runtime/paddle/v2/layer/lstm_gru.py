# SPDX-License-Identifier: Apache-2.0
"""lstmemory and grumemory: LSTM and GRU over sequences whose rows were projected to the gates already."""

from __future__ import annotations

from paddle.ops.base.dtypes import VarType
from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    declare,
    extras_of,
    require_layer,
    weight_attr,
)
from paddle.v2.model import Attrs, InputConfig, LayerConfig

_INSIDE = ("tanh", "sigmoid", "relu")


def lstmemory(
    input: LayerOutput,
    name: str | None = None,
    size: int | None = None,
    reverse: bool = False,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    state_act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the hidden states of an LSTM with peepholes.

    Args:
        input: size 4 D: candidate, input, forget and output gate.
        name: given by the user.
        size: D; must be a quarter of the input's if it is given.
        reverse: from the last row to the first.
        act: of the candidate, Tanh by default.
        gate_act: of the gates, Sigmoid by default.
        state_act: of the cell on its way out, Tanh by default.
        bias_attr: of the bias [1, 7 D], whose last 3 D are the peepholes; False: neither.
        param_attr: of the weight [D, 4 D].
        layer_attr: dropout.
    """
    attrs: Attrs = {
        "act": _inside(act, "tanh", "act of lstmemory"),
        "gate_act": _inside(gate_act, "sigmoid", "gate_act of lstmemory"),
        "state_act": _inside(state_act, "tanh", "state_act of lstmemory"),
        "reverse": bool(reverse),
    }
    return _memory("lstmemory", 4, 7, input, size, name, attrs, bias_attr, param_attr, layer_attr)


def grumemory(
    input: LayerOutput,
    size: int | None = None,
    name: str | None = None,
    reverse: bool = False,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the hidden states of a GRU, h = (1 - z) h' + z candidate.

    Args:
        input: size 3 D: update z, reset and candidate.
        size: D; must be a third of the input's if it is given.
        name: given by the user.
        reverse: from the last row to the first.
        act: of the candidate, Tanh by default.
        gate_act: of the gates, Sigmoid by default.
        bias_attr: of the bias [1, 3 D].
        param_attr: of the weight [D, 3 D].
        layer_attr: dropout.
    """
    attrs: Attrs = {
        "act": _inside(act, "tanh", "act of grumemory"),
        "gate_act": _inside(gate_act, "sigmoid", "gate_act of grumemory"),
        "reverse": bool(reverse),
    }
    return _memory("gru", 3, 3, input, size, name, attrs, bias_attr, param_attr, layer_attr)


def _memory(
    prefix: str,
    gates: int,
    biases: int,
    input: LayerOutput,
    size: int | None,
    name: str | None,
    attrs: Attrs,
    bias_attr: BiasAttr,
    param_attr: ParameterAttribute | None,
    layer_attr: ExtraLayerAttribute | None,
) -> LayerOutput:
    require_layer(input, prefix)
    width = input.size // gates
    if input.size % gates or size not in (None, width):
        raise UsageError(
            f"{prefix}: input {input.name!r} has size {input.size}; expected {gates} times "
            f"{'the size' if size is None else size}"
        )
    name = model.current().auto_name(prefix, name)
    # The original writes the weight of an LSTM as three sizes.
    dims = [width, width, gates] if prefix == "lstmemory" else [width, gates * width]
    weight = model.current().add_parameter(f"_{name}.w0", dims, weight_attr(param_attr))
    config = LayerConfig(
        name,
        prefix,
        width,
        (InputConfig(input.name, weight),),
        bias=add_bias(name, [1, biases * width], bias_attr, default=True),
        extras=extras_of(layer_attr),
        attrs=attrs,
    )
    return declare(config, [input])


def _inside(act: activation.Base | None, default: str, who: str) -> str:
    found = activation_name(act, default)
    if found not in _INSIDE:
        raise UsageError(f"{who}: expected Tanh, Sigmoid or Relu, got {act!r}")
    return found


@emits("lstmemory")
def _emit_lstm(emitter: Emitter, config: LayerConfig) -> None:
    (link,), attrs, width = config.inputs, config.attrs, config.size
    zeros = {"shape": [1, 4 * width], "dtype": VarType.FP32, "value": 0.0}
    inputs = {
        "Input": emitter.rows(link.layer),
        "Weight": emitter.shaped_parameter(link.parameter, [width, 4 * width]),
        "Bias": emitter.shaped_parameter(config.bias, [1, 7 * width])
        if config.bias
        else emitter.op("fill_constant", {}, zeros),
    }
    chosen = {
        "use_peepholes": bool(config.bias),
        "is_reverse": attrs["reverse"],
        "gate_activation": attrs["gate_act"],
        "cell_activation": attrs["state_act"],
        "candidate_activation": attrs["act"],
    }
    outs = ["Hidden", "Cell", "BatchGate", "BatchCellPreAct"]
    emitter.finish(config, emitter.ops("lstm", inputs, chosen, outs)[0])


@emits("gru")
def _emit_gru(emitter: Emitter, config: LayerConfig) -> None:
    (link,), attrs, width = config.inputs, config.attrs, config.size
    inputs = {
        "Input": emitter.rows(link.layer),
        "Weight": emitter.shaped_parameter(link.parameter, [width, 3 * width]),
    }
    if config.bias:
        inputs["Bias"] = emitter.shaped_parameter(config.bias, [1, 3 * width])
    chosen = {
        "is_reverse": attrs["reverse"],
        "gate_activation": attrs["gate_act"],
        "activation": attrs["act"],
    }
    outs = ["Hidden", "BatchGate", "BatchResetHiddenPrev", "BatchHidden"]
    emitter.finish(config, emitter.ops("gru", inputs, chosen, outs)[0])
