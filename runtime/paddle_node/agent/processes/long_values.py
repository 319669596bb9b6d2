# SPDX-License-Identifier: Apache-2.0
"""Environment values that many processes share: their pieces come once, and a `start` names them by digest.

What is longer than Linux takes in one string goes into a file of the job directory; the process gets its path.
"""

from __future__ import annotations

import os
from typing import Dict, Mapping, Sequence

from paddle_node.contract.records import read_text
from paddle_node.contract.to_agent import Pieces

MOST_BYTES = 64 << 20  # of all pieces of a job: endpoints of a million processes have 20 MB

Named = Mapping[str, Sequence[str]]  # variable -> digests of its pieces


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
        for piece in read_text(Pieces, text, "long values", "the launcher").pieces:
            self._pieces[_digest(piece)] = piece
        self._size += len(text)

    def variables(self, named: Named) -> Dict[str, str]:
        """The values that a `start` has in pieces."""
        return {name: self._joined(name, digests) for name, digests in named.items()}

    def files(self, named: Named, folder: str) -> Dict[str, str]:
        """Write the values that no environment can hold; returns the variables with the files' paths.

        Raises:
            OSError: a file could not be written.
        """
        paths = {}
        for name, digests in named.items():
            path = paths[name + "_FILE"] = "%s/.%s" % (folder, name)
            new = path + ".new"
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb"
            ) as file:
                file.write(os.fsencode(self._joined(name, digests)))
            os.replace(new, path)  # one that runs may be reading it
        return paths

    def _joined(self, name: str, digests: Sequence[str]) -> str:
        try:
            return "".join([self._pieces[digest] for digest in digests])
        except KeyError as error:
            raise ValueError("%s has a piece that did not arrive: %s" % (name, error)) from None


def _digest(piece: str) -> str:
    import hashlib  # with OpenSSL, for few jobs

    return hashlib.blake2b(os.fsencode(piece), digest_size=16).hexdigest()
