# SPDX-License-Identifier: Apache-2.0
"""RULES: the table of update rules by name, from which operators and optimizer classes are made.

A rule's module holds everything about it: the formula, and the table rows from which `ops.update` registers Fluid's
operator, and `fluid.optimizer` and `v2.optimizer` make their classes. `optim.rules` loads all modules of its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from paddle.optim.rules.rule import Rule
from paddle_node.contract.classes import NamedTuple

_Class = TypeVar("_Class", bound="type[Rule]")


class StateArray(NamedTuple):
    """A state array of an update rule, as declared for Fluid's operator and optimizer.

    Attributes:
        name: its name in the rule.
        slot: its input slot in the operator; its output slot has the same position in the signature.
        variable: the suffix that the name of the state's variable contains.
        fill: the constructor's argument with its initial value; "": 0.
    """

    name: str
    slot: str
    variable: str
    fill: str = ""


def _plain_rate(number: Callable[[str], Any]) -> Any:
    return number("LearningRate")


class Fluid(NamedTuple):
    """The declaration of a rule's optimizer class and operator in Fluid.

    Attributes:
        optimizer: the class's name without "Optimizer", and its constructor's arguments in Python syntax, with literal
            defaults. An argument `exclude_from_X_fn(parameter)` sets the attribute X of some parameters to 0.
        says: the docstring of the optimizer class.
        operator: its type and slots, "type: Param Grad ... -> ParamOut ..."; outputs are Param and the saved state.
        attrs: the operator's attributes: name -> default, or type where required.
        kept: the state arrays, in the order of the outputs.
        names: attribute -> the rule's field, where they differ; "": none.
        arguments: attribute -> the constructor's argument, where it is neither the attribute nor the field.
        powers: fields whose powers are in separate slots and are multiplied after the update.
        rate: returns η, including bias correction; called with a function that returns the number in a slot.
        rows: whether a sparse gradient updates only its rows, or the name of an attribute that decides it.
        served: the part of a parameter that a server can update: "slices" or only the "whole".
        compiled: returns the arguments after η for the loop in `ops.base.kernels` with the operator's name; None means
            no loop.
    """

    optimizer: str
    says: str
    operator: str
    attrs: Mapping[str, object]
    kept: tuple[StateArray, ...] = ()
    names: Mapping[str, str] = MappingProxyType({})
    arguments: Mapping[str, str] = MappingProxyType({})
    powers: tuple[str, ...] = ()
    rate: Callable[[Callable[[str], Any]], Any] = _plain_rate
    rows: bool | str = False
    served: str = "slices"
    compiled: Callable[[Any], tuple[Any, ...]] | None = None

    @property
    def op_type(self) -> str:
        """The type of the rule's operator in Fluid, such as "adam"."""
        return self.operator.partition(":")[0]

    @property
    def slots(self) -> tuple[list[str], list[str]]:
        """The names of input slots and of output slots; the name of an optional slot ends in `?`."""
        left, _, right = self.operator.partition(":")[2].partition("->")
        return left.split(), right.split()

    def fields(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the operator's attributes as the rule's hyperparameters."""
        named = {self.names.get(name, name): value for name, value in attributes.items()}
        return {name: value for name, value in named.items() if name}


RULES: dict[str, type[Any]] = {}
"""Classes of `Rule` by name: those of v2, whose momentum belongs to the parameters, and Fluid's."""

FLUID: list[tuple[type[Any], Fluid]] = []
"""Rules that are operators and optimizers of Fluid."""

V2: dict[str, str] = {}
"""Rule -> class and arguments of v2's optimizer beside the common ones, as Python writes them."""


def rule(*names: str, fluid: Fluid | None = None, v2: str = "") -> Callable[[_Class], _Class]:
    """Register the decorated class as the update rule of these rows, from which Fluid and v2 make their classes."""

    def add(cls: _Class) -> _Class:
        RULES.update(dict.fromkeys(names, cls))
        if fluid:
            FLUID.append((cls, fluid))
        if v2:
            V2[names[0]] = v2
        return cls

    return add


_Range: TypeAlias = tuple[str, Callable[[float], bool]]
_NOT_NEGATIVE: _Range = ("0 or more", lambda value: value >= 0)
_POSITIVE: _Range = ("more than 0", lambda value: value > 0)
_BELOW_1: _Range = ("0 or more and less than 1", lambda value: 0 <= value < 1)
_SWITCH: _Range = ("0 or 1", lambda value: value in (0, 1))

HYPER_RANGES: Mapping[str, _Range] = MappingProxyType(
    {
        **dict.fromkeys(("beta1", "beta2", "rho", "decay"), _BELOW_1),
        **dict.fromkeys(("epsilon", "lars_coeff"), _POSITIVE),
        "lr_power": ("0 or less", lambda value: value <= 0),
        **dict.fromkeys(("nesterov", "centered"), _SWITCH),
    }
)
"""Name of a hyperparameter -> its valid values, in words and as a test, for all rules."""

OTHER_RANGE = _NOT_NEGATIVE
"""The valid values of any other hyperparameter."""
