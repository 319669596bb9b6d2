# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: LSTM and GRU over sequences, and single LSTM and GRU steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.projections import fc
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.layers.tensor import concat
from paddle.fluid.param_attr import ParamAttr
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = ["dynamic_gru", "dynamic_lstm", "dynamic_lstmp", "gru_unit", "lstm", "lstm_unit"]

_NUMBERS = {"identity": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


def _part(size: int, parts: int) -> int:
    if size % parts:
        raise FluidError(
            f"size: expected {parts} times the number of units, got {size}: for {size} units, pass {parts * size}"
        )
    return size // parts


def _lstm_bias(given: Mapping[str, Any]) -> tuple[int, int]:
    return 1, (7 if given["use_peepholes"] else 4) * _part(given["size"], 4)


_STEPS = (
    "use_peepholes=True, is_reverse=False, gate_activation='sigmoid', cell_activation='tanh', "
    "candidate_activation='tanh'"
)

dynamic_lstm = several(
    "dynamic_lstm(input, size, h_0=None, c_0=None, param_attr=None, bias_attr=None, "
    f"{_STEPS}, dtype='float32', name=None)",
    """hidden states and cells (rows, D) of an LSTM over sequences.

    Args:
        input: (rows, 4D), already projected to candidate, input, forget and output gate.
        size: 4D.
        h_0: initial hidden states (sequences, D), zero if None; c_0 likewise.
        c_0: cells before the first step.
        param_attr: of the weight (D, 4D).
        bias_attr: of the bias (1, 4D), or (1, 7D) with peepholes; it cannot be omitted.
        use_peepholes: whether the gates see the cell.
        is_reverse: from the last row to the first.
        gate_activation: of the gates.
        cell_activation: of the cell's output.
        candidate_activation: of the candidate.
        dtype: of the parameters""",
    "lstm",
    to="h_0=H0 c_0=C0 size= dtype=",
    learnt={"Weight": lambda given: (_part(given["size"], 4), given["size"]), "Bias": _lstm_bias},
)


dynamic_lstmp = several(
    "dynamic_lstmp(input, size, proj_size, param_attr=None, bias_attr=None, "
    f"{_STEPS}, proj_activation='tanh', dtype='float32', name=None, h_0=None, c_0=None, cell_clip=None, "
    "proj_clip=None)",
    """projections (rows, proj_size) and cells (rows, D) of an LSTM whose steps read the previous projection.

    See dynamic_lstm; the weight is (proj_size, 4D), h_0 holds projections. cell_clip and proj_clip limit cells and
    projections to ± that value unless None or 0""",
    "lstmp",
    to="h_0=H0 c_0=C0 size= proj_size= dtype=",
    learnt={
        "Weight": lambda given: (given["proj_size"], 4 * _part(given["size"], 4)),
        "ProjWeight": lambda given: (_part(given["size"], 4), given["proj_size"]),
        "Bias": _lstm_bias,
    },
)


def _gru_input(given: Mapping[str, Any]) -> Mapping[str, Any]:
    width, size = (-1, *given["input"].shape)[-1], given["size"]
    if width not in (-1, 3 * size):
        fitting = f"pass size={width // 3}, or " if width % 3 == 0 else ""
        raise FluidError(
            f"dynamic_gru: input {given['input'].name!r} has width {width}, but size={size}, the number of units, "
            f"needs width {3 * size}: {fitting}give the fc before it size={3 * size}"
        )
    return {}


dynamic_gru = layer(
    "dynamic_gru(input, size, param_attr=None, bias_attr=None, is_reverse=False, gate_activation='sigmoid', "
    "candidate_activation='tanh', h_0=None, origin_mode=False)",
    """the hidden states (rows, D) of a GRU over sequences.

    Args:
        input: (rows, 3D), already projected to update, reset and candidate.
        size: D.
        param_attr: of the weight (D, 3D).
        bias_attr: of the bias (1, 3D).
        is_reverse: from the last row to the first.
        gate_activation: of update and reset.
        candidate_activation: of the candidate.
        h_0: initial hidden states (sequences, D), zero if None.
        origin_mode: h = u h' + (1 - u) candidate instead of (1 - u) h' + u candidate""",
    "gru",
    change=_gru_input,
    to="candidate_activation=activation h_0=H0 size=",
    learnt={
        "Weight": lambda given: (given["size"], 3 * given["size"]),
        "Bias": lambda given: (1, 3 * given["size"]),
    },
)


gru_unit = several(
    "gru_unit(input, hidden, size, param_attr=None, bias_attr=None, activation='tanh', gate_activation='sigmoid', "
    "origin_mode=False)",
    """the hidden state after one step of a GRU, the reset previous state, and the gates.

    Args:
        input: (N, size), the projected input.
        hidden: previous state, (N, size / 3).
        size: 3 × the width of the state.
        origin_mode: whether to use h = u h' + (1 − u) c (Cho et al., 2014), with gate u, previous state h' and
            candidate c; False: h = (1 − u) h' + u c""",
    to="size=",
    learnt={
        "Weight": lambda given: (_part(given["size"], 3), given["size"]),
        "Bias": lambda given: (1, given["size"]),
    },
    change=lambda given: {name: _number(given[name]) for name in ("activation", "gate_activation")},
    returns="Hidden ResetHiddenPrev Gate",
)


def _gates(given: Mapping[str, Any]) -> dict[str, Any]:
    x = concat([given["x_t"], given["hidden_t_prev"]], axis=1)
    return {"x_t": fc(x, 4 * given["cell_t_prev"].shape[1], **renamed(given, "param_attr bias_attr"))}


lstm_unit = several(
    "lstm_unit(x_t, hidden_t_prev, cell_t_prev, forget_bias=0.0, param_attr=None, bias_attr=None, name=None)",
    "the hidden state and the cell, (N, width) each, after one step of an LSTM over fc([x_t, hidden_t_prev])",
    to="hidden_t_prev=",
    change=_gates,
    returns="H C",
)


def _number(activation: str) -> int:
    if activation not in _NUMBERS:
        raise FluidError(f"activation: expected one of {', '.join(_NUMBERS)}, got {activation!r}")
    return _NUMBERS[activation]


@takes(
    "input, init_h, init_c, max_len, hidden_size, num_layers, dropout_prob=0.0, is_bidirec=False, is_test=False, "
    "name=None, default_initializer=None, seed=-1"
)
def lstm(given: dict[str, Any]) -> tuple[Variable, ...]:
    """Apply a stack of LSTM layers as in cuDNN: equal sequence lengths, no peepholes, one parameter for all weights.

    Return the hidden states of all steps (length, N, H directions), and the last states and cells.

    Args:
        input: (length, N, D).
        init_h: (num_layers directions, N, H), the hidden states before the first step; init_c: the cells, same shape.
        max_len: ignored: the input determines the length.
        hidden_size: H.
        dropout_prob: dropout rate between layers, for training only; the remaining elements are scaled up.
        is_bidirec: whether each layer also runs from the last step to the first, so that there are two directions.
        default_initializer: sets the initial values of the weights.
        seed: ignored: the program's seed is used.
    """
    helper, input, hidden = LayerHelper("cudnn_lstm", given["name"]), given["input"], given["hidden_size"]
    attrs = renamed(given, "max_len hidden_size num_layers dropout_prob is_bidirec is_test seed")
    directions = 1 + bool(given["is_bidirec"])
    inputs = [input.shape[-1], *[hidden * directions] * (given["num_layers"] - 1)]
    size = sum(directions * 4 * hidden * (each + hidden + 2) for each in inputs)
    weight = helper.create_parameter(
        ParamAttr(), (size,), input.dtype, default_initializer=given["default_initializer"]
    )
    slots = {"Input": input, "InitH": given["init_h"], "InitC": given["init_c"], "W": weight}
    return tuple(helper.apply_all("cudnn_lstm", slots, {**attrs, "input_size": inputs[0]}))
