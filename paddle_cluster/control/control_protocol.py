# SPDX-License-Identifier: Apache-2.0
"""The codec of the frames between a job's launcher and its clients on the same machine. Performs no I/O.

A frame is a length (`!I`) and one line of JSON: an object with "kind". The launcher sends the first frame, `welcome`,
with its version; a client with a different version reports the mismatch and disconnects.

REQUESTS and ANSWERS contain the records of the frames. The frame `shown` has the fields of an event from
`output_events`, and `beat` has no fields.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from paddle_node.contract import checked_json
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.records import ExitCode, Fields, OneLine, RecordError, Whole, read

VERSION = 1
MAX_FRAME = 8 << 20
MAX_REQUEST = 64 << 10
MAX_STACKS = 32  # processes in one request for stacks: each may answer with 32 kB

_LENGTH = struct.Struct("!I")


class ControlError(ValueError):
    """Raised for bytes that violate the protocol."""


class Frame(NamedTuple):
    """A decoded message of the control protocol.

    Attributes:
        record: the frame's record, if the decoder has one for its kind.
    """

    kind: str
    fields: dict[str, Any]
    record: Any = None


class Attach(NamedTuple):
    """A request to follow the job, beginning with its last N lines."""

    lines: Whole = 0


class AskStatus(NamedTuple):
    """A request for the state of the job; the answer is `StatusReply`."""


class AskStacks(NamedTuple):
    """A request for the stacks of the named processes; each is answered by a `StacksReply`."""

    procs: tuple[OneLine, ...]


class AskStop(NamedTuple):
    """A request to stop the job: the signal's name, whether to kill immediately, and the requester."""

    signal: Literal["SIGINT", "SIGTERM"] = "SIGTERM"
    force: bool = False
    by: OneLine = ""


class Missed(NamedTuple):
    """A notice of the number of lines that were dropped because the client read too slowly."""

    count: Whole  # type: ignore[assignment]  # hides tuple.count


class StatusReply(NamedTuple):
    """The answer to `AskStatus`: the state of the job, as in status.json."""

    status: Fields


class StacksReply(NamedTuple):
    """The answer to `AskStacks`: the stack traces of one process."""

    process: str
    text: str


class RequestRefused(NamedTuple):
    """The refusal of a request, with the reason; the connection ends."""

    reason: OneLine


class End(NamedTuple):
    """The last frame: what the job could not clean or collect, and the last lines of a job that did not start."""

    exit_code: ExitCode
    left: tuple[OneLine, ...] = ()
    lines: tuple[OneLine, ...] = ()


REQUESTS: Mapping[str, type[Any]] = {
    "attach": Attach,
    "look": AskStatus,
    "stacks": AskStacks,
    "stop": AskStop,
}
ANSWERS: Mapping[str, type[Any]] = {
    "missed": Missed,
    "status": StatusReply,
    "stacks": StacksReply,
    "refused": RequestRefused,
    "end": End,
}


def encode(kind: str, **fields: Any) -> bytes:
    """Encode one frame.

    Raises:
        ControlError: the frame exceeds the size limit.
    """
    line = json.dumps({**fields, "kind": kind}, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_FRAME:
        raise ControlError(f"a control message {kind!r} has {len(line)} bytes; expected at most {MAX_FRAME}")
    return _LENGTH.pack(len(line)) + line


class ControlDecoder:
    """An incremental decoder of frames, whose bytes may arrive in chunks of any size.

    Args:
        limit: maximum size of a frame in bytes.
        records: kind -> record of the frames to validate.
    """

    def __init__(self, limit: int, records: Mapping[str, type[Any]] = MappingProxyType({})) -> None:
        self._limit = limit
        self._records = records
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add the next bytes and return the frames that they complete.

        Raises:
            ControlError: a length over the limit, a line that is not a frame, or a field outside its limits.
        """
        self._buffer += data
        frames = []
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > self._limit:
                raise ControlError(f"a frame has {size} bytes; expected at most {self._limit}")
            end = _LENGTH.size + size
            if len(self._buffer) < end:
                break
            frames.append(self._frame(bytes(self._buffer[_LENGTH.size : end])))
            del self._buffer[:end]
        return frames

    def _frame(self, line: bytes) -> Frame:
        try:
            fields = checked_json.as_object(line)
            kind = fields.pop("kind", None)
            if not isinstance(kind, str):
                raise ControlError("a frame has no kind")
            record = self._records.get(kind)
            message = None if record is None else read(record, fields, kind, "the control socket")
        except ControlError:
            raise
        except RecordError as error:
            raise ControlError(str(error)) from error
        except ValueError as error:
            raise ControlError(f"a frame is not JSON: {error}") from error
        return Frame(kind, fields, message)
