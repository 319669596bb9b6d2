# SPDX-License-Identifier: Apache-2.0
"""The command of a login that reconnects: passes its connection to the running agent.

It writes its marker, reads one frame, and passes its standard input and output to the agent. Then it only waits until
the agent has closed them, because the login ends with its command.
"""

from __future__ import annotations

import json
import os
import signal
import socket

from paddle_node.agent.greeting import read_frame
from paddle_node.contract import checked_json
from paddle_node.contract.opening import PREFIX_SIZE, WELCOME, frame, marker
from paddle_node.linux import descriptors

ANSWER_S = 5.0  # a hanging agent may answer later: the launcher tries again
LEFT, REFUSED = 0, 70


def reconnect(nonce: str, stdin: int, stdout: int) -> int:
    """Pass both descriptors to the running agent; return the exit code once the agent has closed them."""
    os.write(stdout, marker(nonce))
    received = bytearray()
    size = read_frame(stdin, received)
    request = bytes(received[PREFIX_SIZE:size])
    if not request:  # the launcher got the agent's address over the old connection
        return LEFT
    asked = checked_json.as_object(request)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(ANSWER_S)
        problem = _connect(connection, asked["at"], request, [stdin, stdout])
        if problem:
            os.write(stdout, frame(json.dumps(dict(problem, kind="failed", request="reconnect")).encode()))
            return REFUSED
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (stdin, stdout):
            os.dup2(null, fd)
        connection.settimeout(None)  # the agent has a lease
        connection.recv(1)
    return LEFT


def _connect(connection: socket.socket, at: str, request: bytes, fds: "list[int]") -> "dict[str, str]":
    """Return why the agent refuses the connection, or an empty result if it accepts it."""
    try:
        connection.connect(b"\0" + at.encode())
        if not descriptors.is_our_user(
            connection
        ):  # another process that took the name after the agent exited
            return {"reason": "gone", "detail": "the node agent has exited"}
        descriptors.send(connection, request, fds)
        if connection.recv(1) != WELCOME:
            return {
                "reason": "gone",
                "detail": "the node agent is ending the job, or does not know this launcher",
            }
    except socket.timeout:
        return {"reason": "late", "detail": "the node agent does not answer"}
    except OSError as error:
        late = isinstance(error, BlockingIOError)  # too many are waiting already
        return {
            "reason": "late" if late else "gone",
            "detail": "the node agent has exited: %s" % error.strerror,
        }
    return {}
