# SPDX-License-Identifier: Apache-2.0
"""What trainers tell a server before training: parameters, optimizer, and which server of how many it is.

Every trainer sends it and all must agree; only trainer 0's initial values count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, rule_of
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.placement import ServerShare, place
from paddle.pserver.wire.verbs import Configure


@dataclass(frozen=True, slots=True)
class Configuration:
    """A job's parameters and optimizer, as seen by server number `server` of `num_dense + num_sparse`.

    Attributes:
        tables: growing tables; none has the name of a parameter.
    """

    parameters: tuple[ParameterSpec, ...]
    optimizer: OptimizerSpec
    num_dense: int
    num_sparse: int
    server: int
    tables: tuple[TableSpec, ...] = ()

    def share(self) -> ServerShare:
        """Return what this server holds."""
        whole = rule_of(self.optimizer).needs_whole
        shares = place(self.parameters, self.num_dense, self.num_sparse, whole=whole, growing=self.tables)
        return shares[self.server]

    def to_text(self) -> str:
        """Return the form that travels."""
        return json.dumps(
            {
                "parameters": [parameter.to_json() for parameter in self.parameters],
                "optimizer": self.optimizer.to_json(),
                "servers": [self.num_dense, self.num_sparse, self.server],
                "tables": [table.to_json() for table in self.tables],
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Configuration:
        """Read what `to_text` wrote, strictly.

        Raises:
            PserverError: it is something else.
        """
        try:
            data = json.loads(text)
            num_dense, num_sparse, server = map(_count, data["servers"])
            parameters = tuple(map(ParameterSpec.from_json, data["parameters"]))
            optimizer = OptimizerSpec.from_json(data["optimizer"])
            tables = tuple(map(TableSpec.from_json, data.get("tables", ())))
            check_names([*parameters, *(table.parameter for table in tables)])
        except (ConfigError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PserverError(f"the configuration cannot be read: {error}") from None
        if not num_dense or server >= num_dense + num_sparse:
            raise PserverError(f"the configuration is for server {server} of {num_dense} + {num_sparse}")
        return cls(parameters, optimizer, num_dense, num_sparse, server, tables)

    def difference(self, other: Configuration) -> str:
        """Return the first thing in which another configuration differs, both named; empty if none."""
        here = {parameter.name: parameter for parameter in self.parameters}
        there = {parameter.name: parameter for parameter in other.parameters}
        for name in [*here, *there]:
            if here.get(name) != there.get(name):
                return f"parameter {name}: {here.get(name, 'absent')} here, {there.get(name, 'absent')} there"
        if self.optimizer != other.optimizer:
            return f"optimizer: {self.optimizer} here, {other.optimizer} there"
        if self.tables != other.tables:
            ours, others = (", ".join(map(str, c.tables)) or "none" for c in (self, other))
            return f"growing tables: {ours} here, {others} there"
        if list(here) != list(there):
            return f"order of parameters: {', '.join(here)} here, {', '.join(there)} there"
        mine, theirs = (f"server {c.server} of {c.num_dense} + {c.num_sparse}" for c in (self, other))
        return (
            ""
            if mine == theirs
            else f"servers: {mine} here, {theirs} there; give every trainer the same list"
        )


def check_names(parameters: Sequence[ParameterSpec]) -> None:
    """Check that no name occurs twice.

    Raises:
        ConfigError: one does.
    """
    seen: set[str] = set()
    for parameter in parameters:
        if parameter.name in seen:
            raise ConfigError(f"parameter {parameter.name} is given twice")
        seen.add(parameter.name)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 16:
        raise ValueError(f"expected a small whole number, got {value!r}")
    return value


def configure_message(model: Configuration, server: int, first_comes: bool) -> Message:
    """Return what a trainer tells server number `server` of a model."""
    text = replace(model, server=server).to_text()
    return Message(Configure(first_comes), sections=(Section.text("", text),))
