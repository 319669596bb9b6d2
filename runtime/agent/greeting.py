# SPDX-License-Identifier: Apache-2.0
"""The agent's first word, said before all but a few of its modules are imported.

The marker and `hello` go out at once, unasked. The rest of the agent is imported when the launcher wants more than
to greet.
"""

import os
import select

from agent.identity import describe_node
from agent.opening import frame, frame_size, marker

PAUSE_S = 2.0
ENOUGH = 1 << 16  # who reads on knows better what to make of a greeting of this size


def greet(nonce: str, stdin: int, stdout: int) -> bytes:
    """Say `hello` and wait for the launcher's second frame, a moment only: somebody has to keep the lease.

    Returns:
        Everything that was read, the launcher's `hello` first.
    """
    os.write(stdout, marker(nonce) + frame(_json(describe_node(), "hello")))
    waiter = select.poll()
    waiter.register(stdin, select.POLLIN)
    received = b""
    while len(received) <= frame_size(received) and len(received) < ENOUGH and waiter.poll(PAUSE_S * 1000):
        data = os.read(stdin, ENOUGH)
        if not data:
            break
        received += data
    return received


def _json(fields: "dict[str, object]", kind: str) -> bytes:
    """A header without the library's encoder, which takes half as long to import as Python takes to start."""
    parts = ['"kind":%s' % _quoted(kind)]
    for name, value in fields.items():
        if value is None:
            parts.append('"%s":null' % name)
        else:
            parts.append('"%s":%s' % (name, _quoted(value) if isinstance(value, str) else repr(value)))
    return ("{%s}" % ",".join(parts)).encode()


def _quoted(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    return '"%s"' % "".join("\\u%02x%02x" % pair for pair in zip(units[::2], units[1::2]))  # noqa: B905 - Python 3.8
