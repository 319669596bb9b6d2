# SPDX-License-Identifier: Apache-2.0
"""Unique names for variables: `fc_0`, `fc_1`, ... Counters start at 0 and belong to the current generator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class NameGenerator:
    """A generator of unique names, with one counter per key; a prefix is prepended to every name."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._counts: Counter[str] = Counter()

    def __call__(self, key: str) -> str:
        """Return the next name of this key."""
        number = self._counts[key]
        self._counts[key] += 1
        return f"{self._prefix}{key}_{number}"


_current: ContextVar[NameGenerator] = ContextVar("paddle_unique_name")


def generate(key: str) -> str:
    """Generate a unique name `<prefix><key>_<n>`, with the next n of this key."""
    return _generator()(key)


def switch(new_generator: NameGenerator | None = None) -> NameGenerator:
    """Replace the current generator and return the old one; None means a new generator."""
    old = _generator()
    _current.set(new_generator or NameGenerator())
    return old


@contextmanager
def guard(new_generator: NameGenerator | str | None = None) -> Iterator[None]:
    """Return a context with the given generator, a new one with the given prefix, or (for None) a new one."""
    if not isinstance(new_generator, NameGenerator):
        new_generator = NameGenerator(new_generator or "")
    token = _current.set(new_generator)
    try:
        yield
    finally:
        _current.reset(token)


def _generator() -> NameGenerator:
    found = _current.get(None)
    if found is None:
        found = NameGenerator()
        _current.set(found)
    return found
