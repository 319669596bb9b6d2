# SPDX-License-Identifier: Apache-2.0
"""podman with a store of its own, apart from what the machine's owner has, and containers on test hosts' networks.

A container or pod is on the network of a test host, whose own sshd has ended: same address, same cable, same gate.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.processes import HostProcess

TOOLS = ("buildah", "podman", "runc", "catatonit", "debootstrap")
CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
# Where nothing resolves short names, an image without a host name is one of this machine.
REGISTRIES = 'short-name-mode = "permissive"\nunqualified-search-registries = []\n'


def cache() -> Path:
    """Where images are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "paddle-test-containers"


class Podman:
    """podman and buildah with a store below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scratch = scratch = folder / "run"
        scratch.mkdir(exist_ok=True)
        self.store = ("--root", str(folder / "store"), "--runroot", str(scratch / "run"))
        (scratch / "containers.conf").write_text(CONF)
        (scratch / "registries.conf").write_text(REGISTRIES)
        self.env = {
            **os.environ,
            "CONTAINERS_CONF": str(scratch / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(scratch / "registries.conf"),
        }

    @classmethod
    @contextlib.contextmanager
    def of_tests(cls) -> Iterator[Podman]:
        """The one of the tests, once no other run has it; what such a run left is removed."""
        folder = cache()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            podman = cls(folder)
            podman.clear()  # a run that was killed has left its containers
            try:
                yield podman
            finally:
                podman.clear()

    def command(self, words: Sequence[str], host: Host | None = None) -> list[str]:
        """A command of podman, on the network of a host."""
        inside = ["nsenter", f"--net=/proc/{host.inside.pid}/ns/net", "--"] if host is not None else []
        return [*inside, "podman", *self.store, *words]

    def run(
        self,
        *words: str,
        host: Host | None = None,
        input: str = "",
        check: bool = True,
        timeout_s: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of podman to its end."""
        # Files, for conmon keeps a pipe open as long as its container lives.
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                self.command(words, host),
                env=self.env,
                input=input,
                stdout=out,
                stderr=err,
                text=True,
                timeout=timeout_s,
                check=False,
            )
            out.seek(0)
            err.seek(0)
            done.stdout, done.stderr = out.read(), err.read()
        if check and done.returncode:
            raise RuntimeError(f"podman {' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def clear(self) -> None:
        """Remove containers, pods, secrets and volumes; images stay."""
        for words in (
            ("pod", "rm", "--all", "--force", "--time=0"),
            ("rm", "--all", "--force", "--time=0"),
            ("secret", "rm", "--all"),
            ("volume", "rm", "--all", "--force"),
        ):
            self.run(*words, check=False)

    def secret(self, name: str, **values: str) -> None:
        """What `kubectl create secret` does, in the form that podman hands to pods."""
        # JSON is YAML; podman 4.3 hands out what stands under `data` without decoding it.
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": values}
        self.run("secret", "create", name, "-", input=json.dumps(made))

    def play(self, host: Host, manifest: Mapping[str, Any]) -> Container:
        """`podman play kube` of a pod with one container, on the network of a host."""
        file = self.scratch / f"{manifest['metadata']['name']}.yaml"
        file.write_text(json.dumps(manifest))
        self.run("play", "kube", "--network=host", str(file), host=host)
        (container,) = manifest["spec"]["containers"]
        return Container(self, f"{manifest['metadata']['name']}-{container['name']}", host)


class Container:
    """A container that runs on the network of a test host."""

    def __init__(self, podman: Podman, name: str, host: Host) -> None:
        self.podman = podman
        self.name = name
        self.host = host
        self._idle: tuple[dict[int, tuple[str, ...]], set[int]] = ({}, set())

    @classmethod
    def start(cls, podman: Podman, host: Host, name: str, image: str, *options: str) -> Container:
        """`podman run`, on the network of a host."""
        network = f"ns:/proc/{host.inside.pid}/ns/net"
        podman.run("run", "--detach", f"--name={name}", f"--network={network}", *options, image)
        return cls(podman, name, host)

    def wait_for_sshd(self, port: int) -> Container:
        """Waits until one may log in."""
        wait_for(
            f"sshd in {self.name}; it said:\n{self.logs()}", lambda: port in self.host.listening(), 20, 0.1
        )
        self._idle = self._running()
        return self

    def wait_until_idle(self) -> None:
        """Waits until nothing runs and nothing listens but what did when one could first log in."""
        wait_for(f"an idle {self.name}", lambda: self._running() == self._idle, 15, 0.1)

    def _running(self) -> tuple[dict[int, tuple[str, ...]], set[int]]:
        return {process.pid: process.argv[:1] for process in self.processes()}, self.host.listening()

    def logs(self) -> str:
        """What its first process said."""
        done = self.podman.run("logs", self.name, check=False)
        return done.stdout + done.stderr

    def exec(self, *argv: str) -> str:
        """Run a command in it."""
        # What is played with the network "host" is on that of whoever calls podman.
        return self.podman.run("exec", self.name, *argv, host=self.host).stdout

    def processes(self) -> list[HostProcess]:
        """What runs in it."""
        init = self.host.inside.pid
        own = os.readlink(f"/proc/{init}/ns/pid")
        found = []
        for process in self.host.processes():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{process.pid}/ns/pid") != own:
                    found.append(process)
        return found

    def inspect(self, template: str) -> str:
        """A fact of it."""
        return self.podman.run("inspect", "--format", template, self.name).stdout.strip()


def replicas(podman: Podman, cluster: Cluster, deployment: Mapping[str, Any]) -> list[Container]:
    """What a Deployment's controller makes: as many pods of its template, one on each host's network."""
    name, template = deployment["metadata"]["name"], deployment["spec"]["template"]
    made = []
    for index in range(deployment["spec"]["replicas"]):
        host = cluster.hosts[index]
        host.stop_sshd()
        meta = {**template["metadata"], "name": f"{name}-{index}"}
        made.append(podman.play(host, {"apiVersion": "v1", "kind": "Pod", **template, "metadata": meta}))
    return made
