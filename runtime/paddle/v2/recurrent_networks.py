# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU as common groups of layers, and their single steps; a family of `networks`, which has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.v2 import layer, model
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import Act, BiasAttr, LayerAttr, LayerOutput, WeightAttr


def simple_lstm(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    reverse: bool = False,
    mat_param_attr: WeightAttr = None,
    bias_param_attr: BiasAttr = None,
    inner_param_attr: WeightAttr = None,
    act: Act = None,
    gate_act: Act = None,
    state_act: Act = None,
    mixed_layer_attr: LayerAttr = None,
    lstm_cell_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare a projection to the gates (``lstm_transform_<name>``) and an LSTM ``<name>``."""
    name = model.current().auto_name("lstm", name)
    gates = layer.mixed(
        4 * size,
        layer.full_matrix_projection(input, 4 * size, mat_param_attr),
        name=f"lstm_transform_{name}",
        layer_attr=mixed_layer_attr,
    )
    return layer.lstmemory(
        gates,
        name=name,
        reverse=reverse,
        act=act,
        gate_act=gate_act,
        state_act=state_act,
        bias_attr=bias_param_attr,
        param_attr=inner_param_attr,
        layer_attr=lstm_cell_attr,
    )


def simple_gru(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    reverse: bool = False,
    mixed_param_attr: WeightAttr = None,
    mixed_bias_param_attr: BiasAttr = None,
    mixed_layer_attr: LayerAttr = None,
    gru_bias_attr: BiasAttr = None,
    gru_param_attr: WeightAttr = None,
    act: Act = None,
    gate_act: Act = None,
    gru_layer_attr: LayerAttr = None,
    naive: bool = False,
) -> LayerOutput:
    """Declare a projection to the gates (``<name>_transform``) and a GRU ``<name>``; `naive` changes no number."""
    name = model.current().auto_name("simple_gru", name)
    gates = layer.mixed(
        3 * size,
        layer.full_matrix_projection(input, 3 * size, mixed_param_attr),
        name=f"{name}_transform",
        bias_attr=False if mixed_bias_param_attr is None else mixed_bias_param_attr,
        layer_attr=mixed_layer_attr,
    )
    return layer.grumemory(
        gates,
        name=name,
        reverse=reverse,
        act=act,
        gate_act=gate_act,
        bias_attr=gru_bias_attr,
        param_attr=gru_param_attr,
        layer_attr=gru_layer_attr,
    )


def simple_gru2(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    reverse: bool = False,
    mixed_param_attr: WeightAttr = None,
    mixed_bias_attr: BiasAttr = None,
    gru_param_attr: WeightAttr = None,
    gru_bias_attr: BiasAttr = None,
    act: Act = None,
    gate_act: Act = None,
    mixed_layer_attr: LayerAttr = None,
    gru_cell_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare the same as `simple_gru`, with the arguments in another order."""
    return simple_gru(
        input,
        size,
        model.current().auto_name("simple_gru2", name),
        reverse,
        mixed_param_attr,
        mixed_bias_attr,
        mixed_layer_attr,
        gru_bias_attr,
        gru_param_attr,
        act,
        gate_act,
        gru_cell_attr,
    )


def bidirectional_lstm(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    return_seq: bool = False,
    fwd_mat_param_attr: WeightAttr = None,
    fwd_bias_param_attr: BiasAttr = None,
    fwd_inner_param_attr: WeightAttr = None,
    fwd_act: Act = None,
    fwd_gate_act: Act = None,
    fwd_state_act: Act = None,
    fwd_mixed_layer_attr: LayerAttr = None,
    fwd_lstm_cell_attr: LayerAttr = None,
    bwd_mat_param_attr: WeightAttr = None,
    bwd_bias_param_attr: BiasAttr = None,
    bwd_inner_param_attr: WeightAttr = None,
    bwd_act: Act = None,
    bwd_gate_act: Act = None,
    bwd_state_act: Act = None,
    bwd_mixed_layer_attr: LayerAttr = None,
    bwd_lstm_cell_attr: LayerAttr = None,
    last_seq_attr: LayerAttr = None,
    first_seq_attr: LayerAttr = None,
    concat_attr: LayerAttr = None,
    concat_act: Act = None,
) -> LayerOutput:
    """Declare an LSTM in each direction (``<name>_fw``, ``<name>_bw``) side by side.

    Args:
        size: of each direction.
        return_seq: all rows; False: the last row of the one and the first row of the other.
        fwd_mat_param_attr: arguments with fwd_ and bwd_ are those of `simple_lstm` for one direction.
        last_seq_attr: of the layer that takes the last row.
        first_seq_attr: of the layer that takes the first row.
    """
    given = locals()
    name = model.current().auto_name("bidirectional_lstm", name)
    forward = simple_lstm(input, size, f"{name}_fw", False, **_of("fwd_", given))
    backward = simple_lstm(input, size, f"{name}_bw", True, **_of("bwd_", given))
    return _both(forward, backward, name, return_seq, last_seq_attr, first_seq_attr, concat_attr, concat_act)


def bidirectional_gru(
    input: LayerOutput,
    size: int,
    name: str | None = None,
    return_seq: bool = False,
    fwd_mixed_param_attr: WeightAttr = None,
    fwd_mixed_bias_attr: BiasAttr = None,
    fwd_gru_param_attr: WeightAttr = None,
    fwd_gru_bias_attr: BiasAttr = None,
    fwd_act: Act = None,
    fwd_gate_act: Act = None,
    fwd_mixed_layer_attr: LayerAttr = None,
    fwd_gru_cell_attr: LayerAttr = None,
    bwd_mixed_param_attr: WeightAttr = None,
    bwd_mixed_bias_attr: BiasAttr = None,
    bwd_gru_param_attr: WeightAttr = None,
    bwd_gru_bias_attr: BiasAttr = None,
    bwd_act: Act = None,
    bwd_gate_act: Act = None,
    bwd_mixed_layer_attr: LayerAttr = None,
    bwd_gru_cell_attr: LayerAttr = None,
    last_seq_attr: LayerAttr = None,
    first_seq_attr: LayerAttr = None,
    concat_attr: LayerAttr = None,
    concat_act: Act = None,
) -> LayerOutput:
    """Declare a GRU in each direction (``<name>_fw``, ``<name>_bw``) side by side.

    Arguments with fwd_ and bwd_ are those of `simple_gru2` for one direction; see `bidirectional_lstm` for the others.
    """
    given = locals()
    name = model.current().auto_name("bidirectional_gru", name)
    forward = simple_gru2(input, size, f"{name}_fw", False, **_of("fwd_", given))
    backward = simple_gru2(input, size, f"{name}_bw", True, **_of("bwd_", given))
    return _both(forward, backward, name, return_seq, last_seq_attr, first_seq_attr, concat_attr, concat_act)


def _of(direction: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of one direction, under the names that a network of one direction takes them by."""
    return {name.removeprefix(direction): each for name, each in given.items() if name.startswith(direction)}


def _both(
    forward: LayerOutput,
    backward: LayerOutput,
    name: str,
    return_seq: bool,
    last_seq_attr: LayerAttr,
    first_seq_attr: LayerAttr,
    concat_attr: LayerAttr,
    concat_act: Act,
) -> LayerOutput:
    if not return_seq:
        forward = layer.last_seq(forward, layer_attr=last_seq_attr)
        backward = layer.first_seq(backward, layer_attr=first_seq_attr)
    return layer.concat([forward, backward], concat_act, name, concat_attr)


def lstmemory_unit(
    input: LayerOutput,
    out_memory: LayerOutput | None = None,
    name: str | None = None,
    size: int | None = None,
    param_attr: WeightAttr = None,
    act: Act = None,
    gate_act: Act = None,
    state_act: Act = None,
    input_proj_bias_attr: BiasAttr = None,
    input_proj_layer_attr: LayerAttr = None,
    lstm_bias_attr: BiasAttr = None,
    lstm_layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare one step of an LSTM ``<name>``, its projection ``<name>_input_recurrent`` and its cell ``<name>_state``.

    Args:
        input: rows projected to the gates, 4 D.
        out_memory: the output of the step before; None: a memory of ``<name>``, zeros at first.
        size: D; a quarter of the input's by default.
        param_attr: of the projection [D, 4 D] of the output before.
        act: of the candidate, Tanh by default.
        gate_act: of the gates, Sigmoid by default.
        state_act: of the cell on its way out, Tanh by default.
        input_proj_bias_attr: of the projection.
        input_proj_layer_attr: of the projection.
        lstm_bias_attr: of the peepholes.
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
    param_attr: WeightAttr = None,
    act: Act = None,
    gate_act: Act = None,
    state_act: Act = None,
    input_proj_bias_attr: BiasAttr = None,
    input_proj_layer_attr: LayerAttr = None,
    lstm_bias_attr: BiasAttr = None,
    lstm_layer_attr: LayerAttr = None,
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
    gru_param_attr: WeightAttr = None,
    act: Act = None,
    gate_act: Act = None,
    gru_layer_attr: LayerAttr = None,
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
    gru_param_attr: WeightAttr = None,
    act: Act = None,
    gate_act: Act = None,
    gru_layer_attr: LayerAttr = None,
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
