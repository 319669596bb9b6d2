# SPDX-License-Identifier: Apache-2.0
"""name_scope: groups operators for display; an operator's `op_namescope` is a path such as `/encoder/layer_1/`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from paddle.fluid.errors import FluidError

_path: ContextVar[str] = ContextVar("paddle_name_scope", default="/")
_children: dict[str, Counter[str]] = {}


def current() -> str:
    """Return the path of the current scope, "/" outside all scopes."""
    return _path.get()


@contextmanager
def name_scope(prefix: str) -> Iterator[None]:
    """Enter a name scope; a second scope with the same prefix at the same level is called `prefix_1`.

    Raises:
        FluidError: the prefix is empty.
    """
    if not prefix:
        raise FluidError("name_scope: expected a name, got an empty string")
    outer = _path.get()
    seen = _children.setdefault(outer, Counter())
    number = seen[prefix]
    seen[prefix] += 1
    token = _path.set(f"{outer}{prefix}{f'_{number}' if number else ''}/")
    try:
        yield
    finally:
        _path.reset(token)
