# SPDX-License-Identifier: Apache-2.0
"""Environment values that many processes share: their pieces are sent once, and `start` messages name them by digest.

A value that is too long for Linux's limit on one string is written to a file in the job directory; the process gets the
file's path.
"""

from __future__ import annotations

import os
from typing import Dict, Mapping, Sequence

from paddle_node.contract.records import read_text
from paddle_node.contract.to_agent import Pieces

MOST_BYTES = 64 << 20  # limit for all pieces of a job: the endpoints of a million processes have 20 MB

Named = Mapping[str, Sequence[str]]  # variable -> digests of its pieces


class LongValues:
    """The pieces of long values received so far."""

    def __init__(self) -> None:
        self._pieces: Dict[str, str] = {}
        self._size = 0

    def learn(self, body: bytes) -> None:
        """Store the pieces in a `start`.

        Raises:
            ValueError: the body is malformed, or there are too many pieces.
        """
        if not body:
            return
        import zlib  # few jobs are this large

        left = MOST_BYTES - self._size
        stream = zlib.decompressobj()
        try:
            text = stream.decompress(body, left + 1)
        except zlib.error as error:
            raise ValueError("pieces of long values: %s" % error) from None
        if len(text) > left or not stream.eof:
            raise ValueError(
                "pieces of long values are truncated, or have more than %d bytes in all" % MOST_BYTES
            )
        for piece in read_text(Pieces, text, "long values", "the launcher").pieces:
            self._pieces[_digest(piece)] = piece
        self._size += len(text)

    def variables(self, named: Named) -> Dict[str, str]:
        """Return the values of variables whose pieces a `start` message names."""
        return {name: self._joined(name, digests) for name, digests in named.items()}

    def files(self, named: Named, folder: str) -> Dict[str, str]:
        """Write values that are too long for an environment to files; return the variables with the files' paths.

        Raises:
            OSError: a file cannot be written.
        """
        paths = {}
        for name, digests in named.items():
            path = paths[name + "_FILE"] = "%s/.%s" % (folder, name)
            new = path + ".new"
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb"
            ) as file:
                file.write(os.fsencode(self._joined(name, digests)))
            os.replace(new, path)  # a running process may be reading it
        return paths

    def _joined(self, name: str, digests: Sequence[str]) -> str:
        try:
            return "".join([self._pieces[digest] for digest in digests])
        except KeyError as error:
            raise ValueError("a piece of %s did not arrive: %s" % (name, error)) from None


def _digest(piece: str) -> str:
    import hashlib  # imports OpenSSL, which few jobs need

    return hashlib.blake2b(os.fsencode(piece), digest_size=16).hexdigest()
