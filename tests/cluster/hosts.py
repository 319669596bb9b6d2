# SPDX-License-Identifier: Apache-2.0
"""Real hosts on one machine: `Cluster(3)` starts three, each with an sshd, beside the launcher's side.

    with Cluster(3) as cluster:
        launch = cluster.launch(["--job_dispatch_package=./ws"])
        assert launch.wait(60) == 0

Needs root and the tools of `missing_tools`. All processes, mounts and devices end with the test process.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.cluster import limits, network, sshd
from tests.cluster.host import HOME, PATH, Host, interpreter
from tests.cluster.launch import Launch
from tests.cluster.namespaces import Namespaces
from tests.cluster.processes import HostProcess
from tests.local_nodes import warm_state

ROOT = Path(__file__).resolve().parents[2]
GATE_INIT = Path(__file__).with_name("gate_init.sh")
TOOLS = ("unshare", "nsenter", "ip", "tc", "mount", "ssh", "ssh-keygen", "/usr/sbin/sshd")
BOOT_AT_ONCE = 32
# Beyond so many, all hosts asking each other for their hardware addresses would overflow the neighbour table, which
# Linux has one of for all namespaces: they know each other from the start then, and only the gate asks.
ASK_UP_TO = 26
_numbers = itertools.cycle(network.CLUSTERS)
PREFIX = "paddle-hosts-"
LISTEN = """\
import socket, sys
listener = socket.create_server((sys.argv[2], 0), backlog=100)
socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"."], [listener.fileno()])
"""


def missing_tools() -> str:
    """Says why no cluster can be made here, or returns an empty string."""
    if os.geteuid() != 0:
        return "needs root (network namespaces and an sshd for each host)"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return (
        f"needs {', '.join(missing)} (Debian: iproute2 openssh-server openssh-client util-linux)"
        if missing
        else ""
    )


class Cluster:
    """`count` hosts named node-a, node-b, ... on a network of their own, and the gate where launchers run.

    Raises:
        RuntimeError: the kernel's limits do not allow so many, or a host did not come up.

    Attributes:
        hosts: the machines, in order.
        state: temporary directory of the cluster; removed by `close`.
        ssh_config: an ssh_config that reaches each host by name.
        known_hosts: the hosts' keys.
        identity: private key that each host lets in.
        gate_address: address of the launcher's side.
    """

    def __init__(self, count: int) -> None:
        sweep()
        if lacking := limits.shortfall(count):
            raise RuntimeError(lacking)
        number = next(_numbers)
        self.state = make_state_dir(os.getpid())
        self.ssh_config = self.state / "ssh_config"
        self.known_hosts = self.state / "known_hosts"
        self.identity = self.state / "id_ed25519"
        self.gate_address = network.gate_address(number)
        self._launches: list[Launch] = []
        self._etc_hosts = self._write_etc_hosts(number, count)
        self._gate = Namespaces(("--net", "--mount"), ["sh", str(GATE_INIT), str(self._etc_hosts)])
        self.hosts: list[Host] = []
        try:
            self._identity_key = sshd.make_key(self.identity, "launcher")
            for index in range(count):
                name = network.host_name(index)
                key = sshd.make_key(self.state / name / "etc/ssh_host_ed25519_key", name)
                self.hosts.append(Host(index, number, self.state / name, self._gate, key))
                self._furnish(self.hosts[-1])
            self._write_client_files()
            self._gate.wait_ready()
            network.make_bridge(self._gate, self.gate_address)
            self._boot_all()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, name: str) -> Host:
        """Returns the host called `name`."""
        (found,) = [host for host in self.hosts if host.name == name]
        return found

    def reset(self, keep_runtime: bool = False) -> None:
        """Ends all launches and power-cycles every host with an empty /root and /tmp.

        Args:
            keep_runtime: whether hosts keep the runtime of earlier jobs, as hosts do that ran one before: a job that
                finds it starts with half of the work.
        """
        self.end_launches()
        network.set_gate_rate(self._gate, None)  # hosts lose their limits with their cables
        network.unplug(self._gate, [host.plug for host in self.hosts if host.alive])
        self._end_hosts()
        for host in self.hosts:
            host.wipe(keep_runtime)
        self._write_client_files()
        self._boot_all()

    def close(self) -> None:
        """Ends everything and removes the cluster's directory."""
        self.end_launches()
        self._end_hosts()
        self._gate.close()
        shutil.rmtree(self.state, ignore_errors=True)

    # -- the launcher's side

    def run(
        self, argv: Sequence[str], *, check: bool = True, timeout_s: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on the launcher's side."""
        return self._gate.run(argv, env=self.launcher_env(), check=check, timeout_s=timeout_s)

    def popen(self, argv: Sequence[str], stdout: int | None = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Starts a command on the launcher's side."""
        return subprocess.Popen(
            self._gate.command(argv),
            env=self.launcher_env(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def listen(self) -> socket.socket:
        """A socket of the test that listens on the launcher's side, at the gate's address."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ours, theirs:
            argv = [sys.executable, "-c", LISTEN, str(theirs.fileno()), self.gate_address]
            subprocess.run(self._gate.command(argv), pass_fds=[theirs.fileno()], check=True, timeout=30)
            _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=listener)

    def ssh(self, host: Host, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a shell command on a host through OpenSSH's client."""
        return self.run(
            ["ssh", "-F", str(self.ssh_config), "-o", "BatchMode=yes", host.name, *argv], check=check
        )

    def launch(
        self,
        args: Sequence[str],
        *,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        paddle_py: Path = ROOT / "paddle.py",
        forked: bool = False,
    ) -> Launch:
        """Starts `python paddle.py ...` on the launcher's side; its output goes to a file.

        Args:
            args: what follows paddle.py.
            cwd: working directory.
            env: added to `launcher_env`; the launcher inherits nothing else.
            paddle_py: the script.
            forked: from a process that has imported the launcher, unless Python itself would read `env`.
        """
        if forked and not any(name.startswith(("PYTHON", "LANG", "LC_")) for name in env or ()):
            inside = [f"/proc/{self._gate.pid}/ns/{kind}" for kind in ("net", "mnt")]
            return self._begin(args, cwd, env, inside)
        return self.start([interpreter(), str(paddle_py), *args], cwd=cwd, env=env)

    def start(self, argv: Sequence[str], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> Launch:
        """Starts any command on the launcher's side as `launch` starts paddle.py."""
        # Who enters another mount namespace stands in its /.
        return self._begin(self._gate.command(["env", f"--chdir={cwd}", *argv]), cwd, env)

    def _begin(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None, inside: Sequence[str] = ()
    ) -> Launch:
        log = self.state / f"launch-{len(self._launches)}.out"
        launch = Launch(argv, cwd=cwd, env=self.launcher_env() | dict(env or {}), log=log, inside=inside)
        self._launches.append(launch)
        return launch

    def launcher_env(self) -> dict[str, str]:
        """The environment of a launcher: an empty home, no agent, no key of the person who runs the tests."""
        home = self.state / "launcher_home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": PATH,
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "USER": "root",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def has_launched(self) -> None:
        """Gives launchers what an earlier one packed, on a new cluster."""
        warm_state(Path(self.launcher_env()["HOME"], ".paddle", "jobs"))

    def write_conf(self, path: Path, **overrides: object) -> Path:
        """Writes a conf.py for these hosts.

        Args:
            path: the file to write.
            overrides: assignments to add or change; None removes one.
        """
        values: dict[str, object] = {
            "HOSTS": [f"{host.user}@{host.name}" for host in self.hosts],
            "ROOT_DIR": HOME,
            "PADDLE_NIC": network.NIC,
            "PADDLE_PORT": 7164,
            "PADDLE_PORTS_NUM": 1,
            "PADDLE_PORTS_NUM_FOR_SPARSE": 1,
            "PYTHON": interpreter(),
            "SSH_CONFIG": str(self.ssh_config),
            "SSH_KNOWN_HOSTS": str(self.known_hosts),
            "SSH_IDENTITY_FILES": [str(self.identity)],
        }
        values.update(overrides)
        text = "".join(f"{name} = {value!r}\n" for name, value in values.items() if value is not None)
        path.write_text(text, encoding="utf-8")
        return path

    def gate_bytes(self) -> tuple[int, int]:
        """Bytes that left and reached the launcher's side since the cluster was made."""
        return network.gate_bytes(self._gate)

    # -- all hosts at once

    def slow(self, mbit: float | None) -> None:
        """Limits every cable, the gate's too, to so many Mbit/s in each direction; None lifts the limits."""
        network.set_gate_rate(self._gate, mbit)
        for host in self.hosts:
            host.slow(mbit)

    def job_processes(self, job_id: str) -> dict[str, list[HostProcess]]:
        """Returns the processes of a job by host, hosts without any left out."""
        found = {host.name: host.job_processes(job_id) for host in self.hosts}
        return {name: processes for name, processes in found.items() if processes}

    # -- making

    def _boot_all(self) -> None:
        pinned = [host.plug for host in self.hosts] if len(self.hosts) > ASK_UP_TO else []
        for first in range(0, len(self.hosts), BOOT_AT_ONCE):
            group = self.hosts[first : first + BOOT_AT_ONCE]
            for host in group:
                self._authorize(host)
                host.boot(pinned)
            network.plug_in(self._gate, [host.cable() for host in group])
            for host in group:
                host.bring_up()
            for host in group:
                host.wait_for_sshd()

    def _end_hosts(self) -> None:
        for host in self.hosts:
            host.strike()
        for host in self.hosts:
            host.wait_off()

    def _authorize(self, host: Host) -> None:
        authorized = host.files.fs / "root/.ssh/authorized_keys"
        authorized.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        authorized.write_text(self._identity_key.public_line + "\n")
        authorized.chmod(0o600)

    def _write_etc_hosts(self, number: int, count: int) -> Path:
        path = self.state / "hosts"
        lines = "".join(
            f"{network.host_address(number, index)} {network.host_name(index)}\n" for index in range(count)
        )
        path.write_text(f"127.0.0.1 localhost\n{self.gate_address} gate\n{lines}")
        return path

    def _furnish(self, host: Host) -> None:
        """Writes what a host finds in its /etc: root's login must work whatever this machine's root has."""
        etc = host.files.etc
        users = [
            line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")
        ]
        (etc / "passwd").write_text("\n".join([f"root:x:0:0:root:{HOME}:/bin/bash", *users]) + "\n")
        (etc / "shadow").write_text("root:*:19000:0:99999:7:::\n")
        (etc / "shadow").chmod(0o600)
        (etc / "sshd_config").write_text(sshd.SSHD_CONFIG)
        (etc / "python").symlink_to("/bin/sh")  # what another user's job is called, and what it waits for
        os.mkfifo(etc / "never")
        shutil.copy(self._etc_hosts, etc / "hosts")

    def _write_client_files(self) -> None:
        lines = [sshd.known_hosts_line((host.name, host.address), host.key) for host in self.hosts]
        self.known_hosts.write_text("".join(lines))
        names = [(host.name, host.address) for host in self.hosts]
        self.ssh_config.write_text(sshd.client_config(names, "root", self.identity, self.known_hosts))

    def end_launches(self) -> None:
        """Kills the launchers that still run."""
        for launch in self._launches:
            launch.end()
        self._launches.clear()


def make_state_dir(pid: int) -> Path:
    """Makes a fresh directory for a cluster owned by process `pid`."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-"))


def sweep(base: Path | None = None) -> list[Path]:
    """Removes directories of owners that no longer run.

    Args:
        base: where to look; the system's temporary directory by default.

    Returns:
        What was removed.
    """
    removed = []
    for left in sorted((base or Path(tempfile.gettempdir())).glob(f"{PREFIX}*-*")):
        owner = left.name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
            removed.append(left)
    return removed
