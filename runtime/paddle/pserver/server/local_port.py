# SPDX-License-Identifier: Apache-2.0
"""Serves the trainers of the same node beside a port, in that port's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from paddle.errors import PaddleError, WireError
from paddle.pserver.server.engine import Engine, Reply
from paddle.pserver.transports.entrance import Entrance
from paddle.pserver.transports.local_door import LocalDoor, Visitor
from paddle.pserver.wire.message import Message, error_message
from paddle.pserver.wire.poller import Doorbells
from paddle.pserver.wire.verbs import Attach

_log = logging.getLogger(__name__)


class LocalPort:
    """Visitors of a door. `deliver` sends the engine's replies, to whomever they are for."""

    def __init__(
        self,
        door: LocalDoor,
        engine: Engine,
        bells: Doorbells,
        deliver: Callable[[Sequence[Reply]], None],
    ) -> None:
        self._door, self._engine, self._bells, self._deliver = door, engine, bells, deliver
        self._visitors: dict[int, Visitor] = {}
        self._entrance = Entrance(bells, door.listener.fileno(), door.accept)

    def serve(self) -> None:
        """Do what there is to do; does not wait."""
        visitor = self._entrance.admit()
        if visitor is not None:
            self._visitors[visitor.sock.fileno()] = visitor
            self._bells.add_descriptor(visitor.sock.fileno())
        for visitor in [each for at, each in self._visitors.items() if self._bells.is_ready(at)]:
            self._hear(visitor)

    def has(self, address: bytes) -> bool:
        """Return whether an address is one of a visitor."""
        return self._door.has(address)

    def send(self, address: bytes, message: Message) -> bool:
        """Send; return False if that cannot be done here and now."""
        return self._door.send(address, message)

    def tick(self) -> None:
        """Look for new visitors again."""
        self._entrance.tick()

    def close(self) -> None:
        """Close the door."""
        self._door.close()

    def _hear(self, visitor: Visitor) -> None:
        try:
            received = self._door.receive(visitor)
            if received is None:
                return
            message, descriptors = received
            if isinstance(message.record, Attach):
                self._door.attach(visitor, message, descriptors, self._engine.shared_slabs(message))
            else:
                self._deliver(self._engine.handle(visitor.address, message))
        except WireError as error:
            _log.warning("a trainer of this node: %s", error)
            self._dismiss(visitor)
        except PaddleError as error:
            self._deliver(
                [Reply(visitor.address, error_message(str(error))._replace(request=message.request))]
            )
        except OSError:
            self._dismiss(visitor)

    def _dismiss(self, visitor: Visitor) -> None:
        descriptor = visitor.sock.fileno()
        self._bells.remove_descriptor(descriptor)
        del self._visitors[descriptor]
        self._door.dismiss(visitor)
        self._engine.lose(visitor.address)
