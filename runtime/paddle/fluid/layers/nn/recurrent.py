# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU over sequences, and single steps of them."""

from __future__ import annotations

import numpy.typing as npt

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.projections import fc
from paddle.fluid.layers.tensor import concat
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.program.variable import Variable

__all__ = ["dynamic_gru", "dynamic_lstm", "dynamic_lstmp", "gru_unit", "lstm_unit"]

_NUMBERS = {"identity": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: npt.DTypeLike = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return hidden states and cells (rows, D) of an LSTM over sequences.

    Args:
        input: (rows, 4D), projected to candidate, input, forget and output gate already.
        size: 4D.
        h_0: hidden states before the first step (sequences, D); None: zeros, c_0 likewise.
        c_0: cells before the first step.
        param_attr: of the weight (D, 4D).
        bias_attr: of the bias (1, 4D), (1, 7D) with peepholes; it cannot be left out.
        use_peepholes: whether the gates see the cell.
        is_reverse: from the last row to the first.
        gate_activation: of the gates.
        cell_activation: of the cell on its way out.
        candidate_activation: of the candidate.
        dtype: of the parameters.
    """
    helper = LayerHelper("lstm", name)
    width = _part(size, 4)
    weight = helper.create_parameter(param_attr, (width, 4 * width), dtype)
    bias = helper.create_parameter(bias_attr, (1, (7 if use_peepholes else 4) * width), dtype, is_bias=True)
    inputs = {"Input": input, "H0": h_0, "C0": c_0, "Weight": weight, "Bias": bias}
    attrs = _lstm_attrs(use_peepholes, is_reverse, gate_activation, cell_activation, candidate_activation)
    hidden, cell = helper.apply_all("lstm", inputs, attrs)
    return hidden, cell


def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: int,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: npt.DTypeLike = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """Return projections (rows, proj_size) and cells (rows, D) of an LSTM that sees its projections.

    See dynamic_lstm; the weight is (proj_size, 4D), h_0 holds projections. cell_clip and proj_clip keep cells and
    projections within ± that; None or 0: they may be anything.
    """
    helper = LayerHelper("lstmp", name)
    width = _part(size, 4)
    weight = helper.create_parameter(param_attr, (proj_size, 4 * width), dtype)
    projection = helper.create_parameter(param_attr, (width, proj_size), dtype)
    bias = helper.create_parameter(bias_attr, (1, (7 if use_peepholes else 4) * width), dtype, is_bias=True)
    inputs = {"Input": input, "H0": h_0, "C0": c_0, "Weight": weight, "Bias": bias, "ProjWeight": projection}
    attrs = _lstm_attrs(use_peepholes, is_reverse, gate_activation, cell_activation, candidate_activation)
    attrs |= {"proj_activation": proj_activation, "cell_clip": cell_clip, "proj_clip": proj_clip}
    out, cell = helper.apply_all("lstmp", inputs, attrs)
    return out, cell


def dynamic_gru(
    input: Variable,
    size: int,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """Return the hidden states (rows, D) of a GRU over sequences.

    Args:
        input: (rows, 3D), projected to update, reset and candidate already.
        size: D.
        param_attr: of the weight (D, 3D).
        bias_attr: of the bias (1, 3D).
        is_reverse: from the last row to the first.
        gate_activation: of update and reset.
        candidate_activation: of the candidate.
        h_0: hidden states before the first step (sequences, D); None: zeros.
        origin_mode: h = u h' + (1 - u) candidate, and not the other way round.
    """
    helper = LayerHelper("gru")
    weight = helper.create_parameter(param_attr, (size, 3 * size), input.dtype)
    bias = helper.create_parameter(bias_attr, (1, 3 * size), input.dtype, is_bias=True)
    attrs = {
        "is_reverse": is_reverse,
        "gate_activation": gate_activation,
        "activation": candidate_activation,
        "origin_mode": origin_mode,
    }
    inputs = {"Input": input, "H0": h_0, "Weight": weight, "Bias": bias}
    return helper.apply("gru", inputs, attrs)


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """Return (hidden state, reset hidden state before, gates) of one GRU step; `size` is 3D."""
    helper = LayerHelper("gru_unit", bias_attr=bias_attr)
    width = _part(size, 3)
    weight = helper.create_parameter(param_attr, (width, 3 * width), input.dtype)
    bias = helper.bias((1, 3 * width), input.dtype)
    inputs = {"Input": input, "HiddenPrev": hidden, "Weight": weight, "Bias": bias}
    after, reset, gate = (helper.create_variable_for_type_inference(input.dtype) for _ in range(3))
    outputs = {"Gate": gate, "ResetHiddenPrev": reset, "Hidden": after}
    numbers = {"activation": _number(activation), "gate_activation": _number(gate_activation)}
    helper.append_op("gru_unit", inputs, outputs, {**numbers, "origin_mode": origin_mode})
    return after, reset, gate


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return (hidden state, cell) of one LSTM step over fc([x_t, hidden_t_prev])."""
    helper = LayerHelper("lstm_unit", name)
    width = cell_t_prev.shape[1]
    gates = fc(concat([x_t, hidden_t_prev], axis=1), 4 * width, param_attr=param_attr, bias_attr=bias_attr)
    inputs, attrs = {"X": gates, "C_prev": cell_t_prev}, {"forget_bias": forget_bias}
    cell, hidden = helper.apply_all("lstm_unit", inputs, attrs)
    return hidden, cell


def _lstm_attrs(
    use_peepholes: bool, is_reverse: bool, gate: str, cell: str, candidate: str
) -> dict[str, object]:
    return {
        "use_peepholes": use_peepholes,
        "is_reverse": is_reverse,
        "gate_activation": gate,
        "cell_activation": cell,
        "candidate_activation": candidate,
    }


def _part(size: int, parts: int) -> int:
    if size % parts:
        raise FluidError(f"size: expected a multiple of {parts}, got {size}")
    return size // parts


def _number(activation: str) -> int:
    if activation not in _NUMBERS:
        raise FluidError(f"activation: expected one of {', '.join(_NUMBERS)}, got {activation!r}")
    return _NUMBERS[activation]
