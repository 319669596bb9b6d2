# SPDX-License-Identifier: Apache-2.0
"""Single steps of LSTM and GRU for the step of a group, and groups of nothing else; `networks` has them."""

from __future__ import annotations

from typing import Any

from paddle.v2 import activation, layer, model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import BiasAttr, LayerOutput


def lstmemory_unit(
    input: LayerOutput,
    out_memory: LayerOutput | None = None,
    name: str | None = None,
    size: int | None = None,
    param_attr: ParameterAttribute | None = None,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    state_act: activation.Base | None = None,
    input_proj_bias_attr: BiasAttr = None,
    input_proj_layer_attr: ExtraLayerAttribute | None = None,
    lstm_bias_attr: BiasAttr = None,
    lstm_layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare one step of an LSTM ``<name>``, its projection ``<name>_input_recurrent`` and its cell ``<name>_state``.

    Args:
        input: rows projected to the gates, 4 D.
        out_memory: the output of the step before; None: a memory of ``<name>``, zeros at first.
        name: of the result.
        size: D; a quarter of the input's by default.
        param_attr: of the projection [D, 4 D] of the output before.
        act: of the candidate, Tanh by default.
        gate_act: of the gates, Sigmoid by default.
        state_act: of the cell on its way out, Tanh by default.
        input_proj_bias_attr: of the projection.
        input_proj_layer_attr: of the projection.
        lstm_bias_attr: of the peepholes.
        lstm_layer_attr: of the result.
    """
    width = _width(input, size, 4, "lstmemory_unit")
    name = _name("lstm_unit", name)
    before = out_memory if out_memory is not None else layer.memory(name=name, size=width)
    cell = layer.memory(name=f"{name}_state", size=width)
    gates = layer.mixed(
        4 * width,
        [layer.identity_projection(input), layer.full_matrix_projection(before, param_attr=param_attr)],
        name=f"{name}_input_recurrent",
        bias_attr=input_proj_bias_attr,
        layer_attr=input_proj_layer_attr,
    )
    out = layer.lstm_step(gates, cell, width, act, name, gate_act, state_act, lstm_bias_attr, lstm_layer_attr)
    layer.get_output(out, "state", name=f"{name}_state")
    return out


def lstmemory_group(
    input: LayerOutput,
    size: int | None = None,
    name: str | None = None,
    out_memory: LayerOutput | None = None,
    reverse: bool = False,
    param_attr: ParameterAttribute | None = None,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    state_act: activation.Base | None = None,
    input_proj_bias_attr: BiasAttr = None,
    input_proj_layer_attr: ExtraLayerAttribute | None = None,
    lstm_bias_attr: BiasAttr = None,
    lstm_layer_attr: ExtraLayerAttribute | None = None,
) -> Any:
    """Declare an LSTM as a group ``<name>_recurrent_group`` of `lstmemory_unit` steps."""
    name = _name("lstm_group", name)

    def step(row: LayerOutput) -> LayerOutput:
        return lstmemory_unit(
            row,
            out_memory,
            name,
            size,
            param_attr,
            act,
            gate_act,
            state_act,
            input_proj_bias_attr,
            input_proj_layer_attr,
            lstm_bias_attr,
            lstm_layer_attr,
        )

    return layer.recurrent_group(step, input, reverse, name=f"{name}_recurrent_group")


def gru_unit(
    input: LayerOutput,
    memory_boot: LayerOutput | None = None,
    size: int | None = None,
    name: str | None = None,
    gru_bias_attr: BiasAttr = None,
    gru_param_attr: ParameterAttribute | None = None,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    gru_layer_attr: ExtraLayerAttribute | None = None,
    naive: bool = False,
) -> LayerOutput:
    """Declare one step of a GRU ``<name>`` over rows projected to the gates, 3 D; `naive` changes no number."""
    width = _width(input, size, 3, "gru_unit")
    name = _name("gru_unit", name)
    before = layer.memory(name=name, size=width, boot_layer=memory_boot)
    return layer.gru_step(
        input, before, width, act, name, gate_act, gru_bias_attr, gru_param_attr, gru_layer_attr
    )


def gru_group(
    input: LayerOutput,
    memory_boot: LayerOutput | None = None,
    size: int | None = None,
    name: str | None = None,
    reverse: bool = False,
    gru_bias_attr: BiasAttr = None,
    gru_param_attr: ParameterAttribute | None = None,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    gru_layer_attr: ExtraLayerAttribute | None = None,
    naive: bool = False,
) -> Any:
    """Declare a GRU as a group ``<name>_recurrent_group`` of `gru_unit` steps."""
    name = _name("gru_group", name)

    def step(row: LayerOutput) -> LayerOutput:
        return gru_unit(
            row, memory_boot, size, name, gru_bias_attr, gru_param_attr, act, gate_act, gru_layer_attr, naive
        )

    return layer.recurrent_group(step, input, reverse, name=f"{name}_recurrent_group")


def _name(prefix: str, name: str | None) -> str:
    """The name given, or an automatic one, as the step's layers are called before they get ``@<group>``."""
    space = model.current()
    return space.auto_name(prefix, name).removesuffix(f"@{space.group}" if space.group else "")


def _width(input: LayerOutput, size: int | None, gates: int, who: str) -> int:
    width = input.size // gates if size is None else size
    if input.size != gates * width:
        raise UsageError(
            f"{who}: input {input.name!r} has size {input.size}; expected {gates} times the size "
            f"{size or '(not given)'}"
        )
    return width
