# SPDX-License-Identifier: Apache-2.0
"""The part of `socket` that agents use, without the enumerations of the standard module.

The agent's bytecode imports it in place of `socket`; see paddle_cluster.connection.agent_code.
"""

from __future__ import annotations

import _socket
from typing import Any, Tuple

_NOT_HERE = ("dup", "socketpair")  # return sockets without the methods below


class socket(_socket.socket):  # noqa: N801 - as in the standard library
    """A socket that accepts connections and is closed at the end of a `with` block."""

    __slots__ = ()

    def __enter__(self) -> socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def accept(self) -> Tuple[socket, Any]:
        """Return a blocking socket for the next connection, and the address of its peer."""
        fd, address = self._accept()  # type: ignore[attr-defined]
        return socket(self.family, self.type, self.proto, fileno=fd), address


def __getattr__(name: str) -> Any:
    if name in _NOT_HERE:
        raise AttributeError(name)
    return getattr(_socket, name)
