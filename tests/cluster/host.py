# SPDX-License-Identifier: Apache-2.0
"""One test host: its own hostname, processes, network, /root, /tmp and sshd; kernel and programs are shared.

A host is switched on and off like a machine; `start` after `kill` boots it again with the same address and
host key, and with what its disk held.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.cluster import network, sshd
from tests.cluster.deadline import wait_for
from tests.cluster.namespaces import Namespaces
from tests.cluster.processes import HostProcess, listening_ports, processes_of

ROOT = Path(__file__).resolve().parents[2]
HOME = "/root"
SSHD_S = 60.0
PRIVATE_DIRS = ("/root", "/tmp")  # what a host does not share with this machine
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KINDS = ("--net", "--mount", "--pid", "--uts", "--ipc")
INIT = Path(__file__).with_name("host_init.sh")
RUNTIME = "root/.paddle/runtime"  # the trees that jobs of ours run from


class Host:
    """A machine of the test cluster; see `Cluster` for how to get one."""

    def __init__(self, index: int, cluster: int, state: Path, gate: Namespaces, key: sshd.KeyPair) -> None:
        self.name = network.host_name(index)
        self.index = index
        self.address = network.host_address(cluster, index)
        self.port = 22
        self.user = "root"
        self.files = HostFiles(state)
        self.key = key
        self._gate = gate
        self._boots = 0
        self._inside: Namespaces | None = None
        self._cable = network.Port("", network.host_mac(index), self.address)

    def __repr__(self) -> str:
        return f"Host({self.name} {self.address} {'on' if self.alive else 'off'})"

    # -- power

    def boot(self, pinned: Sequence[network.Port] = ()) -> None:
        """Begins to start the host, which `cable`, `bring_up` and `wait_for_sshd` complete.

        Several hosts boot beside each other so.

        Args:
            pinned: other hosts whose hardware addresses it never has to ask for.
        """
        assert not self.alive, f"{self.name} is on"
        (self.files.fs / "root").mkdir(parents=True, exist_ok=True)
        (self.files.fs / "tmp").mkdir(exist_ok=True)
        (self.files.fs / "tmp").chmod(0o1777)
        (self.files.etc / "sshd.log").write_text("")
        (self.files.etc / "network").write_text(network.host_commands(self._cable, pinned))
        argv = ["sh", str(INIT), str(self.files.state), self.name, *_kept_dirs()]
        self._inside = Namespaces(KINDS, argv)
        self._boots += 1
        self._cable = replace(self._cable, device=f"p{self.index}b{self._boots}")

    def cable(self) -> tuple[Namespaces, network.Port]:
        """Waits until the host is there to be plugged in, and returns what goes where."""
        self.inside.wait_ready()
        return self.inside, self._cable

    def bring_up(self) -> None:
        """Tells the host that its cable is in: network first, then sshd."""
        self.inside.say("plugged in")

    def wait_for_sshd(self) -> None:
        """Waits until the host can be logged in to."""
        wait_for(f"sshd of {self.name}", lambda: 22 in self.listening(), SSHD_S)

    def start(self) -> None:
        """Switches the host on and waits until its sshd listens."""
        self.boot()
        network.plug_in(self._gate, [self.cable()])
        self.bring_up()
        self.wait_for_sshd()

    def kill(self) -> None:
        """Cuts the power: every process ends at once, nothing is said to anybody."""
        if self._inside is not None:
            # First the cable: the kernel takes its time to remove a network, and until then it would answer
            # for a host that is gone.
            network.unplug(self._gate, [self.plug])
            self.strike()
            self.wait_off()

    def strike(self) -> None:
        """Ends the host's processes; the cable stays, and `wait_off` has to follow."""
        if self._inside is not None:
            self._inside.strike()

    def wait_off(self) -> None:
        """Waits until none of the host's processes is left."""
        if self._inside is not None:
            self._inside.close()
            self._inside = None

    @property
    def plug(self) -> network.Port:
        """Where it is plugged in, or was the last time."""
        return self._cable

    def wipe(self, keep_runtime: bool = False) -> None:
        """Gives the host, while it is off, an empty /root and /tmp; the runtime that jobs left there may stay."""
        assert not self.alive, f"{self.name} is on"
        self.files.wipe(keep_runtime)

    @property
    def alive(self) -> bool:
        """Whether the host is on."""
        return self._inside is not None and self._inside.alive

    @property
    def inside(self) -> Namespaces:
        """The host's namespaces."""
        assert self._inside is not None, f"{self.name} is off"
        return self._inside

    # -- looking and acting inside

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on the host, without SSH."""
        return self.inside.run(argv, env={**_BASE_ENV, **(env or {})}, check=check, timeout_s=timeout_s)

    def popen(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts a process on the host, without SSH; it ends with the host or by `end`."""
        return subprocess.Popen(
            self.inside.command(argv),
            env={**_BASE_ENV, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """Kills what `popen` started and waits for it.

        `child` itself is nsenter; were it killed first, whatever is process 1 of this machine would have to
        reap the orphan, which may take seconds in which the host cannot be switched off.
        """
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        with contextlib.suppress(OSError):
            for pid in children.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        child.wait(timeout=10)

    def path(self, inside: str | Path) -> Path:
        """Returns where a path of the host can be read on this machine while the host is on."""
        return Path(f"/proc/{self.inside.pid}/root{inside}")

    def processes(self) -> list[HostProcess]:
        """Returns the live processes of the host; none when it is off."""
        return processes_of(self._inside.pid) if self._inside is not None and self._inside.alive else []

    def job_processes(self, job_id: str) -> list[HostProcess]:
        """Returns the live processes that carry this PADDLE_JOB_ID."""
        return [process for process in self.processes() if process.job_id == job_id]

    def listening(self) -> set[int]:
        """Returns the TCP ports that something on the host listens on."""
        return listening_ports(self.inside.pid)

    # -- faults: network

    def cut(self) -> None:
        """Pulls the cable; others soon get "no route to host"."""
        network.set_link(self._gate, self._cable, "down")

    def blackhole(self, viewers: Sequence[Host] = ()) -> None:
        """Pulls the cable while the gate and `viewers` go on sending: packets vanish, nobody is told."""
        network.pin_neighbour(self._gate, network.GATE_NIC, self.address, self._cable.mac)
        for viewer in viewers:
            network.pin_neighbour(viewer.inside, network.NIC, self.address, self._cable.mac)
        self.cut()

    def heal(self, viewers: Sequence[Host] = ()) -> None:
        """Plugs the cable in again and undoes `blackhole` and `slow`."""
        network.set_link(self._gate, self._cable, "up")
        network.forget_neighbour(self._gate, network.GATE_NIC, self.address)
        for viewer in viewers:
            network.forget_neighbour(viewer.inside, network.NIC, self.address)
        network.set_rate(self._gate, self.inside, self._cable, None)

    def part(self, address: str) -> None:
        """Drops silently what this host sends to `address`."""
        network.pin_neighbour(self.inside, network.NIC, address, network.NOWHERE)

    def rejoin(self, address: str) -> None:
        """Undoes `part`."""
        network.forget_neighbour(self.inside, network.NIC, address)

    def slow(self, mbit: float | None) -> None:
        """Limits the host's cable to so many Mbit/s in each direction; None lifts the limit."""
        network.set_rate(self._gate, self.inside, self._cable, mbit)

    # -- faults: disk

    def small_disk(self, path: str, size: str) -> None:
        """Mounts an empty disk of `size` (as "1m") at `path`."""
        self.run(["mkdir", "-p", path])
        self.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", path])

    def fill_disk(self, path: str) -> None:
        """Writes a file into the disk mounted at `path` until nothing more fits."""
        done = self.run(["dd", "if=/dev/zero", f"of={path}/filler", "bs=4096"], check=False)
        assert "No space left" in done.stderr, done.stderr

    def make_read_only(self, path: str) -> None:
        """Makes the tree at `path` read-only."""
        self.run(["mount", "--bind", path, path])
        self.run(["mount", "-o", "remount,bind,ro", path])

    # -- faults: sshd

    def stop_sshd(self) -> None:
        """Ends the listening sshd; open connections go on, new ones are refused."""
        self._signal_sshd(signal.SIGTERM)
        wait_for(f"the end of {self.name}'s sshd", lambda: 22 not in self.listening(), 10)

    def freeze_sshd(self) -> None:
        """Makes sshd accept connections and never answer on them."""
        self._signal_sshd(signal.SIGSTOP)

    def thaw_sshd(self) -> None:
        """Undoes `freeze_sshd`."""
        self._signal_sshd(signal.SIGCONT)

    def drop_connections(self) -> int:
        """Kills the sshd processes that serve open connections; returns how many."""
        listener = self._sshd_pid()
        sessions = [
            p.pid for p in self.processes() if p.ppid == listener and p.argv[:1] and "sshd" in p.argv[0]
        ]
        for pid in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(sessions)

    def _sshd_pid(self) -> int:
        (listener,) = [p.pid for p in self.processes() if p.argv and "[listener]" in p.argv[0]]
        return listener

    def _signal_sshd(self, number: int) -> None:
        os.kill(self._sshd_pid(), number)


_BASE_ENV = {"PATH": PATH, "HOME": HOME, "LANG": "C.UTF-8", "USER": "root"}


def interpreter() -> str:
    """This process's Python as hosts find it, by whatever path it was called here: `..` and links may lead through
    directories that hosts do not have. The last link is kept, since it is what makes it that of its environment."""
    called = Path(sys.executable)
    return str(called.parent.resolve() / called.name)


def _kept_dirs() -> list[str]:
    """This project and the interpreter, where they lie below a private directory: hosts must see them all the same."""
    prefixes = {str(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix, ROOT)}
    return sorted(
        prefix for prefix in prefixes if prefix.startswith(tuple(f"{top}/" for top in PRIVATE_DIRS))
    )


@dataclass(frozen=True)
class HostFiles:
    """Where the files of a host lie on this machine.

    Attributes:
        etc: its passwd, hosts, sshd_config and host key.
        fs: what it sees as /root and /tmp.
    """

    state: Path

    @property
    def etc(self) -> Path:
        return self.state / "etc"

    @property
    def fs(self) -> Path:
        return self.state / "fs"

    def wipe(self, keep_runtime: bool) -> None:
        """Empties /root and /tmp; the runtime that jobs left there may stay."""
        runtime, aside = self.fs / RUNTIME, self.state / "runtime"
        if keep_runtime and runtime.exists():
            runtime.rename(aside)
        shutil.rmtree(self.fs, ignore_errors=True)
        if aside.exists():
            runtime.parent.mkdir(parents=True)
            aside.rename(runtime)
