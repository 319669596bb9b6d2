# SPDX-License-Identifier: Apache-2.0
"""StateCell, a decoder's states and the function that computes a step, and InitState, a state's initial value."""

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
    """The initial value of a decoder's state.

    Attributes:
        value: the variable that holds the initial value.
        need_reorder: ignored: sequences keep their order.
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
        """Use the given variable, or create one and fill it with a value.

        Args:
            init: the variable.
            shape: the shape of the new variable; its first dimension is that of init_boot.
            value: the value of all elements of the new variable.
            init_boot: a variable with the number of rows to create.
            need_reorder: ignored.
            dtype: the dtype of the new variable.

        Raises:
            FluidError: init is missing, and so is init_boot or shape.
        """
        if init is None:
            if init_boot is None or shape is None:
                raise FluidError("InitState: give init, or init_boot and shape")
            init = layers.fill_constant_batch_size_like(init_boot, shape, dtype, value)
        self.value, self.need_reorder = init, need_reorder


class Decoder(Protocol):
    """The interface of decoders, which carry states from one step to the next."""

    def keep_state(self, init: InitState) -> tuple[Variable, Keep]:
        """Return a state's variable in the current step, and a function that sets the state for the next step."""


class StateCell:
    """The recurrent cell of a decoder: named states and inputs, and an updater function that computes the new states.

    In `with decoder.block():`, a step calls `compute_state(inputs)`, then `get_state` or `out_state`, and finally
    `update_states()`.
    """

    def __init__(
        self,
        inputs: Mapping[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        """Declare the inputs and states.

        Args:
            inputs: the inputs of a step, by name; a value can be None until `compute_state` is called.
            states: initial values by name.
            out_state: name of the state from which scores are computed.
            name: ignored.

        Raises:
            FluidError: a state is not an InitState, or out_state is not a state.
        """
        for each, state in states.items():
            if not isinstance(state, InitState):
                raise FluidError(f"StateCell: state {each!r} must be an InitState, got {state!r}")
        if out_state not in states:
            raise FluidError(
                f"StateCell: out_state {out_state!r} is not one of {', '.join(states) or 'no states'}"
            )
        self.inputs = dict(inputs)
        self.state_names = list(states)
        self._first, self._out = dict(states), out_state
        self._now: dict[str, Variable] = {}
        self._keeps: dict[str, Keep] = {}
        self._decoder: Decoder | None = None
        self._updater: Callable[[StateCell], None] | None = None

    def enter(self, decoder: Decoder) -> None:
        """Attach the cell to a decoder, which carries its states between steps until `leave` is called.

        Raises:
            FluidError: the cell is already attached to a decoder.
        """
        if self._decoder is not None:
            raise FluidError("StateCell: another decoder is using this cell; complete its block first")
        self._decoder, self._now, self._keeps = decoder, {}, {}

    def leave(self) -> None:
        """Detach the cell from its decoder."""
        self._decoder = None

    def get_state(self, state_name: str) -> Variable:
        """Return a state's current value within the step.

        Raises:
            FluidError: the state is unknown, or the cell is not in a decoder's block.
        """
        if state_name not in self._first:
            raise FluidError(f"StateCell: no state is named {state_name!r}; known: {', '.join(self._first)}")
        if state_name not in self._now:
            if self._decoder is None:
                raise FluidError("StateCell: states have values only inside a decoder's block")
            self._now[state_name], self._keeps[state_name] = self._decoder.keep_state(self._first[state_name])
        return self._now[state_name]

    def get_input(self, input_name: str) -> Variable:
        """Return the variable of a step's input.

        Raises:
            FluidError: the input is unknown or has no value.
        """
        found = self.inputs.get(input_name)
        if found is None:
            raise FluidError(f"StateCell: input {input_name!r} has no value; pass it to compute_state")
        return found

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Set a state to a variable for the rest of the current step."""
        self.get_state(state_name)
        self._now[state_name] = state_value

    def state_updater(self, updater: Callable[[StateCell], None]) -> Callable[[StateCell], None]:
        """Set the function that computes the new states of a step from the cell; for use as a decorator."""
        self._updater = updater
        return updater

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Compute a step's new states with the updater; `inputs` maps names to variables.

        Raises:
            FluidError: an input is unknown, or no updater was set.
        """
        for each in inputs:
            if each not in self.inputs:
                raise FluidError(f"StateCell: no input is named {each!r}; known: {', '.join(self.inputs)}")
        if self._updater is None:
            raise FluidError(
                "StateCell: there is no updater. Decorate the function that computes a step with @cell.state_updater"
            )
        for each in self.state_names:
            self.get_state(each)
        self.inputs.update(inputs)
        self._updater(self)

    def update_states(self) -> None:
        """Carry the current values of the states over to the next step; call this at the end of a step."""
        for each in self.state_names:
            state = self.get_state(each)
            self._keeps[each](state)

    def out_state(self) -> Variable:
        """Return the variable of the output state, from which the decoder computes scores."""
        return self.get_state(self._out)
