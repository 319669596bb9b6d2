# SPDX-License-Identifier: Apache-2.0
"""StateCell: the states of a decoder, how a step computes them, and what they begin with: InitState."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy.typing as npt

from paddle.fluid import layers
from paddle.fluid.errors import FluidError
from paddle.fluid.program.variable import Variable

__all__ = ["InitState", "StateCell"]

Keep = Callable[[Variable], None]


class InitState:
    """What a state begins with.

    Attributes:
        value: the variable.
        need_reorder: has no meaning: sequences keep their order here.
    """

    def __init__(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: npt.DTypeLike = "float32",
    ) -> None:
        """Take a variable, or make one full of a value.

        Args:
            init: the variable.
            shape: without init: of the variable; its first size is that of init_boot.
            value: without init: of all elements.
            init_boot: without init: has as many rows as the variable.
            need_reorder: has no meaning.
            dtype: without init: of the variable.

        Raises:
            FluidError: there is neither init, nor init_boot with shape.
        """
        if init is None:
            if init_boot is None or shape is None:
                raise FluidError("InitState: give init, or init_boot with shape")
            init = layers.fill_constant_batch_size_like(init_boot, shape, dtype, value)
        self.value, self.need_reorder = init, need_reorder


class Decoder(Protocol):
    """What keeps states from step to step."""

    def keep_state(self, init: InitState) -> tuple[Variable, Keep]:
        """Return a state as a step sees it, and what takes its value for the next step."""


class StateCell:
    """Named states and inputs of a step; the updater computes states of them.

    `with decoder.block():` a step calls `compute_state(inputs)`, then `get_state` or `out_state`, then
    `update_states()`.
    """

    def __init__(
        self,
        inputs: Mapping[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        """Declare.

        Args:
            inputs: names of what a step gets; values may be None until `compute_state`.
            states: name -> what it begins with.
            out_state: the state that scores are computed of.
            name: has no meaning.

        Raises:
            FluidError: a state is no InitState, or out_state is none of them.
        """
        for each, state in states.items():
            if not isinstance(state, InitState):
                raise FluidError(f"StateCell: state {each!r} must be an InitState, got {state!r}")
        if out_state not in states:
            raise FluidError(
                f"StateCell: out_state {out_state!r} is none of {', '.join(states) or 'no states'}"
            )
        self.inputs = dict(inputs)
        self.state_names = list(states)
        self._first, self._out = dict(states), out_state
        self._now: dict[str, Variable] = {}
        self._keeps: dict[str, Keep] = {}
        self._decoder: Decoder | None = None
        self._updater: Callable[[StateCell], None] | None = None

    def enter(self, decoder: Decoder) -> None:
        """Belong to a decoder until `leave`; its steps keep the states.

        Raises:
            FluidError: it belongs to one.
        """
        if self._decoder is not None:
            raise FluidError("StateCell: it belongs to a decoder whose block is not filled yet")
        self._decoder, self._now, self._keeps = decoder, {}, {}

    def leave(self) -> None:
        """End belonging to a decoder."""
        self._decoder = None

    def get_state(self, state_name: str) -> Variable:
        """Return a state as it is now in the step.

        Raises:
            FluidError: there is none of that name, or no decoder.
        """
        if state_name not in self._first:
            raise FluidError(f"StateCell: no state {state_name!r}, only {', '.join(self._first)}")
        if state_name not in self._now:
            if self._decoder is None:
                raise FluidError("StateCell: states have values in the block of a decoder")
            self._now[state_name], self._keeps[state_name] = self._decoder.keep_state(self._first[state_name])
        return self._now[state_name]

    def get_input(self, input_name: str) -> Variable:
        """Return an input of the step.

        Raises:
            FluidError: there is none of that name, or it has no value.
        """
        found = self.inputs.get(input_name)
        if found is None:
            raise FluidError(f"StateCell: input {input_name!r} has no value: give it to compute_state")
        return found

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Let a state be a variable from here on in the step."""
        self.get_state(state_name)
        self._now[state_name] = state_value

    def state_updater(self, updater: Callable[[StateCell], None]) -> Callable[[StateCell], None]:
        """Take the function that sets the states of this cell, as a decorator, and return it."""
        self._updater = updater
        return updater

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Compute the states of a step from its inputs.

        Raises:
            FluidError: an input is unknown, or there is no updater.
        """
        for each in inputs:
            if each not in self.inputs:
                raise FluidError(f"StateCell: no input {each!r}, only {', '.join(self.inputs)}")
        if self._updater is None:
            raise FluidError("StateCell: give a function that computes states with @cell.state_updater")
        for each in self.state_names:
            self.get_state(each)
        self.inputs.update(inputs)
        self._updater(self)

    def update_states(self) -> None:
        """Keep the states for the next step."""
        for each in self.state_names:
            state = self.get_state(each)
            self._keeps[each](state)

    def out_state(self) -> Variable:
        """Return the state that scores are computed of."""
        return self.get_state(self._out)
