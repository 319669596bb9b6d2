# SPDX-License-Identifier: Apache-2.0
"""The transport within a node: headers on a unix socket in the abstract namespace, and arrays in shared memory.

The server reads dense gradients from the trainer's memory, and trainers map the server's values read-only. Only
processes of the same user are accepted. The socket's name is derived from the port, the job's key and the server's
stamp, which a trainer receives over the base transport. A process that can connect to it is on the same node, whatever
address it uses for the server. A trainer that reaches the server through a different port is behind a proxy and uses
only the base transport, as with streams.

    packet:  frame 0, the header | frame 1 | ...                                 (little-endian)
    frame:   bytes I | the bytes themselves
             FAR I | which of its sender's arrays B | first byte Q | bytes Q     in memory that its sender shares

Shared memory has no lock: messages determine which side may access it. A trainer writes its own memory only between an
answer and its next request, and a server reads it only before it answers. A server with a model writes the slab that
does not hold the values (`store.dense_step`). The two slabs swap with each batch, which needs a push from every
trainer, so a slab named in an answer does not change until its reader pushes again. Rows that do not fit into a
packet are in a third array of the server, one per trainer, until its next answer to that trainer. Each process maps
its peer's memory read-only.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import PaddleError, WireError
from paddle.pserver.transports.packet import (
    MAX_PACKET,
    address_of,
    lies_in,
    pack,
    pack_placed,
    place_of,
    unpack,
)
from paddle.pserver.transports.socket_listener import Peer, SocketListener
from paddle.pserver.transports.transport import Connection, Offer, Site
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message, Section, error_message
from paddle.pserver.wire.shared_memory import Floats, SharedArray, mapped
from paddle.pserver.wire.verbs import Attach, Ok, Pull, PullRows, PushPull, Step
from paddle_node.linux import descriptors

_log = logging.getLogger(__name__)

SMALL = MAX_PACKET // 2
"""Bytes of arrays that always fit in one packet with everything else in it."""
ROWS = 1 << 23
"""Bytes of rows in one answer; rows that do not fit in the packet are in memory that the server shares."""

_BACKLOG = 64
_ANSWER_S = 5.0
_SCRATCH = 1 << 25
"""Elements for arrays that lie elsewhere; pages that were never touched take no memory."""
_ANSWER = ROWS // 2
"""Elements of a server's memory for the arrays of one answer to a trainer: twice what rows take."""
_LINE = 64  # bytes; arrays begin at a multiple of it


def local_name(stamp: int, port: int, keys: WireKeys | None) -> bytes:
    """Return the name of a server port's local socket. Only processes with the job's key can compute it."""
    key = keys.server.secret if keys is not None else b""
    return (
        b"\0paddle-pserver-"
        + hashlib.blake2b(b"%d %d" % (stamp, port), key=key, digest_size=16).hexdigest().encode()
    )


class ShmConnection(Connection):
    """A trainer's shared-memory connection to one server of its node; also its `SharedSlabs`."""

    def __init__(self, port: int, keys: WireKeys | None, hello: Message, size: int) -> None:
        """Connect and exchange the memory; see `Offer` for the arguments.

        Raises:
            OSError, WireError, MemoryError: no memory can be shared with this server.
        """
        self._shared = SharedArray(size + _SCRATCH)
        self.gradient = self._shared.array[:size]
        self._bytes, self._address = self._shared.array.view(np.uint8), address_of(self._shared.array)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.handle = self._sock.fileno()
        try:
            self._sock.settimeout(_ANSWER_S)
            self._sock.connect(local_name(hello.stamp, port, keys))
            if not descriptors.is_our_user(self._sock):
                raise WireError(
                    "cannot share memory with this pserver: its local socket belongs to another user"
                )
            packet = pack(hello._replace(record=Attach(self._shared.array.size)))
            descriptors.send(self._sock, packet, [self._shared.descriptor])
            self._values, self._answer = self._attached(size)
            self._sock.setblocking(False)
        except BaseException:
            self._sock.close()
            raise

    @property
    def slabs(self) -> ShmConnection:
        """Return the memory that the connection shares; see `Connection.slabs`."""
        return self

    def send(self, message: Message) -> bool | None:
        """Send a message; return False on failure, or None if the base connection must carry it."""
        if not self.carries(message):
            return None
        try:
            packet = self._packed(message)
            return len(packet) <= MAX_PACKET and bool(self._sock.send(packet))
        except OSError:
            return False

    def take(self) -> Message | None:
        """Return the next message from the socket, or None if none is available; see `Connection.take`."""
        try:
            packet = self._sock.recv(MAX_PACKET)
        except BlockingIOError:
            return None
        if not packet:
            raise ConnectionResetError("closed")
        return unpack(packet, [*self._values, *self._answer])

    def values(self, reply: Message) -> Floats:
        """Return the slab to which an in-place answer refers; see `SharedSlabs.values`."""
        which = reply.expect(Ok).slab
        if not 0 <= which < len(self._values):
            raise WireError(f"expected a slab number below {len(self._values)} in a reply, got {which}")
        return self._values[which]

    def carries(self, message: Message) -> bool:
        """Return whether a message can be sent: its arrays are in shared memory, or fit into its free space.

        A push must have its whole gradient in shared memory; the server then answers in place. Part of a program's step
        must not use the free space, because the server reads it after it has answered.
        """
        record = message.record
        if isinstance(record, Pull):
            return record.in_place
        if isinstance(record, PushPull):
            if not message.sections or message.sections[0].array is not self.gradient:
                return False
        elif not (
            (isinstance(record, Step) and record.is_last)
            or (isinstance(record, PullRows) and record.is_small)
        ):
            return False
        arrays = [each.array for each in message.sections]
        return self._has_room(arrays) or self._has_room(
            [array for array in arrays if not lies_in(self._shared.array, array)]
        )

    def close(self) -> None:
        """Close the connection; the mapped arrays remain valid."""
        self._sock.close()

    def _has_room(self, arrays: Sequence[npt.NDArray[Any]]) -> bool:
        nbytes = sum([array.nbytes for array in arrays]) + _LINE * (len(arrays) + 1)
        return self.gradient.nbytes + nbytes <= self._bytes.size

    def _packed(self, message: Message) -> bytes:
        """Return a message with its arrays as references; arrays outside shared memory are copied to scratch memory.

        They stay there until the next message.
        """
        places, at = [], -(-self.gradient.nbytes // _LINE) * _LINE
        for array in [each.array for each in message.sections]:
            nbytes = array.nbytes
            offset = 0 if array is self.gradient else address_of(array) - self._address
            if nbytes and not 0 <= offset < self._bytes.size:
                self._bytes[at : at + nbytes] = array.reshape(-1).view(np.uint8)
                offset = at
                at += -(-nbytes // _LINE) * _LINE
            places.append(place_of(0, offset, nbytes) if nbytes else b"")
        record = message.record
        if isinstance(record, PushPull):
            in_place = PushPull(record.num_samples, 0, True, *record[3:])
            message = Message(in_place, *message[1:])
        return pack_placed(message, places)

    def _attached(self, size: int) -> tuple[list[Floats], list[Floats]]:
        packet, given = descriptors.receive(self._sock, MAX_PACKET, 3)
        try:
            answer = unpack(packet)
            # A program's server shares one array; a model's two, without elements where all it holds are rows, and one
            # for answers.
            if not isinstance(answer.record, Ok) or len(given) not in ((3,) if size else (1, 3)):
                raise WireError("the pserver does not offer shared memory")
            values = [mapped(descriptor, size or None) for descriptor in given[:2]]
            return values, [mapped(descriptor, _ANSWER) for descriptor in given[2:]]
        finally:
            _close(given)


class _Trainer(Peer):
    """A trainer's connection: its memory, once attached, and the server's arrays that it can map.

    `answer` is the last of these: the arrays of the latest answer, which the trainer copies before its next request.
    """

    memory: Floats | None = None
    shown: Sequence[Floats] = ()
    answer: SharedArray | None = None


class ShmListener(SocketListener[_Trainer]):
    """A port's listener on a local socket, for trainers on the same node."""

    _KIND = b"local"

    def __init__(self, stamp: int, port: int, keys: WireKeys | None) -> None:
        """Listen on a local socket.

        Raises OSError: this system does not support such sockets, or the name is taken.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            listener.bind(local_name(stamp, port, keys))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        super().__init__(listener)

    def send(self, address: bytes, message: Message) -> bool | None:
        """Send a message to a peer of this listener; see `Listener.send`.

        A large message outside shared memory cannot be sent: the connection is closed, and the trainer requests the
        message over the base transport.
        """
        peer = self._by_address.get(address)
        if peer is None:
            return None
        packet = b""
        if (placed := self._placed(peer, message)) is not None:
            packet = pack(placed, peer.shown)
        try:
            if 0 < len(packet) <= MAX_PACKET:
                return bool(peer.sock.send(packet))
            peer.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        return False

    def _accept(self, sock: socket.socket, address: bytes) -> _Trainer | None:
        return _Trainer(sock, address) if descriptors.is_our_user(sock) else None

    def _read_message(self, peer: _Trainer) -> bool:
        received = _receive(peer)
        if received is None:
            return False
        message, given = received
        try:
            if isinstance(message.record, Attach):
                self._attach(peer, message, given)
            else:
                self._port.handle(peer.address, message)
        finally:
            _close(given)
        return False  # the poller reports the next message

    def _attach(self, peer: _Trainer, message: Message, given: Sequence[int]) -> None:
        """Answer an ATTACH: map the trainer's memory, send the descriptors of the server's.

        Raises:
            WireError: the trainer's memory cannot be used.
        """
        if len(given) != 1:
            raise WireError(f"ATTACH: expected 1 descriptor, got {len(given)}")
        try:
            ours = list(self._port.shared_slabs(message))
        except PaddleError as error:
            self.send(peer.address, error_message(str(error))._replace(request=message.request))
            return
        peer.memory = mapped(given[0], message.expect(Attach).size)
        if len(ours) > 1:  # for a model; a program server's answer is not copied before the next one
            peer.answer = SharedArray(_ANSWER)
            ours = [*ours, peer.answer]
        peer.shown = [each.array for each in ours]
        answer = pack(message._replace(record=Ok()))
        with contextlib.suppress(OSError):  # it has exited: the next read reports that
            descriptors.send(peer.sock, answer, [each.descriptor for each in ours])

    @staticmethod
    def _placed(peer: _Trainer, message: Message) -> Message | None:
        """Return a message for one packet, with large arrays in the memory for answers; None means it is too large."""
        arrays = [each.array for each in message.sections]
        far = [a.nbytes for a in arrays if not any(lies_in(memory, a) for memory in peer.shown)]
        if sum(far) <= SMALL:
            return message
        room = None if peer.answer is None else peer.answer.array.view(np.uint8)
        if room is None or not isinstance(message.record, Ok) or sum(far) + _LINE * len(far) > room.size:
            return None
        sections, at = [], 0
        for section in message.sections:
            name, array = section.name, section.array
            if array.nbytes and not any(lies_in(memory, array) for memory in peer.shown):
                there = room[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
                there[...] = array
                at += -(-array.nbytes // _LINE) * _LINE
                array = there
            sections.append(Section(name, array))
        return message._replace(sections=tuple(sections))


def connect(offer: Offer) -> ShmConnection:
    """Connect to a server of this node over its unix socket; see `Transport.client`."""
    try:
        connection = ShmConnection(
            int(offer.endpoint.rpartition(":")[2]), offer.keys, offer.hello, offer.size or 0
        )
    except TimeoutError:
        raise WireError(f"no answer within {_ANSWER_S:.0f} s") from None
    _log.info("pserver %s is on this node: gradients and values stay in shared memory", offer.endpoint)
    return connection


def listen(site: Site) -> ShmListener | None:
    """Open a listener on a unix socket, for processes of this node; see `Transport.server`."""
    try:
        return ShmListener(site.stamp, site.port, site.keys)
    except (OSError, AttributeError) as error:
        _log.info("cannot share memory with trainers on this node: %s", error)
        return None


def _receive(peer: _Trainer) -> tuple[Message, list[int]] | None:
    """Return the next message and its descriptors, which a trainer sends only once; None means no message is available.

    Raises:
        ConnectionError: the trainer has exited.
        WireError: it is malformed.
    """
    given: list[int] = []
    try:
        if peer.memory is None:
            data, given = descriptors.receive(peer.sock, MAX_PACKET, 1)
        else:
            data = peer.sock.recv(MAX_PACKET)
    except BlockingIOError:
        return None
    if not data:
        raise ConnectionResetError("closed")
    try:
        message = unpack(data, [] if peer.memory is None else [peer.memory])
    except WireError:
        _close(given)
        raise
    return message, given


def _close(given: Sequence[int]) -> None:
    for descriptor in given:
        os.close(descriptor)
