# SPDX-License-Identifier: Apache-2.0
"""A trainer's session with the servers of its Fluid program; gradients and values are addressed by name.

Every wait is bounded as in `exchange`. A large step is split into several messages; neither side queues more than one
of them.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Self

import numpy as np

from paddle.errors import ConfigError, PserverError, WireError
from paddle.freed_memory import MESSAGES, keep_freed_memory
from paddle.pserver.client.exchange import Exchange, Network
from paddle.pserver.client.links import Links
from paddle.pserver.wire.assembled_values import Gathering
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.named_values import (
    Array,
    Ids,
    Rows,
    Value,
    from_sections,
    names_of,
    names_section,
    parcels,
    to_sections,
    wish,
)
from paddle.pserver.wire.verbs import Begin, Fetch, Lookup, Ok, Record, Save, Step

_log = logging.getLogger(__name__)

_LEAVE_S = 2.0
Named = Mapping[str, Value]
Homes = Mapping[int, Mapping[str, Array]]
_ANYWHERE: Homes = MappingProxyType({})


class ProgramClient:
    """A trainer's session with the servers of a Fluid program. Not thread-safe; all methods block."""

    def __init__(
        self,
        network: Network,
        *,
        trainer_id: int,
        num_trainers: int,
        timeout_s: float,
        takes_over: bool = False,
        parcel_bytes: int = 8 << 20,
    ) -> None:
        """Start a session with every server; the servers can still be starting.

        Args:
            network: links to the servers.
            trainer_id: rank of this trainer.
            num_trainers: number of trainers in the job; 0 means the number that the servers report.
            timeout_s: maximum silence of a server.
            takes_over: whether the trainer's earlier process is known to be dead, even if servers have not detected it.
            parcel_bytes: maximum size of one message of a step, unless one row of a variable is larger.

        Raises:
            PserverLost: a server did not answer within `timeout_s`.
            PserverError: a server refused: see `Sessions.join`.
        """
        self._network = network
        self._exchange = Exchange(network, trainer_id, timeout_s)
        self._parcel_bytes = parcel_bytes
        self._begun: set[int] = set()  # servers that have part of this step
        self._closed = False
        try:
            self._exchange.hello(num_trainers, takes_over=takes_over)
        except BaseException:
            network.close()
            raise
        for index in range(len(network.endpoints)):
            self._exchange.attach(index, None)
        atexit.register(self._end)

    @classmethod
    def connect(
        cls,
        endpoints: Sequence[str],
        keys: WireKeys | None,
        *,
        trainer_id: int,
        num_trainers: int,
        timeout_s: float,
        takes_over: bool = False,
        patience_s: float = 0.0,
    ) -> Self:
        """Connect to all servers of a program; see `__init__`.

        Args:
            patience_s: time in seconds to wait for a server that is being restarted on the same endpoint.

        Raises:
            ConfigError: trainer_id is out of range.
        """
        if num_trainers and not 0 <= trainer_id < num_trainers:  # 0: unknown
            raise ConfigError(f"trainer_id: expected 0 to {num_trainers - 1}, got {trainer_id}")
        _log.info("trainer %d: waiting up to %.0f s for %s", trainer_id, timeout_s, ", ".join(endpoints))
        keep_freed_memory(MESSAGES)
        links = Links(endpoints, keys, min(patience_s, timeout_s), first_answer_s=timeout_s)
        return cls(
            links,
            trainer_id=trainer_id,
            num_trainers=num_trainers,
            timeout_s=timeout_s,
            takes_over=takes_over,
        )

    @property
    def distant(self) -> frozenset[int]:
        """The servers that do not share memory with this process."""
        return frozenset(
            index for index in range(len(self._network.endpoints)) if not self._network.is_attached(index)
        )

    def begin_step(self) -> None:
        """Begin a step. Servers discard the gradients that `push` sent for a step that was not completed."""
        self._begun.clear()

    def push(self, gradients: Mapping[int, Named]) -> None:
        """Send some of a step's gradients, without waiting for other trainers; a call of `step` completes the step."""
        self._send_parts(self._parcels(gradients), self._part)

    def step(
        self, gradients: Mapping[int, Named], wanted: Mapping[int, Sequence[str]]
    ) -> dict[int, dict[str, Value]]:
        """Send the step's remaining gradients; return the requested values as of the end of the step.

        In synchronous training, each named server waits for all trainers.

        Args:
            gradients: server -> gradients by name; the arrays must not change meanwhile. Gradients pushed to
                a server that is missing here and in `wanted` count as well.
            wanted: server -> names; a server that is missing in `gradients` gets none.

        Raises:
            PserverLost: a server is unreachable.
            PserverError: a server refused, or timed out waiting for a trainer.
            ConfigError: a gradient cannot be sent.
        """
        return self.collect(self.finish_step(gradients, wanted))

    def finish_step(
        self, gradients: Mapping[int, Named], wanted: Mapping[int, Sequence[str]], homes: Homes = _ANYWHERE
    ) -> dict[int, Gathering]:
        """Do what `step` does until the first answers, for callers that free the gradients before `collect`.

        Args:
            homes: see `Gathering`; by server.

        Returns:
            The first values of each server, to be completed by `collect`.
        """
        servers = sorted({*gradients, *wanted, *self._begun})
        messages = self._parcels({index: gradients.get(index, {}) for index in servers})
        last = self._send_all_but_last(messages, self._part)
        found = {index: Gathering(wanted.get(index, ()), homes.get(index)) for index in servers}
        replies = self._exchange.run(
            {
                index: Message(
                    Step(is_first=index not in self._begun), sections=(wish(found[index].missing), *sections)
                )
                for index, sections in last.items()
            }
        )
        self._begun.difference_update(servers)
        for index, reply in replies.items():
            found[index].take(reply.sections)
        return found

    def collect(self, found: Mapping[int, Gathering]) -> dict[int, dict[str, Value]]:
        """Request the values that did not fit in the first answers; return all values by server and name."""
        while asking := {index: each.missing for index, each in found.items() if each.missing}:
            self._fetch_part(found, asking)
        return {index: each.values for index, each in found.items()}

    def begin(self, values: Mapping[int, Named]) -> tuple[int, dict[int, dict[str, str]]]:
        """Send initial values, and wait for trainer 0's values.

        Servers use only trainer 0's values, before its first step.

        Args:
            values: server -> values by name; every server must be named.

        Returns:
            The newest version on any server, and the fingerprints of trainer 0's values: server -> name ->
                fingerprint.

        Raises:
            PserverLost: a server is unreachable.
            PserverError: a server refused, or timed out waiting for trainer 0.
        """
        last = self._send_all_but_last(self._parcels(values), lambda _: Begin(is_last=False))
        replies = self._exchange.run(
            {index: Message(Begin(), sections=tuple(sections)) for index, sections in last.items()}
        )
        given = {
            index: dict(line.split(" ", 1)[::-1] for line in names_of(reply.sections))
            for index, reply in replies.items()
        }
        return max(reply.expect(Ok).version for reply in replies.values()), given

    def fetch(
        self, wanted: Mapping[int, Sequence[str]], homes: Homes = _ANYWHERE
    ) -> dict[int, dict[str, Value]]:
        """Return the current values of variables by server and name, without waiting for other trainers.

        Args:
            wanted: server -> names of variables.
            homes: see `Gathering`; by server.

        Raises:
            PserverLost, PserverError: see `step`.
        """
        return self.collect({index: Gathering(names, homes.get(index)) for index, names in wanted.items()})

    def lookup(self, ids: Mapping[int, Mapping[str, Ids]]) -> dict[int, dict[str, Value]]:
        """Return rows of variables by server and name, without waiting for other trainers.

        A server answers with the rows that fit in one message; further requests fetch the rest.

        Args:
            ids: server -> name -> row ids (n,) int64; each result is (n, ...).
        """
        found: dict[tuple[int, str], list[Array]] = {}
        rest = {index: dict(named) for index, named in ids.items()}
        while rest:
            replies = self._exchange.run(
                {
                    index: Message(Lookup(), sections=tuple(to_sections(named)))
                    for index, named in rest.items()
                }
            )
            for index, reply in replies.items():
                rows = _looked_up(rest[index], reply)
                for name, part in rows.items():
                    found.setdefault((index, name), []).append(part)
                    rest[index][name] = rest[index][name][len(part) :]
                rest[index] = {
                    name: left for name, left in rest[index].items() if len(left) or name not in rows
                }
            rest = {index: named for index, named in rest.items() if named}
        return {index: {name: _joined(found[index, name]) for name in named} for index, named in ids.items()}

    def save(self, name: str, paths: Mapping[int, str]) -> None:
        """Have servers save their rows of a table to files; `paths` maps a server to a path on its machine."""
        self._exchange.run(
            {index: Message(Save(), sections=(names_section((name, path)),)) for index, path in paths.items()}
        )

    def close(self) -> None:
        """Leave the job, so that other trainers no longer wait for this one. Wait at most 2 s. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._end)
        try:
            self._exchange.leave(_LEAVE_S)
        except PserverError as error:
            _log.info("leaving: %s", error)
        finally:
            self._exchange.close()

    def _end(self) -> None:
        """Close at process exit without leaving the job, because a failed process must not look like a finished one."""
        if getattr(sys, "last_value", None) is None:
            self.close()
        elif not self._closed:
            self._closed = True
            self._exchange.close()

    def _parcels(self, values: Mapping[int, Named]) -> dict[int, list[list[Section]]]:
        """Return the sections of the messages to each server, at least one."""
        return {index: parcels(named, self._parcel_bytes) for index, named in values.items()}

    def _part(self, index: int) -> Step:
        """Return the record of a part of a step for a server that is not the last."""
        is_first = index not in self._begun
        self._begun.add(index)
        return Step(is_last=False, is_first=is_first)

    def _send_all_but_last(
        self, messages: Mapping[int, list[list[Section]]], record: Callable[[int], Record]
    ) -> dict[int, list[Section]]:
        """Send all messages except the last of each server; return the sections of that one."""
        self._send_parts({index: each[:-1] for index, each in messages.items()}, record)
        return {index: each[-1] for index, each in messages.items()}

    def _send_parts(
        self, messages: Mapping[int, Sequence[list[Section]]], record: Callable[[int], Record]
    ) -> None:
        """Send each server its messages one after the other, and wait until it has received them."""
        for turn in range(max(map(len, messages.values()), default=0)):
            self._exchange.run(
                {
                    index: Message(record(index), sections=tuple(each[turn]))
                    for index, each in messages.items()
                    if turn < len(each)
                }
            )

    def _fetch_part(
        self, found: Mapping[int, Gathering], asking: Mapping[int, Sequence[tuple[str, int]]]
    ) -> None:
        """Add as many of the requested values as fit in one answer of each server."""
        replies = self._exchange.run(
            {index: Message(Fetch(), sections=(wish(names),)) for index, names in asking.items()}
        )
        for index, reply in replies.items():
            found[index].take(reply.sections)


def _looked_up(asked: Mapping[str, Ids], reply: Message) -> dict[str, Array]:
    """Return the rows of an answer.

    Raises:
        WireError: the answer does not contain the requested rows.
    """
    rows: dict[str, Array] = {}
    for name, value in from_sections(reply.sections).items():
        if isinstance(value, Rows) or not value.ndim or name not in asked or len(value) > len(asked[name]):
            raise WireError(f"received rows of {name!r}, which were not requested")
        rows[name] = value
    if asked and not any(len(value) or not len(asked[name]) for name, value in rows.items()):
        raise WireError(f"the answer lacks rows of {min(asked)!r}")
    return rows


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
