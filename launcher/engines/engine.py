# SPDX-License-Identifier: Apache-2.0
"""A cluster's own launcher (mpirun, srun) as a way to nodes: it starts one porter on each, and these call us.

What is started on a node over a porter is what a login over SSH starts, so that nothing above knows the difference.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.config.settings import Settings
from launcher.connection.bootstrap import FLAGS, Bootstrap, agent_bootstrap, reconnect_bootstrap
from launcher.connection.shell import agent_command
from launcher.engines.rendezvous import Rendezvous
from launcher.engines.tls_stream import TlsStream
from launcher.engines.tools import CODE, GIVEN, HOSTS, Tool, tool_of
from launcher.errors import ConnectError
from launcher.system.installation import AGENT_DIR
from launcher.text.wrapping import visible

PORTER = AGENT_DIR / "porter.py"
START_S = 60.0  # from the tool's start until all porters have called
ENDS_S = 3.0  # for the tool to end by itself when the porters have gone
TERM_S = 3.0  # then, after SIGTERM
KEPT = 2000  # characters of what the tool says
SHOWN = 400
READ_SIZE = 1 << 16

_LOAD = f"import os,zlib,base64;exec(zlib.decompress(base64.b64decode(os.environ.pop('{CODE}'))))"
_SCRIPT = 'command -v python3 >/dev/null 2>&1 && set -- python3; exec "$1" {flags} -c "$0"'


def engine_of(settings: Settings) -> Engine:
    """The engine of a job that is not started over SSH.

    Raises:
        UsageError: a host has a form that the engine does not know.
    """
    cluster = settings.cluster
    return Engine(
        tool_of(cluster),
        [host.name for host in cluster.hosts],
        patience_s=settings.limits.lease_s,
        again_s=settings.ssh.connect_timeout_s,
        python=cluster.python or "python3",
    )


class Engine:
    """Starts the tool with the first connection that is asked for, and ends it with `close`.

    Args:
        names: of the nodes in the order of their ids, as the tool knows them.
        patience_s: how long a porter whose connection is lost calls again.
        again_s: how long a new connection to a node that was there may take.
        python: the job's interpreter, for nodes without python3.
    """

    def __init__(
        self, tool: Tool, names: Sequence[str], patience_s: float, again_s: float, python: str
    ) -> None:
        self._tool = tool
        self._names = tuple(names)
        self._patience_s = patience_s
        self._again_s = again_s
        self._python = python
        self._changed = threading.Condition()
        self._idle: dict[int, TlsStream] = {}
        self._given: list[TlsStream] = []
        self._seen: set[int] = set()
        self._fault = ""  # why no node can be reached any more
        self._rendezvous: Rendezvous | None = None
        self._files = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._listening: threading.Thread | None = None
        self._said = ""
        self._start_by = 0.0
        self._closed = False

    def connect(self, node_id: int, python: str) -> TlsStream:
        """Start an agent on a node; blocks until its porter has called.

        Raises:
            ConnectError: it has not, in time; says what the tool says.
        """
        return self._open(node_id, agent_bootstrap(), python)

    def reconnect(self, node_id: int, python: str) -> TlsStream:
        """Start what brings a new connection to the agent that lives on.

        Raises:
            ConnectError: there is no way to the node now.
        """
        return self._open(node_id, reconnect_bootstrap(), python)

    def _open(self, node_id: int, bootstrap: Bootstrap, python: str) -> TlsStream:
        request = {"argv": ["/bin/sh", "-c", agent_command(bootstrap, python)]}
        stream = self._take(node_id)
        stream.begin(bootstrap, lambda: self._fault)
        try:
            _say(stream, request)
        except OSError as error:
            stream.end()
            raise ConnectError(self._names[node_id], f"its connection ended: {error}.") from error
        return stream

    def _take(self, node_id: int) -> TlsStream:
        """The connection that waits for a request to a node."""
        with self._changed:
            self._begin()
            again_by = time.monotonic() + self._again_s
            deadline = again_by if node_id in self._seen else max(again_by, self._start_by)
            while node_id not in self._idle:
                left_s = deadline - time.monotonic()
                if self._fault or self._closed or left_s <= 0:
                    raise self._missing(node_id)
                self._changed.wait(left_s)
            stream = self._idle.pop(node_id)
            self._given.append(stream)
            return stream

    def _missing(self, node_id: int) -> ConnectError:
        name = self._names[node_id]
        if self._fault or self._closed:
            return ConnectError(name, f"{self._fault or f'{self._tool.name} was ended'}.")
        what = "has not called again" if node_id in self._seen else f"has not called within {START_S:.0f} s"
        says = self._words()
        return ConnectError(
            name,
            f"what {self._tool.name} should have started there {what}"
            + (f"; it says: {says}" if says else "."),
            "Its node must reach this machine by TCP, on any port.",
        )

    def _begin(self) -> None:
        """Start the tool, once."""
        if self._start_by:
            return
        self._start_by = time.monotonic() + START_S
        code = base64.b64encode(zlib.compress(PORTER.read_bytes())).decode()
        script = _SCRIPT.format(flags=" ".join(FLAGS))
        try:
            self._rendezvous = Rendezvous(self._came)
            given = self._rendezvous.invitation(self._names, self._tool.ranks, self._patience_s)
            word = base64.b64encode(json.dumps(given).encode()).decode()
            self._process = subprocess.Popen(
                [*self._argv(), "/bin/sh", "-c", script, _LOAD, self._python],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, GIVEN: word, CODE: code},
                start_new_session=True,  # Ctrl+C at the terminal reaches the launcher alone
            )
        except OSError as error:
            self._fault = f"{self._tool.argv[0]} cannot be started: {error.strerror}"
            return
        self._listening = threading.Thread(target=self._listen, name="engine", daemon=True)
        self._listening.start()

    def _argv(self) -> list[str]:
        if HOSTS not in self._tool.argv:
            return list(self._tool.argv)
        folder = self._files.enter_context(tempfile.TemporaryDirectory(prefix="paddle-hosts-"))
        file = Path(folder) / "hosts"
        file.write_text(self._tool.hosts, encoding="ascii")
        return [str(file) if word == HOSTS else word for word in self._tool.argv]

    def _came(self, rank: int, host: str, stream: TlsStream) -> None:
        """A porter has called."""
        with self._changed:
            if self._closed or not 0 <= rank < len(self._names):
                stream.end()
                return
            where = next((at for at, name in enumerate(self._names) if _same(name, host)), rank)
            if where != rank and not _same(self._names[rank], host):
                self._fault = (
                    f"{self._tool.name} started rank {rank} on {visible(host)}, not on {self._names[rank]}"
                )
            before = self._idle.pop(rank, None)  # a cut has ended it for the porter, and nobody told us
            self._idle[rank] = stream
            self._seen.add(rank)
            self._changed.notify_all()
        if before is not None:
            before.end()

    def _listen(self) -> None:
        """Keep the last words of the tool until it ends."""
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            while data := os.read(stdout.fileno(), READ_SIZE):
                self._said = (self._said + data.decode("utf-8", "replace"))[-KEPT:]
        code = self._process.wait()
        with self._changed:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
            says = self._words()
            self._fault = self._fault or f"{self._tool.name} {how}" + (f": {says}" if says else "")
            given = [*self._given]
            self._changed.notify_all()
        for stream in given:  # its processes on the nodes are not ours to keep
            stream.close()

    def _words(self) -> str:
        """The last lines that the tool said, on one line."""
        lines = [line.strip(" -\r") for line in self._said.splitlines()]
        return visible(" | ".join(line for line in lines if line)[-SHOWN:])

    def close(self) -> None:
        """Send the porters home and see the tool end; takes seconds at most. Afterwards nothing of it is left here."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, {}
            self._changed.notify_all()
        for stream in idle.values():
            with contextlib.suppress(OSError):
                _say(stream, {"argv": None})
            stream.end()
        if self._rendezvous is not None:
            self._rendezvous.close()
        with self._files:
            self._end_tool()

    def _end_tool(self) -> None:
        if self._process is None or self._listening is None:
            return
        for wait_s, number in ((ENDS_S, signal.SIGTERM), (TERM_S, signal.SIGKILL), (TERM_S, None)):
            self._listening.join(wait_s)
            if not self._listening.is_alive() or number is None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _say(stream: TlsStream, request: Mapping[str, Any]) -> None:
    if not stream.write(json.dumps(request).encode() + b"\n"):
        raise ConnectionError("it takes nothing")


def _same(name: str, host: str) -> bool:
    """Whether two names are those of one host, with or without a domain."""
    return name.lower().partition(".")[0] == host.lower().partition(".")[0]
