# SPDX-License-Identifier: Apache-2.0
"""Computes the digests that identify files: blake2b, from the interpreter's built-in module if there is one.

Importing `hashlib` would load OpenSSL, which takes longer than digesting all small files of a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generator

if TYPE_CHECKING:
    from hashlib import blake2b as blake2b
else:
    try:
        from _blake2 import blake2b
    except ImportError:  # another interpreter than CPython
        from hashlib import blake2b

SIZE = 32  # bytes
_PIECE = 1 << 20


def digest_of(path: str) -> Generator[None, None, str]:
    """Compute the digest of a file's current content, one piece per step; the generator returns hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    found = blake2b(digest_size=SIZE)
    with open(path, "rb", buffering=0) as file:
        piece = file.read(_PIECE)
        while piece:
            found.update(piece)
            yield
            piece = file.read(_PIECE)
    return found.hexdigest()
