# SPDX-License-Identifier: Apache-2.0
"""Prepares a resident agent: opens its port during the first job, and starts it afterwards.

The agent's outermost process, the watcher, listens on the address at which the login arrived, and reports the port to
its launcher. When the job has ended normally and nothing of it remains, a new interpreter takes over the port. It
receives the agent's modules and the launcher's key through an in-memory file, and nothing that belongs to the job.
"""

from __future__ import annotations

import json
import marshal
import os
import signal
import socket
import sys
from typing import Dict, NoReturn, Tuple

from paddle_node.agent.link.identity import login_address
from paddle_node.agent.processes import residents
from paddle_node.contract.opening import PREFIX_SIZE, body_start, frame
from paddle_node.contract.records import fields_of, read_text
from paddle_node.contract.to_agent import Hello, ResidentRequest
from paddle_node.linux import descriptors
from paddle_node.linux.inet import family_of, is_link_local, usual

NONE = 2  # no listener: a descriptor that stays open in any case
BACKLOG = 64
FLAGS = ("-X", "utf8", "-I", "-S")
LEFT_OUT = ("SSH_AUTH_SOCK", "SSH_TTY")  # they end with the login
CODE = (
    "import marshal,sys;m,f,s=marshal.load(sys.stdin.buffer);g=dict(__name__=str());"
    'exec(f["paddle_node.agent.bootstrap"][0],g);g["stay"](m,f,s)'
)
FAILED = 70


class Offer:
    """The port at which a resident agent will serve the next job. Listens from its creation until the process exits.

    Args:
        received: the launcher's `hello`, which requests a resident agent, and the bytes after it.

    Attributes:
        received: the same bytes, but `hello` has the address and the port instead of the key; null if there is no
            listener.
        listener: the socket's descriptor, or NONE.
    """

    def __init__(self, received: bytes) -> None:
        end = body_start(received)
        hello = read_text(Hello, received[PREFIX_SIZE:end], "hello", "the launcher")
        self._request = hello.resident or ResidentRequest()
        self._root_dir = os.path.expanduser(hello.root_dir).rstrip("/")
        self._port = 0
        self.listener = NONE
        try:
            address = usual(login_address())
            if is_link_local(address) or not descriptors.HAS_MEMORY:
                raise ValueError("this node cannot accept a connection or receive a descriptor")
            self.listener, self._port = _listen(address)
            hello = hello._replace(resident=ResidentRequest(address=address, port=self._port))
        except (OSError, ValueError):  # the next job logs in as usual
            hello = hello._replace(resident=None)
        self.received = frame(json.dumps(dict(fields_of(hello), kind="hello")).encode()) + received[end:]

    def begin(self, magic: bytes, modules: "Dict[str, Tuple[bytes, bytes]]") -> None:
        """Start the resident agent, which continues after this process exits."""
        if os.fork() == 0:
            try:
                self._become_resident(magic, modules)
            finally:
                os._exit(FAILED)

    def _become_resident(self, magic: bytes, modules: "Dict[str, Tuple[bytes, bytes]]") -> NoReturn:
        os.setsid()
        os.chdir("/")
        asked = self._request
        settings = dict(fields_of(asked), listener=self.listener)
        given = descriptors.memory("agent")
        with open(given, "wb", closefd=False) as file:
            marshal.dump((magic, modules, settings), file)
        os.lseek(given, 0, os.SEEK_SET)
        os.dup2(given, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (1, 2):
            os.dup2(null, fd)
        os.set_inheritable(self.listener, True)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        environ = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        environ[residents.MARK] = residents.mark(asked.name, self._port, asked.wait_s, self._root_dir)
        os.execve(sys.executable, [sys.executable, *FLAGS, "-c", CODE], environ)  # noqa: S606


def _listen(address: str) -> Tuple[int, int]:
    """Return a descriptor that listens on any free port of one of our addresses, and the port."""
    with socket.socket(family_of(address), socket.SOCK_STREAM) as listener:
        listener.bind((address, 0))
        listener.listen(BACKLOG)
        port = int(listener.getsockname()[1])
        return listener.detach(), port
