# SPDX-License-Identifier: Apache-2.0
"""A job's trainers and servers in one thread, over a wire that a seed decides: late, lost, doubled, swapped, cut.

The state machines are those of real jobs: `Conversation` and `Request` on one side, `Engine` with `Training` on the
other. Only sockets, files and the clock are played. As a program it plays many histories and says which went wrong:

    python -m tests.runtime.pserver.client.simulated_wire --histories 100000 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from paddle.errors import PaddleError
from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.client.conversation import Outgoing
from paddle.pserver.client.request import Incoming
from paddle.pserver.wire import message as wire
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import (
    Chunk,
    Repeat,
    Values,
)
from tests.runtime.pserver.client.simulated_parties import Push, Server, Trainer

SMALL_CHUNK = 256
"""Elements of a chunk in here: what is decided does not depend on it."""

_PUSHES = 20  # of all trainers: each is one bit of a float32
_MOST_EVENTS = 20_000
_SIZES = (
    1,
    1,
    2,
    4,
    5,
    6,
    9,
)  # in chunks: the first travel whole, then up to the window, one beyond, two windows


class WentWrong(AssertionError):
    """A history did not end, or with other numbers than those of a plain sum."""


class History:
    """One job, from the first hello to the last goodbye."""

    def __init__(self, choices: random.Random) -> None:
        """Decide what job it is."""
        self.choices = choices
        self.now = 1000.0
        self.num_trainers = choices.choice((1, 2, 3))
        self.is_async = choices.random() < 0.6
        self.is_lossy = choices.random() < 0.4  # messages may be lost, doubled and swapped without a cut
        self.faults = choices.choice((0, 1, 3, 8))
        self.is_whole = not self.faults
        size = choices.choice(_SIZES) * SMALL_CHUNK + choices.choice((0, 0, 1, -1))
        clip = choices.choice((0.0, 1e9))  # whoever clips keeps state, in which nothing is ever clipped here
        num_servers = choices.choice((1, 1, 2))
        optimizer = OptimizerSpec(
            "momentum",
            learning_rate=1.0,
            is_async=self.is_async,
            discard_ratio=choices.choice((1.01, 1.5, 4.0)),
        )
        parameters = (ParameterSpec("w", (size * num_servers,), clip=clip),)
        self.model = Configuration(parameters, optimizer, num_servers, 0, 0)
        self.bits: list[list[float]] = [[] for _ in range(self.num_trainers)]
        for bit in range(choices.randint(1, _PUSHES)):
            self.bits[choices.randrange(self.num_trainers)].append(float(1 << bit))
        shares = [
            Configuration(parameters, optimizer, num_servers, 0, index).share()
            for index in range(num_servers)
        ]
        self.slab_sizes = [share.slab_size for share in shares]
        self.servers = [Server(self, index) for index in range(num_servers)]
        self.to_server: dict[tuple[int, int], deque[Message]] = {}
        self.to_trainer: dict[tuple[int, int], deque[Message]] = {}
        self.epochs: dict[tuple[int, int], int] = {}
        self.trainers: list[Trainer] = []
        for number in range(self.num_trainers):
            self.trainers.append(Trainer(self, number))

    def connect(self, trainer: Trainer) -> None:
        """Break whatever connections a trainer has, and make new ones."""
        for server in self.servers:
            self.cut(trainer.number, server.index)

    def cut(self, number: int, server: int) -> None:
        """Break one connection and make it anew: what was on it is lost."""
        way = (number, server)
        if way in self.epochs:
            self.servers[server].engine.lose(self._address(way))
        self.epochs[way] = self.epochs.get(way, 0) + 1
        self.to_server[way], self.to_trainer[way] = deque(), deque()

    def send(self, trainer: Trainer, messages: Iterator[Outgoing]) -> None:
        """Put a trainer's messages on their way."""
        for each in messages:
            self.to_server[trainer.number, each.server].append(trainer.numbered(each))

    def play(self) -> None:
        """Play until all trainers are done.

        Raises:
            WentWrong: they never are, or the numbers are not those of whole pushes, each taken once.
        """
        for _ in range(_MOST_EVENTS):
            if all(trainer.is_done for trainer in self.trainers):
                self._check()
                return
            self._play_one()
        raise WentWrong(f"no end after {_MOST_EVENTS} events: {self._describe()}")

    def _play_one(self) -> None:
        if self.faults and self.choices.random() < 0.03:
            self.faults -= 1
            self.choices.choice(self._fault_kinds())()
        ways = [
            (box, way) for box in (self.to_server, self.to_trainer) for way, queue in box.items() if queue
        ]
        ways = [(box, way) for box, way in ways if box is self.to_server or not self.trainers[way[0]].is_slow]
        if not ways:
            self._let_time_pass()
            return
        box, way = self.choices.choice(ways)
        queue = box[way]
        message = queue.popleft()
        if self.is_lossy and self.faults and self.choices.random() < 0.05:
            self.faults -= 1
            kind = self.choices.randrange(4)
            if kind == 0:
                return
            if kind == 3 and isinstance(message.record, Chunk | Values) and message.sections:
                self._damage(way, message, message.record)
                return
            if kind == 1:
                queue.insert(self.choices.randint(0, len(queue)), message)
            elif queue:
                queue.append(message)
                message = queue.popleft()
        if box is self.to_server:
            replies = self.servers[way[1]].engine.handle(self._address(way), message)
            self._deliver(way[1], replies)
        else:
            self.trainers[way[0]].hear(Incoming(way[1], message))

    def _damage(self, way: tuple[int, int], message: Message, record: Chunk | Values) -> None:
        """Let a chunk, or values, come with another checksum: both sides ask for it again then."""
        repeat = Message(Repeat(record.number), request=message.request)
        if isinstance(record, Chunk):
            self.to_trainer[way].append(repeat)
        else:
            self.trainers[way[0]].hear(Incoming(way[1], repeat))

    def _let_time_pass(self) -> None:
        """Nothing is on its way: somebody must ask, or wake up."""
        if self.is_whole:
            raise WentWrong(f"nothing got lost, and nothing is on its way: {self._describe()}")
        for server in self.servers:
            self._deliver(server.index, server.engine.tick())
        frozen = [trainer for trainer in self.trainers if trainer.is_slow]
        for _ in range(5):
            self.now += 1.25
            for trainer in self.trainers:
                if trainer not in frozen:  # who was hears first what came meanwhile
                    trainer.look()
        for trainer in frozen:
            trainer.is_slow = self.choices.random() < 0.7

    def _fault_kinds(self) -> list[Callable[[], None]]:
        trainer = self.choices.choice(self.trainers)
        server = self.choices.choice(self.servers)

        def cut() -> None:
            self.cut(trainer.number, server.index)
            trainer.hear(Incoming(server.index, None))

        def freeze() -> None:
            trainer.is_slow = True

        def kill_trainer() -> None:
            if not trainer.is_done:
                trainer.start()

        def kill_server() -> None:
            for each in self.trainers:
                way = (each.number, server.index)
                self.epochs[way] += 1
                self.to_server[way], self.to_trainer[way] = deque(), deque()
            server.start()
            for each in self.trainers:
                each.hear(Incoming(server.index, None))

        return [cut, cut, freeze, kill_trainer, kill_server]

    def _deliver(self, server: int, replies: list[Any]) -> None:
        for reply in replies:
            for number in range(self.num_trainers):
                way = (number, server)
                if way in self.epochs and self._address(way) == reply.address:
                    self.to_trainer[way].append(reply.message)

    def _address(self, way: tuple[int, int]) -> bytes:
        return b"%d-%d-%d" % (*way, self.epochs[way])

    def _check(self) -> None:
        every = {push.bit: push for trainer in self.trainers for push in trainer.pushes}
        for server in self.servers:
            values = server.store.slab
            if not values.size:
                continue
            if not np.all(values == values[:1]):
                raise WentWrong(f"server {server.index} has part of a push: {np.unique(values)}")
            total = int(-values[0])
            found = {float(1 << bit) for bit in range(_PUSHES) if total >> bit & 1}
            if total >> _PUSHES or not found <= set(every):
                raise WentWrong(f"server {server.index} has {total:b}, pushed were {sorted(every)}")
            missing = {bit for bit, push in every.items() if push.is_answered} - found
            if missing and not self.is_async:
                raise WentWrong(f"server {server.index} lost the answered pushes {sorted(missing)}")
            count = wire.chunk_count(values.size)
            for push in every.values():
                if push.is_answered and not push.is_quiet and count > 1:
                    self._check_values(server.index, count, push, push.bit in found)

    def _check_values(self, server: int, count: int, push: Push, is_in: bool) -> None:
        """Check that a trainer got all values, and its own push in them."""
        for index in range(count):
            value = push.values.get((server, index))
            if value is None or not np.all(value == value[0]):
                raise WentWrong(f"values of chunk {index} of {push.bit} are {value}")
            if is_in and not int(-value[0]) & int(push.bit):
                raise WentWrong(f"values after {push.bit} are {value[0]}: without it")

    def _describe(self) -> str:
        return "; ".join(
            [f"{self.num_trainers} trainers, asynchronous {self.is_async}, slabs {self.slab_sizes}"]
            + [
                f"trainer {each.number}: done {each.is_done}, request {each.request}, left {len(each.left)}, "
                + ", ".join(
                    f"{request.head.verb.name} {request.progress}"
                    for request in each.conversation._open.values()
                )
                for each in self.trainers
            ]
            + [f"server {each.index}: {each.engine.facts()}" for each in self.servers]
        )


def play(seed: int) -> None:
    """Play the history of a seed; see `History.play`."""
    History(random.Random(seed)).play()


@contextlib.contextmanager
def small_chunks() -> Iterator[None]:
    """Within it a chunk has `SMALL_CHUNK` elements."""
    before, wire.CHUNK = wire.CHUNK, SMALL_CHUNK
    try:
        yield
    finally:
        wire.CHUNK = before


def main(arguments: list[str]) -> int:
    """Play histories; print what went wrong, and with which seed."""
    parser = argparse.ArgumentParser(description="Play trainers and servers over a spoilt wire.")
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first history; the others follow")
    given = parser.parse_args(arguments)
    logging.disable()
    wrong, started = 0, time.monotonic()
    with small_chunks():
        for seed in range(given.seed, given.seed + given.histories):
            try:
                play(seed)
            except (WentWrong, PaddleError) as error:
                wrong += 1
                sys.stdout.write(f"seed {seed}: {type(error).__name__}: {error}\n")
    sys.stdout.write(
        f"{given.histories} histories in {time.monotonic() - started:.0f} s, {wrong} went wrong\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
