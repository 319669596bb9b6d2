# SPDX-License-Identifier: Apache-2.0
"""Environment values that many processes share: their pieces come once, and a `start` names them by digest.

What is longer than Linux takes in one string goes into a file of the job directory; the process gets its path.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List

from paddle_node.agent.link.fields import texts
from paddle_node.agent.link.protocol import Fields
from paddle_node.contract import checked_json

MOST_BYTES = 64 << 20  # of all pieces of a job: endpoints of a million processes have 20 MB
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class LongValues:
    """The pieces that have come so far."""

    def __init__(self) -> None:
        self._pieces: Dict[str, str] = {}
        self._size = 0

    def learn(self, body: bytes) -> None:
        """Keep the pieces that a `start` brings.

        Raises:
            ValueError: these are no pieces, or too many.
        """
        if not body:
            return
        import zlib  # few jobs are so large

        left = MOST_BYTES - self._size
        stream = zlib.decompressobj()
        try:
            text = stream.decompress(body, left + 1)
        except zlib.error as error:
            raise ValueError("pieces of long values: %s" % error) from None
        if len(text) > left or not stream.eof:
            raise ValueError("pieces of long values: cut off, or more than %d bytes in all" % MOST_BYTES)
        for piece in texts({"pieces": checked_json.loads(text)}, "pieces"):
            self._pieces[_digest(piece)] = piece
        self._size += len(text)

    def variables(self, fields: Fields) -> Dict[str, str]:
        """The values that a `start` has in pieces."""
        return {name: self._joined(name, named) for name, named in _named(fields, "env_pieces").items()}

    def files(self, fields: Fields, folder: str) -> Dict[str, str]:
        """Write the values that no environment can hold; returns the variables with the files' paths.

        Raises:
            OSError: a file could not be written.
        """
        paths = {}
        for name, named in _named(fields, "env_files").items():
            path = paths[name + "_FILE"] = "%s/.%s" % (folder, name)
            new = path + ".new"
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb"
            ) as file:
                file.write(os.fsencode(self._joined(name, named)))
            os.replace(new, path)  # one that runs may be reading it
        return paths

    def _joined(self, name: str, digests: List[str]) -> str:
        try:
            return "".join([self._pieces[digest] for digest in digests])
        except KeyError as error:
            raise ValueError("%s has a piece that never came: %s" % (name, error)) from None


def _named(fields: Fields, name: str) -> Dict[str, List[str]]:
    value = fields.get(name) or {}
    if not isinstance(value, dict) or not all(_NAME.fullmatch(variable) for variable in value):
        raise ValueError("%s must map names of variables to digests" % name)
    return {variable: texts(value, variable) for variable in value}


def _digest(piece: str) -> str:
    import hashlib  # with OpenSSL, for few jobs

    return hashlib.blake2b(os.fsencode(piece), digest_size=16).hexdigest()
