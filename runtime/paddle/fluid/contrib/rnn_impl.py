# SPDX-License-Identifier: Apache-2.0
"""basic_gru and basic_lstm: stacked recurrent layers over dense batches, built from basic operators.

GRU (Cho et al., 2014) with gates u, r: h_t = u h_{t-1} + (1 − u) act(W_c [x, r h_{t-1}] + b_c).
LSTM with gates i, j, f, o: c_t = c_{t-1} σ(f + forget_bias) + σ(i) tanh(j), h_t = tanh(c_t) σ(o).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy.typing as npt

from paddle.fluid import layers
from paddle.fluid.contrib.layer import Layer
from paddle.fluid.errors import FluidError
from paddle.fluid.param_attr import ParamAttr, ParamAttrLike
from paddle.fluid.program.variable import Variable
from paddle_node.contract.classes import NamedTuple

__all__ = ["BasicGRUUnit", "BasicLSTMUnit", "basic_gru", "basic_lstm"]

Activation = Callable[[Variable], Variable]


class BasicGRUUnit(Layer):
    """A GRU cell; all calls share its parameters. See the module for the formula."""

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        dtype: npt.DTypeLike = "float32",
    ) -> None:
        """Create the unit; its parameters are created by the first call.

        Args:
            name_scope: prefix of the parameters' names.
            hidden_size: width of the state.
            param_attr: attribute of both weights; a name gets "_gate" and "_candidate".
            bias_attr: attribute of both biases; a name gets the same suffixes.
            gate_activation: layer for gates; None means sigmoid.
            activation: layer for the candidate; None means tanh.
            dtype: dtype of the parameters.
        """
        super().__init__(name_scope, dtype)
        self._size, self._attrs = hidden_size, (param_attr, bias_attr)
        self._gates, self._act = gate_activation or layers.sigmoid, activation or layers.tanh

    def _build_once(self, *inputs: Variable) -> None:
        width = inputs[0].shape[-1] + self._size
        sizes = (("_gate", 2 * self._size), ("_candidate", self._size))
        self._weights = [
            self.create_parameter(_renamed(self._attrs[0], end), [width, size], self._dtype)
            for end, size in sizes
        ]
        self._biases = [
            self.create_parameter(_renamed(self._attrs[1], end), [size], self._dtype, is_bias=True)
            for end, size in sizes
        ]

    def forward(self, input: Variable, pre_hidden: Variable) -> Variable:
        """Return the next state (batch, hidden), given an input (batch, n) and the previous state (batch, hidden)."""
        gates = layers.matmul(layers.concat([input, pre_hidden], 1), self._weights[0])
        r, u = layers.split(self._gates(layers.elementwise_add(gates, self._biases[0])), 2, dim=1)
        candidate = layers.matmul(layers.concat([input, r * pre_hidden], 1), self._weights[1])
        c = self._act(layers.elementwise_add(candidate, self._biases[1]))
        after: Variable = u * pre_hidden + (1.0 - u) * c
        return after


class BasicLSTMUnit(Layer):
    """An LSTM cell without peepholes; all calls share its parameters. See the module for the formula."""

    def __init__(
        self,
        name_scope: str,
        hidden_size: int,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        gate_activation: Activation | None = None,
        activation: Activation | None = None,
        forget_bias: float = 1.0,
        dtype: npt.DTypeLike = "float32",
    ) -> None:
        """Create the unit; its parameters are created by the first call.

        Args:
            name_scope: prefix of the parameters' names.
            hidden_size: width of state and cell.
            param_attr: attribute of the weight.
            bias_attr: attribute of the bias.
            gate_activation: ignored, as in the original: gates use sigmoid.
            activation: ignored, as in the original: the activation is tanh.
            forget_bias: added to the forget gate.
            dtype: dtype of the parameters.
        """
        super().__init__(name_scope, dtype)
        self._size, self._attrs, self._forget_bias = hidden_size, (param_attr, bias_attr), forget_bias

    def _build_once(self, *inputs: Variable) -> None:
        width = inputs[0].shape[-1] + self._size
        self._weight = self.create_parameter(self._attrs[0], [width, 4 * self._size], self._dtype)
        self._bias = self.create_parameter(self._attrs[1], [4 * self._size], self._dtype, is_bias=True)

    def forward(self, input: Variable, pre_hidden: Variable, pre_cell: Variable) -> tuple[Variable, Variable]:
        """Return the next state and cell, given an input (batch, n) and the previous ones, (batch, hidden) each."""
        gates = layers.matmul(layers.concat([input, pre_hidden], 1), self._weight)
        i, j, f, o = layers.split(layers.elementwise_add(gates, self._bias), 4, dim=-1)
        kept = pre_cell * layers.sigmoid(layers.scale(f, bias=self._forget_bias))
        cell = kept + layers.sigmoid(i) * layers.tanh(j)
        return layers.tanh(cell) * layers.sigmoid(o), cell


def basic_gru(
    input: Variable,
    init_hidden: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | None = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    dtype: npt.DTypeLike = "float32",
    name: str = "basic_gru",
) -> tuple[Variable, Variable]:
    """Append stacked GRU layers; return all steps' states and the last states.

    Args:
        input: (batch, steps, n), or (steps, batch, n) if not batch_first.
        init_hidden: initial states, (layers · directions, batch, hidden), layer by layer; None means 0.
        hidden_size: width of a state.
        num_layers: number of layers.
        sequence_length: (batch,), number of steps of each sample; later steps leave the sample's state unchanged. None:
            all steps.
        dropout_prob: dropout rate of every layer's output.
        bidirectional: whether to add a stack that runs in reverse, which doubles the output width.
        batch_first: layout of the input and the output.
        param_attr: attribute of all weights; each layer appends a suffix to its name.
        bias_attr: attribute of all biases; each layer appends a suffix to its name.
        gate_activation: the activation of the gates; see `BasicGRUUnit`.
        activation: the activation of the candidate; see `BasicGRUUnit`.
        dtype: dtype of the parameters.
        name: prefix of the parameters' names.

    Returns:
        States of all steps, (batch, steps, directions · hidden) or, if not batch_first, (steps, batch, ...); last
            states, (layers · directions, batch, hidden).
    """

    def unit(scope: str, weight: ParamAttr | None, bias: ParamAttr | None) -> Layer:
        return BasicGRUUnit(scope, hidden_size, weight, bias, gate_activation, activation, dtype)

    plan = _Plan(name, num_layers, hidden_size, dropout_prob, "downgrade_in_infer", param_attr, bias_attr)
    out, (last,) = _stacked(plan, unit, input, [init_hidden], sequence_length, bidirectional, batch_first)
    return out, last


def basic_lstm(
    input: Variable,
    init_hidden: Variable | None,
    init_cell: Variable | None,
    hidden_size: int,
    num_layers: int = 1,
    sequence_length: Variable | None = None,
    dropout_prob: float = 0.0,
    bidirectional: bool = False,
    batch_first: bool = True,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | None = None,
    gate_activation: Activation | None = None,
    activation: Activation | None = None,
    forget_bias: float = 1.0,
    dtype: npt.DTypeLike = "float32",
    name: str = "basic_lstm",
) -> tuple[Variable, Variable, Variable]:
    """Append stacked LSTM layers; return all steps' states, the last states and the last cells.

    Arguments and shapes are those of `basic_gru` and `BasicLSTMUnit`. init_cell has the shape of init_hidden; give both
    or neither.
    """

    def unit(scope: str, weight: ParamAttr | None, bias: ParamAttr | None) -> Layer:
        return BasicLSTMUnit(
            scope, hidden_size, weight, bias, gate_activation, activation, forget_bias, dtype
        )

    plan = _Plan(name, num_layers, hidden_size, dropout_prob, "upscale_in_train", param_attr, bias_attr)
    first = [init_hidden, init_cell]
    out, (state, cell) = _stacked(plan, unit, input, first, sequence_length, bidirectional, batch_first)
    return out, state, cell


class _Plan(NamedTuple):
    name: str
    depth: int
    size: int
    dropout: float | None
    dropping: str
    param_attr: ParamAttr | None
    bias_attr: ParamAttr | None

    def units(self, make: Callable[..., Layer], direction: int) -> list[Layer]:
        scope, short = (("layers", "fw"), ("reverse_layers", "bw"))[direction]
        return [
            make(
                f"{self.name}_{scope}_{at}",
                _renamed(self.param_attr, f"_{short}_w_{at}"),
                _renamed(self.bias_attr, f"_{short}_b_{at}"),
            )
            for at in range(self.depth)
        ]


def _stacked(
    plan: _Plan,
    make: Callable[..., Layer],
    input: Variable,
    first: Sequence[Variable | None],
    lengths: Variable | None,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Variable, list[Variable]]:
    """Return all outputs of the last layer, and the last step of each kind of state."""
    if len({each is None for each in first}) > 1:
        raise FluidError(f"{plan.name}: give both init_hidden and init_cell, or neither")
    directions = 2 if bidirectional else 1
    steps = layers.transpose(input, [1, 0, 2]) if batch_first else input
    mask = None
    if lengths is not None:
        longest = layers.slice(layers.shape(steps), [0], [0], [1])
        mask = layers.transpose(layers.sequence_mask(lengths, longest, "float32"), [1, 0])
    given = [
        None if each is None else layers.reshape(each, [plan.depth, directions, -1, plan.size])
        for each in first
    ]
    units = [plan.units(make, direction) for direction in range(directions)]
    outs, lasts = [], []
    for direction in range(directions):
        turned: Callable[[Any], Any] = partial(layers.reverse, axis=[0]) if direction else lambda each: each
        begins = [
            [None if each is None else each[at, direction] for each in given] for at in range(plan.depth)
        ]
        out, last = _direction(
            plan, units[direction], turned(steps), None if mask is None else turned(mask), begins
        )
        outs.append(turned(out))
        lasts.append(last)
    joined = layers.concat(outs, axis=2) if bidirectional else outs[0]
    states = []
    for kind in zip(*lasts, strict=True):  # one per direction, (layers, batch, hidden)
        both = layers.concat(list(kind), axis=1) if bidirectional else kind[0]
        states.append(layers.reshape(both, [plan.depth * directions, -1, plan.size]))
    return (layers.transpose(joined, [1, 0, 2]) if batch_first else joined), states


def _direction(
    plan: _Plan,
    units: Sequence[Layer],
    steps: Variable,
    mask: Variable | None,
    begins: Sequence[Sequence[Variable | None]],
) -> tuple[Variable, list[Variable]]:
    """Return the last layer's outputs (steps, batch, hidden), and the last of each kind of state by layers."""
    rnn = layers.StaticRNN()
    kinds = len(begins[0])
    with rnn.step():
        value = rnn.step_input(steps)
        goes_on = None if mask is None else rnn.step_input(mask)
        for unit, first in zip(units, begins, strict=True):
            before = [
                rnn.memory(init=each)
                if each is not None
                else rnn.memory(batch_ref=steps, shape=[-1, plan.size], ref_batch_dim_idx=1)
                for each in first
            ]
            found = unit(value, *before)
            after = list(found) if isinstance(found, tuple) else [found]
            for at, (old, new) in enumerate(zip(before, after, strict=True)):
                if goes_on is not None:
                    new = after[at] = layers.elementwise_mul(new, goes_on, axis=0) - layers.elementwise_mul(
                        old, goes_on - 1.0, axis=0
                    )
                rnn.update_memory(old, new)
                rnn.step_output(new)
            value = after[0]
            if plan.dropout:
                value = layers.dropout(value, plan.dropout, dropout_implementation=plan.dropping)
        # A copy: the state itself is already an output.
        rnn.step_output(layers.scale(value))
    outs = rnn()
    assert isinstance(outs, list)
    lasts = []
    for kind in range(kinds):
        of_layers = [
            layers.slice(outs[at * kinds + kind], axes=[0], starts=[-1], ends=[2**31 - 1])
            for at in range(plan.depth)
        ]
        lasts.append(layers.concat(of_layers, axis=0) if plan.depth > 1 else of_layers[0])
    return outs[-1], lasts


def _renamed(attr: Any, ending: str) -> Any:
    """Return a parameter's attribute with a suffix appended to its name, if it has one."""
    if not isinstance(attr, ParamAttr) or attr.name is None:
        return attr
    made = copy.copy(attr)
    made.name = attr.name + ending
    return made
