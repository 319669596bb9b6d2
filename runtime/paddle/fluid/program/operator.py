# SPDX-License-Identifier: Apache-2.0
"""Operator: the core's, with the questions that Fluid scripts and the transpiler ask."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from paddle import graph
from paddle.graph.operator import EMPTY, OpRole

OP_ROLE = "op_role"
OP_ROLE_VAR = "op_role_var"

__all__ = ["EMPTY", "OP_ROLE", "OP_ROLE_VAR", "OpRole", "Operator"]


@dataclass(frozen=True)
class Operator(graph.Operator):
    """One call in a block; never changed: a block replaces the operator where something is to differ."""

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
