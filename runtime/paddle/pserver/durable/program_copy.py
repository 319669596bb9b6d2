# SPDX-License-Identifier: Apache-2.0
"""Stores a full copy of a program's state in one file, which gets its final name only when it is complete.

    <folder>/copy-<number of the last request in it>

The file is a sequence of records as in `journal`: one per value, then the gradients that trainers sent for unfinished
steps, and finally the progress of the trainers. A record's stamp is the CRC-32 of its arrays.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from paddle.errors import CheckpointError
from paddle.pserver.durable.journal import HEAD, decode, encode, read_head
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.named_values import Rows, Value, from_sections, to_sections
from paddle.pserver.wire.verbs import Configure, SetValues, Step
from paddle_node.contract.classes import NamedTuple

_NAME = re.compile(r"copy-(\d{16})\Z")


class Sent(NamedTuple):
    """The gradients that a trainer sent for a step that is not complete."""

    trainer: int
    sections: tuple[Section, ...]


class Copy(NamedTuple):
    """A complete copy of a program's state on disk.

    Attributes:
        sequence: number of the last request that the copy includes.
    """

    path: Path
    sequence: int
    nbytes: int


def newest_copy(folder: Path) -> Copy | None:
    """Return the newest complete copy in a folder; None if there is none."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.match(path.name))]
    if not found:
        return None
    sequence, path = max(found)
    return Copy(path, sequence, path.stat().st_size)


def write_copy(
    folder: Path,
    sequence: int,
    values: Iterable[tuple[str, Value]],
    sent: Iterable[Sent],
    facts: Mapping[str, Any],
) -> Copy:
    """Write a copy, and then remove all earlier copies.

    Raises:
        OSError: there is not enough room; earlier copies are retained.
        ConfigError: a value cannot be written.
    """
    path = folder / f"copy-{sequence:016d}"
    unfinished = folder / "unfinished-copy"
    try:
        with open(unfinished, "wb", buffering=0) as file:
            for name, value in values:
                _write(file, Message(SetValues(), sections=tuple(to_sections({name: value}))))
            for trainer, sections in sent:
                _write(file, Message(Step(is_last=False), trainer, sections=sections))
            text = Section.text("", json.dumps(facts))
            _write(file, Message(Configure(), sections=(text,)))
            nbytes = file.tell()
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    for other in folder.iterdir():
        if _NAME.match(other.name) and other != path:
            other.unlink()
    return Copy(path, sequence, nbytes)


def read_copy(copy: Copy) -> Iterator[tuple[str, Value] | Sent | dict[str, Any]]:
    """Yield the values of a copy by name, which the caller then owns, then trainers' messages, then the facts.

    Raises:
        CheckpointError: the copy is damaged.
    """
    with open(copy.path, "rb") as file:
        while True:
            message = _read(file, copy)
            if isinstance(message.record, Configure):
                facts: dict[str, Any] = json.loads(message.section("").as_text())
                yield facts
                return
            if isinstance(message.record, Step):
                yield Sent(message.trainer, message.sections)
                continue
            for name, value in from_sections(message.sections).items():
                yield name, _owned(value)


def _write(file: BinaryIO, message: Message) -> None:
    head, frames = encode(0, message._replace(stamp=_checksum(message)))
    for frame in (head, *frames):
        rest = memoryview(frame).cast("B")
        while rest:
            rest = rest[file.write(rest) :]


def _read(file: BinaryIO, copy: Copy) -> Message:
    head = read_head(file.read(HEAD.size))
    message = None if head is None else decode(head, file.read(head.described), file.read(head.nbytes))
    if message is None or _checksum(message) != message.stamp:
        raise CheckpointError(
            f"{copy.path} is damaged before byte {file.tell()} of {copy.nbytes}, so the state of this server is lost: "
            "start the job again"
        )
    return message


def _checksum(message: Message) -> int:
    crc = 0
    for section in message.sections:
        crc = zlib.crc32(section.frame, crc)
    return crc


def _owned(value: Value) -> Value:
    """Return a value in writable memory."""
    if isinstance(value, Rows):
        return Rows(np.array(value.ids), np.array(value.values), value.height)
    return np.array(value)
