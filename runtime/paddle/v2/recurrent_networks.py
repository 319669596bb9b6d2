# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU as common groups of layers, and their single steps; a family of `networks`, which has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle.signatures import function
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


def _simple_gru2(given: dict[str, Any]) -> LayerOutput:
    given["name"] = model.current().auto_name("simple_gru2", given["name"])
    bias, cell = given.pop("mixed_bias_attr"), given.pop("gru_cell_attr")
    return simple_gru(**given, mixed_bias_param_attr=bias, gru_layer_attr=cell)


simple_gru2 = function(
    "simple_gru2(input, size, name=None, reverse=False, mixed_param_attr=None, mixed_bias_attr=None, "
    "gru_param_attr=None, gru_bias_attr=None, act=None, gate_act=None, mixed_layer_attr=None, gru_cell_attr=None)",
    "Declare the same as `simple_gru`, with the arguments in another order.",
    _simple_gru2,
)


def _bidirectional(name: str, one: Callable[..., LayerOutput], arguments: str) -> Callable[..., LayerOutput]:
    """Return the network of one in each direction; `arguments` are those of one that each direction has of its own."""
    own = [f"{way}_{each}" for way in ("fwd", "bwd") for each in arguments.split()]
    others = ("last_seq_attr", "first_seq_attr", "concat_attr", "concat_act")
    optional = ", ".join(f"{each}=None" for each in (*own, *others))

    def build(given: dict[str, Any]) -> LayerOutput:
        whole = model.current().auto_name(name, given["name"])
        forward, backward = (
            one(
                given["input"],
                given["size"],
                f"{whole}_{short}",
                reverse,
                **{each: given[f"{way}_{each}"] for each in arguments.split()},
            )
            for way, short, reverse in (("fwd", "fw", False), ("bwd", "bw", True))
        )
        if not given["return_seq"]:
            forward = layer.last_seq(forward, layer_attr=given["last_seq_attr"])
            backward = layer.first_seq(backward, layer_attr=given["first_seq_attr"])
        return layer.concat([forward, backward], given["concat_act"], whole, given["concat_attr"])

    return function(
        f"{name}(input, size, name=None, return_seq=False, {optional})",
        f"""Declare one `{one.__name__}` in each direction (``<name>_fw``, ``<name>_bw``) side by side.

    Args:
        size: of each direction.
        return_seq: all rows; False: the last row of the one and the first row of the other.
        fwd_act: arguments with fwd_ and bwd_ are those of `{one.__name__}` for one direction.
        last_seq_attr: of the layer that takes the last row.
        first_seq_attr: of the layer that takes the first row.
    """,
        build,
    )


bidirectional_lstm = _bidirectional(
    "bidirectional_lstm",
    simple_lstm,
    "mat_param_attr bias_param_attr inner_param_attr act gate_act state_act mixed_layer_attr lstm_cell_attr",
)
bidirectional_gru = _bidirectional(
    "bidirectional_gru",
    simple_gru2,
    "mixed_param_attr mixed_bias_attr gru_param_attr gru_bias_attr act gate_act mixed_layer_attr gru_cell_attr",
)


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
