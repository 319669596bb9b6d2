# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and plain recurrent layers over sequences, and single steps for groups.

The inputs are rows that have already been projected to the gates.
"""

from __future__ import annotations

from typing import Any

from paddle.graph import Variable
from paddle.ops.base.dtypes import VarType
from paddle.signatures import takes
from paddle.v2.errors import UsageError
from paddle.v2.layer.body import Body, zeros
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import Act, LayerOutput, Weight, WeightAttr, activation_name, require_size
from paddle.v2.model import Attrs, LayerConfig

__all__ = ["get_output", "gru_step", "gru_step_naive", "grumemory", "lstm_step", "lstmemory", "recurrent"]

_INSIDE = ("tanh", "sigmoid", "relu")
_GATES = {"": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


@declares(
    "input, name=None, size=None, reverse=False, act=None, gate_act=None, state_act=None, bias_attr=None, "
    "param_attr=None, layer_attr=None",
    has_bias=True,
)
def lstmemory(
    input: LayerOutput,
    size: int | None,
    reverse: bool,
    act: Act,
    gate_act: Act,
    state_act: Act,
    param_attr: WeightAttr,
) -> Made:
    """Declare an LSTM with peepholes over projected sequences; its value is the hidden states.

    Args:
        input: size 4 D: candidate, input, forget and output gate.
        size: D; if given, it must be a quarter of the input's size.
        reverse: whether to run from the last row to the first.
        act: the activation of the candidate, Tanh by default.
        gate_act: the activation of the gates, Sigmoid by default.
        state_act: the activation of the cell for the output, Tanh by default.
        bias_attr: the bias [1, 7 D], whose last 3 D are the peepholes; False means no bias and no peepholes.
        param_attr: the weight [D, 4 D].
        layer_attr: dropout.
    """
    attrs: Attrs = {
        "act": _inside(act, "tanh", "act of lstmemory"),
        "gate_act": _inside(gate_act, "sigmoid", "gate_act of lstmemory"),
        "state_act": _inside(state_act, "tanh", "state_act of lstmemory"),
        "reverse": bool(reverse),
    }
    width = width_of("lstmemory", 4, input, size)
    # The original writes the weight of an LSTM as three sizes.
    return Made([input], width, attrs, [Weight([width, width, 4], param_attr)], [1, 7 * width])


@emits("lstmemory", together=None, sequences=(0,))
def _lstmemory(emitter: Emitter, config: LayerConfig) -> Variable:
    (link,), attrs, width = config.inputs, config.attrs, config.size
    no_bias = {"shape": [1, 4 * width], "dtype": VarType.FP32, "value": 0.0}
    inputs = {
        "Input": emitter.rows(link.layer),
        "Weight": emitter.shaped_parameter(link.parameter, [width, 4 * width]),
        "Bias": emitter.shaped_parameter(config.bias, [1, 7 * width])
        if config.bias
        else emitter.op("fill_constant", {}, no_bias),
    }
    chosen = {
        "use_peepholes": bool(config.bias),
        "is_reverse": attrs["reverse"],
        "gate_activation": attrs["gate_act"],
        "cell_activation": attrs["state_act"],
        "candidate_activation": attrs["act"],
    }
    return emitter.ops("lstm", inputs, chosen, ["Hidden", "Cell", "BatchGate", "BatchCellPreAct"])[0]


@declares(
    "input, size=None, name=None, reverse=False, act=None, gate_act=None, bias_attr=None, param_attr=None, "
    "layer_attr=None",
    "gru",
    has_bias=True,
)
def grumemory(
    input: LayerOutput, size: int | None, reverse: bool, act: Act, gate_act: Act, param_attr: WeightAttr
) -> Made:
    """Declare a GRU over projected sequences, h = (1 - z) h' + z candidate; its value is the hidden states.

    Args:
        input: size 3 D: update z, reset and candidate.
        size: D; if given, it must be a third of the input's size.
        reverse: whether to run from the last row to the first.
        act: the activation of the candidate, Tanh by default.
        gate_act: the activation of the gates, Sigmoid by default.
        bias_attr: the bias [1, 3 D].
        param_attr: the weight [D, 3 D].
        layer_attr: dropout.
    """
    attrs: Attrs = {
        "act": _inside(act, "tanh", "act of grumemory"),
        "gate_act": _inside(gate_act, "sigmoid", "gate_act of grumemory"),
        "reverse": bool(reverse),
    }
    width = width_of("gru", 3, input, size)
    return Made([input], width, attrs, [Weight([width, 3 * width], param_attr)], [1, 3 * width])


@emits("gru", called="grumemory", together=None, sequences=(0,))
def _gru(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs = config.attrs
    chosen = {
        "is_reverse": attrs["reverse"],
        "gate_activation": attrs["gate_act"],
        "activation": attrs["act"],
    }
    outs = ["Hidden", "BatchGate", "BatchResetHiddenPrev", "BatchHidden"]
    return emitter.ops("gru", _gru_inputs(emitter, config), chosen, outs)[0]


def _gru_inputs(emitter: Emitter, config: LayerConfig) -> dict[str, Variable]:
    link, width = config.inputs[0], config.size
    weight = emitter.shaped_parameter(link.parameter, [width, 3 * width])
    bias = {"Bias": emitter.shaped_parameter(config.bias, [1, 3 * width])} if config.bias else {}
    return {"Input": emitter.rows(link.layer), "Weight": weight, **bias}


@declares(
    "input, output_mem, size=None, act=None, name=None, gate_act=None, bias_attr=None, param_attr=None, "
    "layer_attr=None",
    has_bias=True,
)
def gru_step(
    input: LayerOutput,
    output_mem: LayerOutput,
    size: int | None,
    act: Act,
    gate_act: Act,
    param_attr: WeightAttr,
) -> Made:
    """Declare one step of a GRU, given rows projected to the gates (3 D) and the previous state (D)."""
    width = output_mem.size if size is None else size
    require_size(output_mem, width, "output_mem of gru_step")
    require_size(input, 3 * width, "input of gru_step")
    attrs = {"act": activation_name(act, "tanh"), "gate_act": activation_name(gate_act, "sigmoid")}
    if not set(attrs.values()) <= set(_GATES):
        raise UsageError(
            f"gru_step: expected Tanh, Sigmoid, Relu or Linear as act and gate_act, got {act!r} and {gate_act!r}"
        )
    weights = [Weight([width, 3 * width], param_attr)]
    return Made([input, output_mem], width, attrs, weights, [1, 3 * width])


@emits("gru_step")
def _gru_step(emitter: Emitter, config: LayerConfig) -> Variable:
    inputs = {**_gru_inputs(emitter, config), "HiddenPrev": emitter.rows(config.inputs[1].layer)}
    act, gate_act = (_GATES[str(config.attrs[key])] for key in ("act", "gate_act"))
    attrs = {"activation": act, "gate_activation": gate_act}
    return emitter.ops("gru_unit", inputs, attrs, ["Hidden", "Gate", "ResetHiddenPrev"])[0]


@takes(
    "input, output_mem, size=None, name=None, act=None, gate_act=None, bias_attr=None, param_attr=None, "
    "layer_attr=None"
)
def gru_step_naive(given: dict[str, Any]) -> LayerOutput:
    """Declare one step of a GRU: `gru_step` with a different order of arguments."""
    return gru_step(**given)


@declares(
    "input, act=None, bias_attr=None, param_attr=None, name=None, reverse=False, layer_attr=None",
    prefix="recurrent_layer",
    has_bias=True,
)
def recurrent(input: LayerOutput, act: Act, param_attr: WeightAttr, reverse: bool) -> Made:
    """Declare a recurrent layer h = act(x + h' W + b) over sequences; the default activation is Tanh."""
    attrs: Attrs = {"act": activation_name(act, "tanh"), "reverse": bool(reverse)}
    return Made([input], input.size, attrs, [Weight([input.size, input.size], param_attr)])


@emits("recurrent", together=None, sequences=(0,))
def _recurrent(emitter: Emitter, config: LayerConfig) -> Variable:
    (link,) = config.inputs
    steps = emitter.rows(link.layer)
    first, weight = zeros(emitter, steps, config.size), emitter.parameter(link.parameter)
    body = Body(emitter)
    body.open()
    row, before = body.step_input(steps), body.state(first)
    total = emitter.add_bias(emitter.add_all([row, emitter.binary("mul", before, weight)]), config.bias)
    after = emitter.activated(total, str(config.attrs["act"]))
    return body.close([after], [after], bool(config.attrs["reverse"]))[0]


@declares(
    "input, state, size=None, act=None, name=None, gate_act=None, state_act=None, bias_attr=None, layer_attr=None",
    has_bias=True,
)
def lstm_step(
    input: LayerOutput, state: LayerOutput, size: int | None, act: Act, gate_act: Act, state_act: Act
) -> Made:
    """Declare one step of an LSTM, given rows projected to the gates (4 D) and the previous cell (D).

    `get_output` with "state" returns the new cell. The bias [1, 3 D] contains only the peepholes. False omits them.
    """
    width = state.size if size is None else size
    require_size(state, width, "state of lstm_step")
    require_size(input, 4 * width, "input of lstm_step")
    attrs = {
        "act": activation_name(act, "tanh"),
        "gate_act": activation_name(gate_act, "sigmoid"),
        "state_act": activation_name(state_act, "tanh"),
    }
    return Made([input, state], width, attrs, bias_dims=[1, 3 * width])


@emits("lstm_step")
def _lstm_step(emitter: Emitter, config: LayerConfig) -> Variable:
    width = config.size
    row, before = emitter.inputs(config)
    parts = [emitter.columns(row, number * width, (number + 1) * width) for number in range(4)]

    def peephole(gate: Variable, cell: Variable, number: int) -> Variable:
        if not config.bias:
            return gate
        whole = emitter.shaped_parameter(config.bias, [3 * width])
        weight = emitter.columns(whole, number * width, (number + 1) * width, axis=0)
        return emitter.add_all([gate, emitter.binary("elementwise_mul", cell, weight, axis=1)])

    def activated(value: Variable, key: str) -> Variable:
        return emitter.activated(value, str(config.attrs[key]))

    candidate = activated(parts[0], "act")
    taken = activated(peephole(parts[1], before, 0), "gate_act")
    kept = activated(peephole(parts[2], before, 1), "gate_act")
    pairs = (candidate, taken), (before, kept)
    cell = emitter.add_all([emitter.binary("elementwise_mul", *pair) for pair in pairs])
    shown = activated(peephole(parts[3], cell, 2), "gate_act")
    emitter.further[config.name, "state"] = cell
    return emitter.binary("elementwise_mul", shown, activated(cell, "state_act"))


@declares("input, arg_name, name=None, layer_attr=None", prefix="get_output_layer")
def get_output(input: LayerOutput, arg_name: str) -> Made:
    """Declare a layer that returns another output of a layer, such as "state" of `lstm_step`."""
    if arg_name not in input.outputs:
        raise UsageError(f"get_output: {input!r} has no output {arg_name!r}; it has {input.outputs}")
    return Made([input], input.size, {"arg_name": arg_name})


@emits("get_output")
def _get_output(emitter: Emitter, config: LayerConfig) -> Variable:
    source, arg_name = config.inputs[0].layer, str(config.attrs["arg_name"])
    return emitter.rows(source) if arg_name == "default" else emitter.further[source, arg_name]


def width_of(who: str, gates: int, input: LayerOutput, size: int | None) -> int:
    width = input.size // gates
    if input.size % gates or size not in (None, width):
        raise UsageError(
            f"{who}: input {input.name!r} has size {input.size}; expected {gates} times "
            f"{'the size' if size is None else size}: project it first, with fc(input, size={gates} * N, "
            "act=Linear(), bias_attr=False) for N units, as networks.simple_lstm and simple_gru do"
        )
    return width


def _inside(act: Act, default: str, who: str) -> str:
    found = activation_name(act, default)
    if found not in _INSIDE:
        raise UsageError(f"{who}: expected Tanh, Sigmoid or Relu, got {act!r}")
    return found
