# SPDX-License-Identifier: Apache-2.0
"""What one server's part of a checkpoint says of itself: JSON that carries its own checksum.

It is written last. Without it, or if it does not fit the files beside it, there is no checkpoint.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from paddle.errors import CheckpointError

FORMAT = 1
NAME = "manifest.json"
MAX_BYTES = 64 << 20
_PATH = re.compile(r"v\d{12,20}(?:\.[\w.-]+)?/part-\d+-of-\d+/[\w-]+\.bin\Z", re.ASCII)
_NUMBERS = ("server", "count", "version")
_TEXTS = ("job", "configuration")
_MAPPINGS = ("numbers", "engine")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of pieces.

    Attributes:
        path: relative to the folder of all checkpoints.
        crc32: of all its bytes; None where nobody but a kill can harm it.
    """

    path: str
    nbytes: int
    crc32: int | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One server's part.

    Attributes:
        job: id of the job that wrote it, or empty.
        server, count: which server of how many.
        configuration: as `Configuration.to_text` gives it.
        version: batches applied; the parts of one checkpoint have the same.
        numbers: of the store, and of each parameter: what is kept for all of its elements together.
        files: in the order in which they are read: rows of a later one replace those of an earlier one.
        engine: what trainers did so far: see `Engine.facts`.
    """

    job: str
    server: int
    count: int
    configuration: str
    version: int
    numbers: Mapping[str, Mapping[str, float]]
    files: tuple[DataFile, ...]
    engine: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the form in the file."""
        body = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)
        return json.dumps({"crc32": zlib.crc32(body.encode()), "body": body}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read what `to_bytes` wrote, strictly.

        Raises:
            CheckpointError: it is something else, or of another format.
        """
        if len(data) > MAX_BYTES:
            raise CheckpointError(f"the manifest is larger than {MAX_BYTES} bytes")
        try:
            outer = json.loads(data)
            body = outer["body"]
            if zlib.crc32(body.encode()) != outer["crc32"]:
                raise CheckpointError("the manifest is damaged: its checksum differs")
            said = json.loads(body)
            if said.pop("format") != FORMAT:
                raise CheckpointError(
                    f"the manifest is not of format {FORMAT}: use the release that wrote it"
                )
            files = tuple(map(_data_file, said.pop("files")))
            for names, kind in ((_NUMBERS, int), (_TEXTS, str), (_MAPPINGS, dict)):
                for name in names:
                    _require(name, said[name], kind)
            return cls(**said, files=files)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"the manifest cannot be read: {error}") from None


def _data_file(said: Mapping[str, Any]) -> DataFile:
    file = DataFile(**said)
    for name, value, kind in (("path", file.path, str), ("nbytes", file.nbytes, int)):
        _require(name, value, kind)
    if file.crc32 is not None:
        _require("crc32", file.crc32, int)
    if not _PATH.match(file.path):
        raise ValueError(f"{file.path!r} is no file of a checkpoint")
    return file


def _require(name: str, value: object, kind: type) -> None:
    if type(value) is not kind or (kind is int and not 0 <= value < 1 << 63):  # type: ignore[operator]
        raise ValueError(f"{name}: {value!r:.80}")
