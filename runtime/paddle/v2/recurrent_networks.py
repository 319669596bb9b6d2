# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU networks, and their single steps, which `networks` exports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle.signatures import function, renamed, takes
from paddle.v2 import layer, model
from paddle.v2.attr import Param
from paddle.v2.layer.lstm_gru import width_of
from paddle.v2.layer.output import LayerOutput
from paddle.v2.model import ZEROS
from paddle_node.contract.classes import replace


@takes(
    "input, size, name=None, reverse=False, mat_param_attr=None, bias_param_attr=None, inner_param_attr=None, "
    "act=None, gate_act=None, state_act=None, mixed_layer_attr=None, lstm_cell_attr=None"
)
def simple_lstm(given: dict[str, Any]) -> LayerOutput:
    """Declare an LSTM ``<name>`` with its projection of the input to the gates, ``lstm_transform_<name>``."""
    given["name"] = name = model.current().auto_name("lstm", given["name"])
    width = 4 * given["size"]
    gates = layer.mixed(
        width,
        layer.full_matrix_projection(given["input"], width, given["mat_param_attr"]),
        name=f"lstm_transform_{name}",
        layer_attr=given["mixed_layer_attr"],
    )
    own = "name reverse act gate_act state_act bias_attr=bias_param_attr param_attr=inner_param_attr"
    return layer.lstmemory(gates, **renamed(given, f"{own} layer_attr=lstm_cell_attr"))


@takes(
    "input, size, name=None, reverse=False, mixed_param_attr=None, mixed_bias_param_attr=None, "
    "mixed_layer_attr=None, gru_bias_attr=None, gru_param_attr=None, act=None, gate_act=None, gru_layer_attr=None, "
    "naive=False"
)
def simple_gru(given: dict[str, Any]) -> LayerOutput:
    """Declare a GRU ``<name>`` with its projection of the input to the gates, ``<name>_transform``; ignores `naive`.

    As in the original, which runs the GRU as a group, the parameters are named after the group's step.
    """
    name = model.current().auto_name("simple_gru", given["name"])
    own = f"_{name}@{name}_recurrent_group"
    weight, bias = given["gru_param_attr"] or Param(), given["gru_bias_attr"]
    given["gru_param_attr"] = weight if weight.name else replace(weight, name=f"{own}.w0")
    if bias in (None, True):
        bias = replace(ZEROS, name=f"{own}.wbias")
    elif bias and not bias.name:
        bias = replace(bias, name=f"{own}.wbias")
    return _gru(**{**given, "name": name, "gru_bias_attr": bias})


@takes(
    "input, size, name=None, reverse=False, mixed_param_attr=None, mixed_bias_attr=None, gru_param_attr=None, "
    "gru_bias_attr=None, act=None, gate_act=None, mixed_layer_attr=None, gru_cell_attr=None"
)
def simple_gru2(given: dict[str, Any]) -> LayerOutput:
    """Declare a GRU with its projection to the gates: `simple_gru` with a different order of arguments."""
    given["name"] = model.current().auto_name("simple_gru2", given["name"])
    bias, cell = given.pop("mixed_bias_attr"), given.pop("gru_cell_attr")
    return _gru(**given, mixed_bias_param_attr=bias, gru_layer_attr=cell)


def _gru(input: LayerOutput, size: int, **given: Any) -> LayerOutput:
    width, bias = 3 * size, given["mixed_bias_param_attr"]
    gates = layer.mixed(
        width,
        layer.full_matrix_projection(input, width, given["mixed_param_attr"]),
        name=f"{given['name']}_transform",
        bias_attr=False if bias is None else bias,
        layer_attr=given["mixed_layer_attr"],
    )
    own = "name reverse act gate_act bias_attr=gru_bias_attr param_attr=gru_param_attr layer_attr=gru_layer_attr"
    return layer.grumemory(gates, **renamed(given, own))


def _bidirectional(name: str, one: Callable[..., LayerOutput], arguments: str) -> Callable[..., LayerOutput]:
    """Return a bidirectional network; `arguments` are those that each direction has separately."""
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
        return_seq: return all rows; False: the last row of the forward and the first row of the backward layer.
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


_LSTM_UNIT = (
    "param_attr=None, act=None, gate_act=None, state_act=None, input_proj_bias_attr=None, "
    "input_proj_layer_attr=None, lstm_bias_attr=None, lstm_layer_attr=None"
)
_GRU_UNIT = (
    "gru_bias_attr=None, gru_param_attr=None, act=None, gate_act=None, gru_layer_attr=None, naive=False"
)


@takes(f"input, out_memory=None, name=None, size=None, {_LSTM_UNIT}")
def lstmemory_unit(given: dict[str, Any]) -> LayerOutput:
    """Declare one LSTM step ``<name>``, its projection ``<name>_input_recurrent`` and its cell ``<name>_state``.

    Args:
        input: rows projected to the gates, 4 D.
        out_memory: the output of the previous step; None means a memory of ``<name>``, initially zero.
        size: D; a quarter of the input's size by default.
        param_attr: the weight [D, 4 D] of the previous output's projection.
        act: the activation of the candidate, Tanh by default.
        gate_act: the activation of the gates, Sigmoid by default.
        state_act: the activation of the cell for the output, Tanh by default.
        input_proj_bias_attr: the bias of the projection.
        input_proj_layer_attr: the layer attributes of the projection.
        lstm_bias_attr: the peepholes.
    """
    input, before = given["input"], given["out_memory"]
    width = width_of("lstmemory_unit", 4, input, given["size"])
    given["name"] = name = _name("lstm_unit", given["name"])
    if before is None:
        before = layer.memory(name=name, size=width)
    cell = layer.memory(name=f"{name}_state", size=width)
    projection = layer.full_matrix_projection(before, param_attr=given["param_attr"])
    gates = layer.mixed(
        4 * width,
        [layer.identity_projection(input), projection],
        name=f"{name}_input_recurrent",
        bias_attr=given["input_proj_bias_attr"],
        layer_attr=given["input_proj_layer_attr"],
    )
    own = "name act gate_act state_act bias_attr=lstm_bias_attr layer_attr=lstm_layer_attr"
    out = layer.lstm_step(gates, cell, width, **renamed(given, own))
    layer.get_output(out, "state", name=f"{name}_state")
    return out


@takes(f"input, size=None, name=None, out_memory=None, reverse=False, {_LSTM_UNIT}")
def lstmemory_group(given: dict[str, Any]) -> Any:
    """Declare an LSTM as a group ``<name>_recurrent_group`` of `lstmemory_unit` steps."""
    return _group("lstm_group", lstmemory_unit, **given)


@takes(f"input, memory_boot=None, size=None, name=None, {_GRU_UNIT}")
def gru_unit(given: dict[str, Any]) -> LayerOutput:
    """Declare one GRU step ``<name>`` over rows that have been projected to the gates (3 D); `naive` has no effect."""
    width = width_of("gru_unit", 3, given["input"], given["size"])
    given["name"] = name = _name("gru_unit", given["name"])
    before = layer.memory(name=name, size=width, boot_layer=given["memory_boot"])
    own = "name act gate_act bias_attr=gru_bias_attr param_attr=gru_param_attr layer_attr=gru_layer_attr"
    return layer.gru_step(given["input"], before, width, **renamed(given, own))


@takes(f"input, memory_boot=None, size=None, name=None, reverse=False, {_GRU_UNIT}")
def gru_group(given: dict[str, Any]) -> Any:
    """Declare a GRU as a group ``<name>_recurrent_group`` of `gru_unit` steps."""
    return _group("gru_group", gru_unit, **given)


def _group(
    prefix: str, unit: Callable[..., LayerOutput], input: Any, name: str | None, reverse: bool, **of_unit: Any
) -> Any:
    name = _name(prefix, name)
    return layer.recurrent_group(
        lambda row: unit(row, name=name, **of_unit), input, reverse, name=f"{name}_recurrent_group"
    )


def _name(prefix: str, name: str | None) -> str:
    """Return the given name or an automatic one, without the suffix ``@<group>`` of the step's layers."""
    space = model.current()
    return space.auto_name(prefix, name).removesuffix(f"@{space.group}" if space.group else "")
