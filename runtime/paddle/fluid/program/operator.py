# SPDX-License-Identifier: Apache-2.0
"""Operator: the core's, with the questions that Fluid scripts and the transpiler ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from paddle import graph
from paddle.graph.operator import EMPTY, OpRole

OP_ROLE = "op_role"
OP_ROLE_VAR = "op_role_var"

__all__ = ["EMPTY", "OP_ROLE", "OP_ROLE_VAR", "OpRole", "Operator"]


@dataclass(frozen=True)
class Operator(graph.Operator):
    """One call in a block; never changed: a block replaces the operator where something is to differ.

    Attributes:
        own_names: name that a variable has here -> its own, where memory_optimize lent it that of a dead one.
    """

    own_names: Mapping[str, str] = field(default_factory=dict)

    def shown_as(self, lent: Mapping[str, str]) -> Self:
        """Return the operator with variables under names that were lent to them: own name -> lent name."""
        used = {*self.input_names, *self.output_names} & lent.keys()
        return replace(self.renamed(lent), own_names={lent[name]: name for name in used})

    def under_own_names(self) -> Self:
        """Return the operator with each variable under its own name."""
        return replace(self.renamed(self.own_names), own_names={}) if self.own_names else self

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the operator with other names for some variables: old name -> new name."""

        def swap(slots: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
            return {slot: tuple(names.get(name, name) for name in members) for slot, members in slots.items()}

        return replace(self, inputs=swap(self.inputs), outputs=swap(self.outputs))

    def input(self, slot: str) -> list[str]:
        """Return the names in an input slot."""
        return list(self.inputs.get(slot, ()))

    def output(self, slot: str) -> list[str]:
        """Return the names in an output slot."""
        return list(self.outputs.get(slot, ()))

    @property
    def input_arg_names(self) -> list[str]:
        """Return all variables it reads."""
        return list(self.input_names)

    @property
    def output_arg_names(self) -> list[str]:
        """Return all variables it writes."""
        return list(self.output_names)

    @property
    def attr_names(self) -> list[str]:
        """Return the names of its attributes."""
        return list(self.attrs)

    def attr(self, name: str) -> object:
        """Return an attribute; lists are tuples.

        Raises:
            KeyError: it has none of that name.
        """
        return self.attrs[name]

    def has_attr(self, name: str) -> bool:
        """Return whether it has the attribute."""
        return name in self.attrs

    def all_attrs(self) -> MappingProxyType[str, object]:
        """Return all attributes, read only."""
        return MappingProxyType(dict(self.attrs))

    @property
    def role(self) -> int:
        """The attribute `op_role`, 0 where it is not set."""
        role = self.attrs.get(OP_ROLE, 0)
        return role if isinstance(role, int) else 0

    @property
    def role_vars(self) -> tuple[str, ...]:
        """The attribute `op_role_var`: parameter, gradient, parameter, gradient ..."""
        names = self.attrs.get(OP_ROLE_VAR, ())
        return names if isinstance(names, tuple) else ()
