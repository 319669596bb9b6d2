# SPDX-License-Identifier: Apache-2.0
"""What travels between trainer and server: a record of numbers and named arrays; `codec` puts it into bytes."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from paddle.errors import WireError
from paddle.pserver.wire.arithmetic import Findings, checksum_of, inspect, is_looked_at_once, is_small_finite
from paddle.pserver.wire.verbs import VERBS, Error, Record, Verb

WIRE_VERSION = 5
MAX_FRAME_BYTES = 1 << 30
MAX_SECTIONS = 4096
MAX_HEADER_BYTES = 1 << 20
_FLOATS = np.dtype("<f4")

Frame: TypeAlias = bytes | memoryview
_Record = TypeVar("_Record", bound=Record)


class DamagedError(WireError):
    """A message's checksum differs: it changed on the way, and sending it again may help.

    Attributes:
        message: what it says of itself, if only its arrays are damaged; their content means nothing.
    """

    def __init__(self, text: str, message: Message | None = None) -> None:
        super().__init__(text)
        self.message = message


class Section:
    """One named array of a message. Its checksum is computed once, however many peers get it."""

    __slots__ = ("_checksum", "_findings", "array", "name")

    def __init__(self, name: str, array: npt.NDArray[Any], checksum: int | None = None) -> None:
        """Name a C-contiguous array of a dtype in `codec.DTYPES`; it must not change until it is sent.

        Args:
            checksum: of its bytes, if it is known.
        """
        self.name = name
        self.array = array
        self._checksum = checksum
        self._findings: Findings | None = None

    @classmethod
    def text(cls, name: str, text: str) -> Section:
        """Return a section that carries text."""
        return cls(name, np.frombuffer(text.encode("utf-8", "replace"), np.uint8))

    def as_text(self) -> str:
        """Return the text of a section made by `text`."""
        return bytes(self.array).decode("utf-8", "replace")

    @property
    def frame(self) -> Frame:
        """The array's bytes, not copied."""
        return self.array.data.cast("B") if self.array.size else b""

    @property
    def checksum(self) -> int:
        """What `Findings.checksum` says of the array's bytes."""
        if self._checksum is None:
            at_once = is_looked_at_once(self.array.nbytes) and self.array.dtype == _FLOATS
            self._checksum = self._look().checksum if at_once else checksum_of(self.frame)
        return self._checksum

    @property
    def is_finite(self) -> bool:
        """Whether an array of float32 holds neither NaN nor infinity."""
        array = self.array
        return self._look().is_finite if is_looked_at_once(array.nbytes) else is_small_finite(array)

    def note(self, found: Findings) -> None:
        """Take what `inspect` would say of the array's bytes."""
        self._findings = found

    def _look(self) -> Findings:
        if self._findings is None:
            self._findings = inspect(self.frame)
        return self._findings


class Message(NamedTuple):
    """One request or reply.

    Attributes:
        record: what it asks or answers; `verb` names it.
        trainer: rank of the trainer that asks.
        session: random number of the asking client; a restarted trainer has another.
        request: number of the request within the session, rising; a reply repeats it.
        stamp: random number of the server process; 0 while the client does not know it.
    """

    record: Record
    trainer: int = 0
    session: int = 0
    request: int = 0
    stamp: int = 0
    sections: tuple[Section, ...] = ()

    @property
    def verb(self) -> Verb:
        """What kind of record it has."""
        return VERBS[type(self.record)]

    def expect(self, kind: type[_Record]) -> _Record:
        """Return the record, of that kind.

        Raises:
            WireError: it is of another.
        """
        if not isinstance(self.record, kind):
            raise WireError(f"expected a message {VERBS[kind].name}, got {self.verb.name}")
        return self.record

    def numbered(self, trainer: int, session: int, request: int, stamp: int) -> Message:
        """Return the same with the numbers that tell whose it is; `_replace` takes twice as long."""
        return Message(self.record, trainer, session, request, stamp, self.sections)

    def has_section(self, name: str) -> bool:
        """Return whether there is a section of that name."""
        return any(section.name == name for section in self.sections)

    def section(self, name: str) -> Section:
        """Return the section of that name.

        Raises:
            WireError: there is none.
        """
        for section in self.sections:
            if section.name == name:
                return section
        raise WireError(f"{self.verb.name} message without a section named {name!r}")


def error_message(text: str, *, is_strange: bool = False) -> Message:
    """Return the reply that refuses a request; `is_strange`: see `verbs.Error`."""
    return Message(Error(is_strange), sections=(Section.text("", text),))
