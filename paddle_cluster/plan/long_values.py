# SPDX-License-Identifier: Apache-2.0
"""Environment values that grow with the nodes: sent to a node once, not with each of its processes.

A job of 3,000 nodes with 8 trainers each has 400 KB of endpoints in each of 24,000 environments. A long value is cut
into pieces of one size, so that values that differ in their last bytes alone, as TF_CONFIG, share the pieces before.
A `start` names pieces by digest, and brings those that its node was not sent yet. What is longer than Linux
takes in one string goes into a file on the node, and the process gets the file's path in NAME_FILE.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Set
from functools import lru_cache

from paddle_cluster.config.variables import LONGEST
from paddle_cluster.record import dataclass

PIECE = 16384  # characters; what is shorter goes as it is
FILE_SUFFIX = "_FILE"


@dataclass(frozen=True)
class LongValues:
    """An environment, its long values apart.

    Attributes:
        short: names and values that go as they are.
        pieces: name -> digests of the value's pieces, in their order.
        in_files: the same, of values that no environment could hold.
        texts: digest -> piece.
    """

    short: Mapping[str, str]
    pieces: Mapping[str, tuple[str, ...]]
    in_files: Mapping[str, tuple[str, ...]]
    texts: Mapping[str, str]


def split(env: Mapping[str, str]) -> LongValues:
    """Put the long values of an environment apart."""
    texts: dict[str, str] = {}
    pieces: dict[str, tuple[str, ...]] = {}
    in_files: dict[str, tuple[str, ...]] = {}
    for name, value in env.items():
        if len(value) > PIECE:
            cut = _cut(value)
            texts.update(cut)
            (in_files if is_too_long(name, value) else pieces)[name] = tuple(digest for digest, _ in cut)
    short = {name: value for name, value in env.items() if name not in pieces and name not in in_files}
    return LongValues(short, pieces, in_files, texts)


def packed(values: LongValues, known: Set[str]) -> bytes:
    """The pieces that are not known yet, as the body of a `start`: a JSON list, compressed; empty if there are none."""
    return _packed(tuple(text for digest, text in values.texts.items() if digest not in known))


def is_too_long(name: str, value: str) -> bool:
    """Whether no environment could hold it."""
    room = LONGEST - len(name) - 1
    return len(value) > room or (not value.isascii() and len(os.fsencode(value)) > room)


def told(name: str) -> str:
    """What people are told of a value that no environment can hold."""
    return (
        f"{name} is longer than Linux takes in a variable: it goes into a file, whose path is {name}{FILE_SUFFIX}; "
        f"paddle reads that by itself, other scripts must"
    )


@lru_cache(maxsize=64)
def _cut(value: str) -> tuple[tuple[str, str], ...]:
    parts = (value[at : at + PIECE] for at in range(0, len(value), PIECE))
    return tuple((hashlib.blake2b(os.fsencode(part), digest_size=16).hexdigest(), part) for part in parts)


@lru_cache(maxsize=64)
def _packed(texts: tuple[str, ...]) -> bytes:
    return zlib.compress(json.dumps(texts).encode("ascii"), 1) if texts else b""
