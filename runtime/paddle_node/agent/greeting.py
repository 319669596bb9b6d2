# SPDX-License-Identifier: Apache-2.0
"""The greeting of the agent, which is sent before most of the agent's modules are imported.

The marker and `hello` are sent immediately, unprompted. The launcher answers with its own `hello` and, unless it needs
only the greeting, with the agent's other modules.
"""

import os
import select

from paddle_node.agent.link.identity import describe_node
from paddle_node.contract.opening import body_start, frame, frame_size, marker

TYPE_CHECKING = False  # of `typing`, which takes time to import
if TYPE_CHECKING:
    from collections.abc import Callable

SILENCE_S = 30.0  # no process runs yet that a lease would end
READ_SIZE = 1 << 16
EVERYTHING = "everything"


def greet(
    nonce: str, magic: str, take_modules: "Callable[[memoryview], None]", stdin: int, stdout: int
) -> "bytes | None":
    """Send `hello`, read the launcher's `hello`, and receive the other modules, which follow it.

    Args:
        nonce: part of the marker.
        magic: identifies the bytecode of this interpreter, in hexadecimal digits; EVERYTHING: all modules are here.
        take_modules: function that is called with the body of the launcher's second frame.
        stdin: the descriptor of the launcher's frames.
        stdout: the descriptor for the agent's frames.

    Returns:
        The received bytes, starting with the launcher's `hello`; None if the launcher disconnected before that.

    Raises:
        TimeoutError: the launcher sent nothing in time.
    """
    fields = describe_node()
    fields["magic"] = magic
    os.write(stdout, marker(nonce) + frame(_json(fields, "hello")))
    received = bytearray()
    size = read_frame(stdin, received)
    hello = bytes(received[:size])
    del received[:size]
    size = read_frame(stdin, received) if hello else 0
    if not size:
        return None
    take_modules(
        memoryview(received)[body_start(received) : size]
    )  # not copied: each page costs the forks time
    return hello + bytes(received[size:])


def read_frame(stdin: int, received: bytearray) -> int:
    """Read until `received` begins with a complete frame; return its size, or 0 if the stream has ended.

    Raises:
        TimeoutError: the launcher sent nothing for SILENCE_S.
    """
    waiter = select.poll()
    waiter.register(stdin, select.POLLIN)
    while len(received) < frame_size(received):
        if not waiter.poll(SILENCE_S * 1000):
            raise TimeoutError("the launcher sent nothing for %d s" % SILENCE_S)
        data = os.read(stdin, READ_SIZE)
        if not data:
            return 0
        received += data
    return frame_size(received)


def _json(fields: "dict[str, object]", kind: str) -> bytes:
    """Format a header as JSON without the library's encoder, whose import takes half as long as Python's start."""
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
