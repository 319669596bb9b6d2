# SPDX-License-Identifier: Apache-2.0
"""Looks at a node before a job changes anything there, and tries the ways between nodes.

Leaves nothing behind: one temporary file is made and removed, and no directory is made.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import socket
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from agent import disk, environment, network
from agent.capture import Capture
from agent.fields import number, text_or_none, texts, whole_numbers
from agent.identity import login_address
from agent.loop import Loop
from agent.protocol import Fields

PYTHON_LIMIT_S = 30.0
REACH_S = 2.0
BACKLOG = 1024
LOOPBACK = "127.0.0.1"

# Runs in the job's own Python. Not isolated (-I): a job sees packages of the user's site directory too.
_ASK_PYTHON = """
import importlib, json, platform, sys
sys.path = [entry for entry in sys.path if entry]
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = str(getattr(importlib.import_module(name), "__version__", "unknown version"))
    except Exception as error:
        found[name] = None
print("\\n" + json.dumps([platform.python_version(), found]))
"""

Problems = List[List[str]]


class Probe:
    """What `probe` asks for; holds the listener that peers try to reach, until `close`."""

    def __init__(self, loop: Loop, root_dir: str, python: str) -> None:
        self._loop = loop
        self._root_dir = root_dir
        self._python = python
        self._listener: Optional[socket.socket] = None

    def run(self, fields: Fields, done: Callable[[Dict[str, Any]], None]) -> None:
        """Carry out a `probe`; `done` gets the fields of `probed`.

        Raises:
            ValueError: a field is not what it should be.
        """
        problems: Problems = []
        nics = network.interfaces()
        address = _choose_address(
            text_or_none(fields, "address"), text_or_none(fields, "nic"), nics, problems
        )
        free = disk.free_bytes(self._root_dir)
        found = {
            "root_dir": self._root_dir,
            "free_bytes": free,
            "writable": _check_root_dir(self._root_dir, problems),
            "nics": nics,
            "address": address,
            "busy_ports": _busy_ports(address, whole_numbers(fields, "ports"), problems),
            "cpus": len(os.sched_getaffinity(0)),
            "clock": time.time(),
            "listen_port": self._listen(address, problems),
            "problems": problems,
        }
        _check_room(free, number(fields, "need_bytes", 0), self._root_dir, problems)
        _check_workspace(text_or_none(fields, "workspace"), self._root_dir, problems)
        self._ask_python(texts(fields, "modules"), found, problems, done)

    def close(self) -> None:
        """Close the listener."""
        if self._listener is not None:
            self._loop.on_readable(self._listener.fileno(), None)
            self._listener.close()
            self._listener = None

    def _ask_python(
        self,
        modules: List[str],
        found: Dict[str, Any],
        problems: Problems,
        done: Callable[[Dict[str, Any]], None],
    ) -> None:
        def answered(status: int, output: bytes) -> None:
            try:
                version, versions = json.loads(output.splitlines()[-1].decode())
            except (ValueError, IndexError, TypeError):
                said = output.decode("utf-8", "replace").strip()[-300:]
                problems.append(["python", "%s %s and said %r" % (self._python, _how(status), said)])
                version, versions = None, {}
            done(dict(found, python_version=version, modules=versions))

        env = environment.base(os.environ)
        try:
            Capture(self._loop, [self._python, "-c", _ASK_PYTHON, *modules], env, PYTHON_LIMIT_S, answered)
        except (OSError, ValueError) as error:
            problems.append(
                ["python", "%s cannot be run: %s (PYTHON in conf.py)" % (self._python, _why(error))]
            )
            done(dict(found, python_version=None, modules={}))

    def _listen(self, address: str, problems: Problems) -> int:
        self.close()
        listener = socket.socket(network.family_of(address), socket.SOCK_STREAM)
        try:
            listener.bind((address, 0))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            problems.append(["address", "%s cannot be bound: %s" % (address, error.strerror)])
            return 0
        listener.setblocking(False)
        self._listener = listener
        self._loop.on_readable(listener.fileno(), self._accept)
        return int(listener.getsockname()[1])

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            self._listener.accept()[0].close()
        except OSError:
            return  # the peer was content already


class Reach:
    """Tries a TCP connection to every peer at once.

    Args:
        peers: [[node_id, address, port], ...].
        done: called once, after REACH_S at most, with [[node_id, ok, text], ...].

    Raises:
        ValueError: peers has another form.
    """

    def __init__(self, loop: Loop, peers: Any, done: Callable[[List[List[Any]]], None]) -> None:
        self._loop = loop
        self._done = done
        self._results: Dict[int, Tuple[bool, str]] = {}
        self._trying: Dict[int, socket.socket] = {}
        checked = {node_id: (address, port) for node_id, address, port in _peers(peers)}
        self._timer = loop.after(REACH_S, self._give_up)
        for node_id, (address, port) in checked.items():
            self._try(node_id, address, port)
        self._finish()

    def _try(self, node_id: int, address: str, port: int) -> None:
        peer = socket.socket(network.family_of(address), socket.SOCK_STREAM)
        peer.setblocking(False)
        code = peer.connect_ex((address, port))
        if code == errno.EINPROGRESS:
            self._trying[node_id] = peer
            self._loop.on_writable(peer.fileno(), lambda: self._answered(node_id))
        else:
            peer.close()
            self._results[node_id] = (code == 0, "" if code == 0 else os.strerror(code))

    def _answered(self, node_id: int) -> None:
        peer = self._trying.pop(node_id)
        self._loop.on_writable(peer.fileno(), None)
        code = peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        peer.close()
        self._results[node_id] = (code == 0, "" if code == 0 else os.strerror(code))
        self._finish()

    def _give_up(self) -> None:
        for node_id, peer in self._trying.items():
            self._loop.on_writable(peer.fileno(), None)
            peer.close()
            self._results[node_id] = (False, "no answer within %.0f s" % REACH_S)
        self._trying.clear()
        self._finish()

    def _finish(self) -> None:
        if not self._trying:
            self._timer.cancel()
            done, self._done = self._done, lambda results: None
            done([[node_id, ok, text] for node_id, (ok, text) in sorted(self._results.items())])


def _how(status: int) -> str:
    """How a process ended, from its wait status."""
    if os.WIFSIGNALED(status):
        return "was ended by signal %d" % os.WTERMSIG(status)
    return "ended with status %d" % os.WEXITSTATUS(status)


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _peers(value: Any) -> List[Tuple[int, str, int]]:
    if not isinstance(value, list):
        raise ValueError("peers must be a list, got %.80r" % (value,))
    found = []
    for item in value:
        try:
            node_id, address, port = item
            if not 0 <= int(port) <= 65535:
                raise ValueError("no port")
            found.append((int(node_id), str(ipaddress.ip_address(address)), int(port)))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError("%.80r is no [node_id, address, port]: %s" % (item, error)) from error
    return found


def _choose_address(
    given: Optional[str], nic: Optional[str], nics: Dict[str, List[str]], problems: Problems
) -> str:
    if given:
        return str(ipaddress.ip_address(given))  # a name would be looked up, which can take long
    if nic:
        if nics.get(nic):
            return nics[nic][0]
        has = ", ".join(
            "%s (%s)" % (name, " ".join(addresses) or "no address") for name, addresses in nics.items()
        )
        what = "has no address" if nic in nics else "is not there"
        problems.append(["nic", "%s %s; this node has %s" % (nic, what, has)])
    login = login_address()
    if login:
        return login
    every = [address for addresses in nics.values() for address in addresses]
    return next((address for address in every if not ipaddress.ip_address(address).is_loopback), LOOPBACK)


def _busy_ports(address: str, ports: List[int], problems: Problems) -> List[List[Any]]:
    busy = []
    for port in ports:
        code = network.bind_problem(address, port) if port <= 65535 else errno.EINVAL
        if code == errno.EADDRINUSE:
            busy.append([port, network.owner_of(address, port)])
        elif code == errno.EADDRNOTAVAIL:
            break  # told once, by the listener
        elif code is not None:
            problems.append(["port", "%s:%d cannot be bound: %s" % (address, port, os.strerror(code))])
    return busy


def _check_root_dir(root_dir: str, problems: Problems) -> bool:
    parent = disk.deepest(root_dir)
    try:
        with tempfile.NamedTemporaryFile(dir=parent, prefix=".paddle-probe-") as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        free = disk.free_bytes(parent)
        problems.append(
            ["root_dir", "%s cannot be written: %s (%d bytes free)" % (parent, error.strerror, free)]
        )
        return False
    return True


def _check_room(free: int, need: float, root_dir: str, problems: Problems) -> None:
    if free < need:
        problems.append(["disk", "%s has %d bytes free, %d are needed" % (root_dir, free, need)])


def _check_workspace(workspace: Optional[str], root_dir: str, problems: Problems) -> None:
    if workspace is None:
        return
    path = os.path.join(root_dir, os.path.expanduser(workspace))
    if not os.path.isdir(path):
        problems.append(["workspace", "%s is no directory on this node" % path])
    elif not os.access(path, os.W_OK | os.X_OK):
        problems.append(["workspace", "%s cannot be written by this user" % path])
