# SPDX-License-Identifier: Apache-2.0
"""Runs mpirun or srun as a child process; when it exits, all of its callback agents are considered ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from paddle_cluster.config.hosts import Host
from paddle_cluster.engines.callback_agents import CallbackAgentsEnded, Invite
from paddle_cluster.errors import UsageError
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import dataclass, regex

HOSTS = "@hosts"
START_S = 60.0
ENDS_S = 3.0  # for the tool to exit by itself after the callback agents
TERM_S = 3.0  # afterwards, following SIGTERM
KEPT = 2000  # characters of the tool's output
SHOWN = 400
_OF_SSH = regex(r"^ssh: |: Permission denied \(|^Host key verification failed")
READ_SIZE = 1 << 16
# The last line of a callback agent on its standard error.
UNREACHED = regex(r"paddle: rank ([0-9]{1,7}) could not reach the launcher at (.{1,1000})\r?\n")


@dataclass(frozen=True)
class Tool:
    """A description of the command with which a cluster's tool starts a program on each node.

    Attributes:
        name: the tool's name in messages.
        argv: the arguments before the program's own; the variables `INVITATION` and `AGENT_CODE` must reach the
            program.
        ranks: variables that contain a process's rank, which is its node's index.
        hosts: content of the file that replaces the word HOSTS in argv.
        routes: addresses of nodes in the cluster, if it does not use their names.
    """

    name: str
    argv: tuple[str, ...]
    ranks: tuple[str, ...]
    hosts: str = ""
    routes: tuple[str, ...] = ()


def check_hosts(engine: str, hosts: Sequence[Host]) -> None:
    """Check the form of the hosts. Raises UsageError if a tool of this engine cannot start processes on a host."""
    for host in hosts:
        if host.port not in (None, 22):
            raise UsageError(
                f"{host.text!r} has a port, which --engine={engine} cannot use; "
                "expected host names (set the port in ~/.ssh/config)"
            )


class ToolProcess:
    """A process of mpirun or srun, as a starter of callback agents.

    Args:
        hosts: names of the nodes in the order of their IDs, as the tool knows them.
    """

    start_s = START_S

    def __init__(self, tool: Tool, hosts: tuple[str, ...]) -> None:
        self.name = tool.name
        self.hosts = hosts
        self._tool = tool
        self._files = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._listening: threading.Thread | None = None
        self._output = ""
        self._unreached: set[int] = set()

    def start(self, invite: Invite, ended: CallbackAgentsEnded) -> None:
        """Start the tool, which starts the callback agents.

        Args:
            ended: called with the reason when the tool exits or cannot start.
        """
        callback_agent = invite(self._tool.routes or self.hosts, self._tool.ranks)
        try:
            self._process = subprocess.Popen(
                [*self._argv(), *callback_agent.argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={
                    **callback_agent.env,
                    **os.environ,
                    **callback_agent.env,
                },  # Hydra drops the last one
                start_new_session=True,  # Ctrl+C at the terminal only reaches the launcher
            )
        except OSError as error:
            ended(f"cannot start {self._tool.argv[0]}: {error.strerror}. It must be in PATH on this machine")
            return
        listening = threading.Thread(target=self._listen, args=(ended,), name="engine", daemon=True)
        try:
            listening.start()
        except RuntimeError:  # this machine refuses another thread
            with self._process:
                os.killpg(self._process.pid, signal.SIGKILL)
            raise
        self._listening = listening

    def _argv(self) -> list[str]:
        if HOSTS not in self._tool.argv:
            return list(self._tool.argv)
        folder = self._files.enter_context(tempfile.TemporaryDirectory(prefix="paddle-hosts-"))
        file = Path(folder) / "hosts"
        file.write_text(self._tool.hosts, encoding="ascii")
        return [str(file) if word == HOSTS else word for word in self._tool.argv]

    def _listen(self, ended: CallbackAgentsEnded) -> None:
        """Store the last output of the tool until it ends; report nodes that cannot reach this machine immediately."""
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            while data := os.read(stdout.fileno(), READ_SIZE):
                self._output += data.decode("utf-8", "replace")
                for rank, tried in UNREACHED.findall(self._output):
                    self._cannot_reach(int(rank), tried, ended)
                self._output = self._output[-KEPT:]
        code = self._process.wait()
        how = f"was terminated by signal {-code}" if code < 0 else f"exited with status {code}"
        status = self.status_line()
        ended(f"{self.name} {how}" + (f": {status}" if status else ""))

    def _cannot_reach(self, rank: int, tried: str, ended: CallbackAgentsEnded) -> None:
        if rank not in self._unreached and rank < len(self.hosts):
            self._unreached.add(rank)
            host = self.hosts[rank]
            ended(
                f"node {host} could not reach this machine at {visible(tried)}; set ENGINE_ADDRESS in conf.py to an "
                f"address of this machine that {host} can reach",
                rank,
            )

    def status_line(self) -> str:
        """Return the last lines of the tool's output, or those in which ssh says why a login failed, as one line."""
        lines = [line.strip(" -\r") for line in self._output.splitlines()]
        lines = [line for line in lines if _OF_SSH.search(line)] or lines
        return visible(" | ".join(line for line in lines if line)[-SHOWN:])

    def close(self) -> str:
        """End the tool if it does not exit by itself; afterwards, none of its processes remains on this machine."""
        with self._files:
            if self._process is None or self._listening is None:
                return ""
            for wait_s, number in ((ENDS_S, signal.SIGTERM), (TERM_S, signal.SIGKILL), (TERM_S, None)):
                self._listening.join(wait_s)
                if not self._listening.is_alive():
                    return ""
                if number is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(self._process.pid, number)
        return f"{self.name} (process {self._process.pid}) does not exit"
