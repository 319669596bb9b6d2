# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and plain recurrent layers over sequences, and single steps of them for groups.

Rows were projected to the gates already.
"""

from __future__ import annotations

from paddle.graph import Variable
from paddle.ops.base.dtypes import VarType
from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.body import Body, turned, zeros
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    declare,
    extras_of,
    require_layer,
    require_size,
    simple,
    weight_attr,
)
from paddle.v2.model import Attrs, InputConfig, LayerConfig

_INSIDE = ("tanh", "sigmoid", "relu")
_GATES = {"": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


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


def gru_step(
    input: LayerOutput,
    output_mem: LayerOutput,
    size: int | None = None,
    act: activation.Base | None = None,
    name: str | None = None,
    gate_act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare one step of a GRU over rows projected to the gates (3 D) and the state before (D)."""
    width = output_mem.size if size is None else size
    require_size(output_mem, width, "output_mem of gru_step")
    require_size(input, 3 * width, "input of gru_step")
    name = model.current().auto_name("gru_step", name)
    weight = model.current().add_parameter(f"_{name}.w0", [width, 3 * width], weight_attr(param_attr))
    attrs = {"act": activation_name(act, "tanh"), "gate_act": activation_name(gate_act, "sigmoid")}
    if not set(attrs.values()) <= set(_GATES):
        raise UsageError(f"gru_step: expected Tanh, Sigmoid, Relu or Linear, got {act!r} and {gate_act!r}")
    config = LayerConfig(
        name,
        "gru_step",
        width,
        (InputConfig(input.name, weight), InputConfig(output_mem.name)),
        bias=add_bias(name, [1, 3 * width], bias_attr, default=True),
        extras=extras_of(layer_attr),
        attrs=attrs,
    )
    return declare(config, [input, output_mem])


def gru_step_naive(
    input: LayerOutput,
    output_mem: LayerOutput,
    size: int | None = None,
    name: str | None = None,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the same as `gru_step`, with the arguments in another order."""
    return gru_step(
        input, output_mem, size, act, name, gate_act, bias_attr, param_attr=param_attr, layer_attr=layer_attr
    )


def recurrent(
    input: LayerOutput,
    act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    name: str | None = None,
    reverse: bool = False,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare h = act(x + h' W + b) over sequences; Tanh by default."""
    require_layer(input, "recurrent")
    name = model.current().auto_name("recurrent_layer", name)
    weight = model.current().add_parameter(f"_{name}.w0", [input.size, input.size], weight_attr(param_attr))
    config = LayerConfig(
        name,
        "recurrent",
        input.size,
        (InputConfig(input.name, weight),),
        bias=add_bias(name, [1, input.size], bias_attr, default=True),
        extras=extras_of(layer_attr),
        attrs={"act": activation_name(act, "tanh"), "reverse": bool(reverse)},
    )
    return declare(config, [input])


def lstm_step(
    input: LayerOutput,
    state: LayerOutput,
    size: int | None = None,
    act: activation.Base | None = None,
    name: str | None = None,
    gate_act: activation.Base | None = None,
    state_act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare one step of an LSTM over rows projected to the gates (4 D) and the cell before (D).

    `get_output` of it with "state" is the cell after it. The bias [1, 3 D] holds the peepholes alone; False: none.
    """
    width = state.size if size is None else size
    require_size(state, width, "state of lstm_step")
    require_size(input, 4 * width, "input of lstm_step")
    name = model.current().auto_name("lstm_step", name)
    config = LayerConfig(
        name,
        "lstm_step",
        width,
        (InputConfig(input.name), InputConfig(state.name)),
        bias=add_bias(name, [1, 3 * width], bias_attr, default=True),
        extras=extras_of(layer_attr),
        attrs={
            "act": activation_name(act, "tanh"),
            "gate_act": activation_name(gate_act, "sigmoid"),
            "state_act": activation_name(state_act, "tanh"),
        },
    )
    return declare(config, [input, state])


def get_output(
    input: LayerOutput, arg_name: str, name: str | None = None, layer_attr: ExtraLayerAttribute | None = None
) -> LayerOutput:
    """Declare another output of a layer, such as "state" of `lstm_step`."""
    require_layer(input, "get_output")
    if arg_name not in input.outputs:
        raise UsageError(f"get_output: {input!r} has no output {arg_name!r}; it has {input.outputs}")
    attrs = {"arg_name": arg_name}
    return simple(
        "get_output", "get_output_layer", [input], input.size, name=name, attrs=attrs, layer_attr=layer_attr
    )


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


@emits("gru_step")
def _emit_gru_step(emitter: Emitter, config: LayerConfig) -> None:
    link, before = config.inputs
    inputs = {
        "Input": emitter.rows(link.layer),
        "HiddenPrev": emitter.rows(before.layer),
        "Weight": emitter.shaped_parameter(link.parameter, [config.size, 3 * config.size]),
    }
    if config.bias:
        inputs["Bias"] = emitter.shaped_parameter(config.bias, [1, 3 * config.size])
    attrs = {
        "activation": _GATES[str(config.attrs["act"])],
        "gate_activation": _GATES[str(config.attrs["gate_act"])],
    }
    outs = ["Hidden", "Gate", "ResetHiddenPrev"]
    emitter.finish(config, emitter.ops("gru_unit", inputs, attrs, outs)[0])


@emits("lstm_step")
def _emit_lstm_step(emitter: Emitter, config: LayerConfig) -> None:
    width, attrs = config.size, config.attrs
    row, before = (emitter.rows(link.layer) for link in config.inputs)

    def part(number: int) -> Variable:
        """A gate's columns."""
        ends = {"axes": [1], "starts": [number * width], "ends": [(number + 1) * width]}
        return emitter.op("slice", {"Input": row}, ends)

    def peephole(gate: Variable, cell: Variable, number: int) -> Variable:
        if not config.bias:
            return gate
        whole = emitter.shaped_parameter(config.bias, [3 * width])
        ends = {"axes": [0], "starts": [number * width], "ends": [(number + 1) * width]}
        weight = emitter.op("slice", {"Input": whole}, ends)
        return emitter.add_all([gate, emitter.op("elementwise_mul", {"X": cell, "Y": weight}, {"axis": 1})])

    def activated(value: Variable, key: str) -> Variable:
        return emitter.activated(value, str(attrs[key])) if attrs[key] else value

    def times(x: Variable, y: Variable) -> Variable:
        return emitter.op("elementwise_mul", {"X": x, "Y": y})

    candidate = activated(part(0), "act")
    taken = activated(peephole(part(1), before, 0), "gate_act")
    kept = activated(peephole(part(2), before, 1), "gate_act")
    cell = emitter.add_all([times(candidate, taken), times(before, kept)])
    shown = activated(peephole(part(3), cell, 2), "gate_act")
    emitter.further[config.name, "state"] = cell
    emitter.finish(config, times(shown, activated(cell, "state_act")))


@emits("get_output")
def _emit_get_output(emitter: Emitter, config: LayerConfig) -> None:
    source, arg_name = config.inputs[0].layer, str(config.attrs["arg_name"])
    value = emitter.rows(source) if arg_name == "default" else emitter.further[source, arg_name]
    emitter.finish(config, value)


@emits("recurrent")
def _emit_recurrent(emitter: Emitter, config: LayerConfig) -> None:
    (link,), reverse = config.inputs, bool(config.attrs["reverse"])
    steps = turned(emitter, emitter.rows(link.layer), reverse)
    first = zeros(emitter, steps, config.size)
    weight = emitter.parameter(link.parameter)
    body = Body(emitter)
    body.open()
    row, before = body.step_input(steps), body.state(first)
    total = emitter.add_all([row, emitter.op("mul", {"X": before, "Y": weight})])
    total = emitter.add_bias(total, config.bias)
    act = str(config.attrs["act"])
    after = emitter.activated(total, act) if act else total
    (result,) = body.close([after], [after])
    emitter.finish(config, turned(emitter, result, reverse))
