# SPDX-License-Identifier: Apache-2.0
"""The messages by which trainers and a server agree on a model, before training starts.

Every trainer describes the model to each server that holds a part of it: parameters, optimizer, and the number of the
server among these servers. All descriptions must agree; only the initial values of trainer 0 are used. A server answers
with its process's ports and, if the job resumes from a checkpoint, with the batch from which it continues.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, rule_of
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.placement import ServerShare, idle_servers, place
from paddle.pserver.wire.verbs import Configure, Configured
from paddle_node.contract.classes import NamedTuple, dataclass, fields, replace

_PORTS, _RESUMED = "ports", "resumed"  # sections
_PORT_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Configuration:
    """A job's model on one server: its parameters, tables and optimizer, and the server's number among those in use.

    Attributes:
        num_dense, num_sparse: the numbers of servers that hold a part of the model.
        tables: growing tables; none has the name of a parameter.
        idle: indices, in the trainers' list, of the servers that hold no part of the model, in ascending order.
    """

    parameters: tuple[ParameterSpec, ...]
    optimizer: OptimizerSpec
    num_dense: int
    num_sparse: int
    server: int
    tables: tuple[TableSpec, ...] = ()
    idle: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        endpoints: Sequence[str],
        num_sparse: int,
        parameters: Sequence[ParameterSpec],
        optimizer: OptimizerSpec,
        tables: Sequence[TableSpec],
    ) -> Configuration:
        """Return a model's configuration on server 0 of a list of servers; for arguments see `idle_servers`."""
        idle = idle_servers(endpoints, num_sparse, parameters, tables)
        first_sparse = len(endpoints) - num_sparse
        idle_dense = sum(index < first_sparse for index in idle)
        dense, sparse = first_sparse - idle_dense, num_sparse - (len(idle) - idle_dense)
        return cls(tuple(parameters), optimizer, dense, sparse, 0, tuple(tables), idle)

    @property
    def num_listed(self) -> int:
        """The number of servers in the trainers' list."""
        return self.num_dense + self.num_sparse + len(self.idle)

    @property
    def used(self) -> list[int]:
        """The indices, in the trainers' list, of the servers that hold the model, by their numbers."""
        idle = {*self.idle}
        return [index for index in range(self.num_listed) if index not in idle]

    @property
    def all_parameters(self) -> list[ParameterSpec]:
        """All parameters, followed by the parameters of growing tables."""
        return [*self.parameters, *(table.parameter for table in self.tables)]

    def share(self) -> ServerShare:
        """Return the blocks and rows of all parameters on this server, by `placement`."""
        whole = rule_of(self.optimizer).needs_whole
        shares = place(self.parameters, self.num_dense, self.num_sparse, whole=whole, growing=self.tables)
        return shares[self.server]

    def to_text(self) -> str:
        """Return the configuration as JSON text, for a message or a manifest."""
        return json.dumps(
            {
                "parameters": [parameter.to_json() for parameter in self.parameters],
                "optimizer": self.optimizer.to_json(),
                "servers": [self.num_dense, self.num_sparse, self.server],
                "tables": [table.to_json() for table in self.tables],
                "idle": self.idle,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Configuration:
        """Parse the output of `to_text` strictly. Raises PserverError if the text is malformed."""
        try:
            data = json.loads(text)
            num_dense, num_sparse, server = map(_count, data["servers"])
            parameters = tuple(map(ParameterSpec.from_json, data["parameters"]))
            optimizer = OptimizerSpec.from_json(data["optimizer"])
            tables = tuple(map(TableSpec.from_json, data.get("tables", ())))
            idle = tuple(map(_count, data.get("idle", ())))  # which earlier releases leave out
            check_names([*parameters, *(table.parameter for table in tables)])
        except (ConfigError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PserverError(f"cannot read the configuration: {error}") from None
        if not num_dense or server >= num_dense + num_sparse:
            raise PserverError(
                f"the configuration has {num_dense} dense and {num_sparse} sparse servers, but names server {server}"
            )
        whole = cls(parameters, optimizer, num_dense, num_sparse, server, tables, idle)
        if any(one >= following for one, following in pairwise((0, *idle, whole.num_listed))):
            raise PserverError(f"the configuration has {whole.num_listed} servers, but names {idle} as idle")
        return whole

    def difference(self, other: Configuration, ours: str = "here", theirs: str = "there") -> str:
        """Return the first difference from a second configuration, with both values; empty if they are equal.

        Args:
            ours: follows values of this configuration in the text.
            theirs: follows values of the other one.
        """
        here, there = self._named(), other._named()
        for name in [*here, *there]:
            if here.get(name) != there.get(name):
                one, two = _differing(here.get(name), there.get(name))
                return f"{name}: {one} {ours}, {two} {theirs}"
        if list(here) != list(there):
            return f"order: {', '.join(here)} {ours}, {', '.join(there)} {theirs}"
        one, two = (
            f"server {c.server} of {c.num_dense} + {c.num_sparse}{f' without {c.idle}' if c.idle else ''}"
            for c in (self, other)
        )
        return (
            "" if one == two else f"servers: {one} {ours}, {two} {theirs}; give every trainer the same list"
        )

    def _named(self) -> dict[str, Any]:
        parameters = {f"parameter {each.name}": each for each in self.parameters}
        return {
            **parameters,
            "optimizer": self.optimizer,
            **{f"growing table {each.name}": each for each in self.tables},
        }


def _differing(one: Any, two: Any, prefix: str = "") -> tuple[str, str]:
    """Return the fields that differ between two specifications, as text; "absent" for an absent one."""
    if one is None or two is None:
        return ("absent" if one is None else "present"), ("absent" if two is None else "present")
    first, second = (
        {**spec}
        if isinstance(spec, Mapping)
        else {each.name: getattr(spec, each.name) for each in fields(spec)}
        for spec in (one, two)
    )
    texts: list[tuple[str, str]] = []
    for name in [*first, *(each for each in second if each not in first)]:
        a, b = first.get(name, "absent"), second.get(name, "absent")
        if a != b and type(a) is type(b) and (isinstance(a, Mapping) or hasattr(a, "__fields__")):
            texts.append(_differing(a, b, f"{prefix}{name}."))
        elif a != b:
            texts.append((f"{prefix}{name}={a!r}", f"{prefix}{name}={b!r}"))
    return ", ".join(text for text, _ in texts), ", ".join(text for _, text in texts)


def check_names(parameters: Sequence[ParameterSpec]) -> None:
    """Check that all names are distinct. Raises ConfigError if a name occurs twice."""
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
    """Return the CONFIGURE message that describes a model to number `server` of the servers in use."""
    text = replace(model, server=server).to_text()
    return Message(Configure(first_comes), sections=(Section.text("", text),))


class PortRange(NamedTuple):
    """The numbers of dense and sparse ports of a process: the flags ports_num and ports_num_for_sparse."""

    dense: int
    sparse: int

    def __str__(self) -> str:
        return f"ports_num={self.dense} and ports_num_for_sparse={self.sparse}"


def ports_section(dense: int, sparse: int) -> Section:
    """Return the section in the answer to HELLO that reports a process's numbers of ports."""
    return Section.text(_PORTS, f"{dense} {sparse}")


def reported_range(reply: Message) -> PortRange | None:
    """Return the numbers of ports that an answer to HELLO reports, or None if it reports none."""
    for section in reply.sections:
        words = section.as_text().split() if section.name == _PORTS else []
        if len(words) == len(PortRange._fields) and all(
            word.isascii() and word.isdigit() and len(word) <= _PORT_DIGITS for word in words
        ):
            return PortRange(*map(int, words))
    return None


@dataclass(frozen=True, slots=True)
class Position:
    """A position in training, counted in batches.

    Attributes:
        version: number of batches applied; in asynchronous training, those of all trainers together.
        in_pass: the number of those batches that belong to the current, unfinished pass.
    """

    version: int
    in_pass: int


def position(version: int, pass_version: int) -> Section:
    """Return the section with which a server reports a position: of a checkpoint that it resumed, or of a trainer."""
    return Section.text(_RESUMED, f"{version} {version - pass_version}")


def read_positions(
    replies: Mapping[int, Message], endpoints: Sequence[str], *, is_async: bool
) -> Position | None:
    """Return the checkpoint position that all servers resume from; None if the job starts without a checkpoint.

    After the last batch of a pass, one server may have saved its values before it received the end of the pass, and
    another one after it. The pass is then considered finished, and `rejoin` ends it on the other servers.

    Raises:
        PserverError: a server resumes from a checkpoint and another one has no values; or, in synchronous training,
            they resume from checkpoints of different batches.
    """
    found = {index: _read(reply) for index, reply in replies.items()}
    there = [at for at in found.values() if at is not None]
    differ = len({at.version if at else None for at in found.values()}) > 1
    # An asynchronous server that has already trained reports no position.
    if differ and (
        not is_async or not all(reply.expect(Configured).has_values for reply in replies.values())
    ):
        said = "; ".join(
            f"{endpoints[index]}: {f'batch {at.version}' if at else 'none'}"
            for index, at in sorted(found.items())
        )
        raise PserverError(
            f"the pservers resume from checkpoints of different batches: {said}. Choose a "
            "batch that all of them have: --resume=<batch>"
        )
    return min(there, key=lambda at: (at.version, at.in_pass), default=None)


def trainer_positions(replies: Mapping[int, Message]) -> dict[int, Position]:
    """Return a trainer's position by server index: the batches that it has pushed, as in the answer to START_PASS."""
    return {index: _read(reply) or Position(0, 0) for index, reply in replies.items()}


def _read(reply: Message) -> Position | None:
    for section in reply.sections:
        if section.name == _RESUMED:
            version, in_pass = map(int, section.as_text().split())
            return Position(version, in_pass)
    return None
