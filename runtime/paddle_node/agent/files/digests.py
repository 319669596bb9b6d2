# SPDX-License-Identifier: Apache-2.0
"""The digest that files are known by: blake2b, straight from the interpreter where it has it built in.

`hashlib` would load OpenSSL with it, which takes longer than all small files of a job take to digest.
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
    """Compute the digest of a file's current bytes, one step per piece.

    Raises:
        OSError: it cannot be read.
    """
    found = blake2b(digest_size=SIZE)
    with open(path, "rb", buffering=0) as file:
        piece = file.read(_PIECE)
        while piece:
            found.update(piece)
            yield
            piece = file.read(_PIECE)
    return found.hexdigest()
