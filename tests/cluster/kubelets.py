# SPDX-License-Identifier: Apache-2.0
"""What runs the containers of a test's Kubernetes: beside the test, or each on a test host in namespaces of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Any, Protocol

from tests.cluster.api_wire import Object
from tests.cluster.hosts import Cluster

# As with shareProcessNamespace: process 1 is another one, which reaps; signals reach the container's own.
_IN_A_POD = 'hostname "$0"; "$@"; exit $?'
# A user of its own has an empty home, and no right of root's.
_AS_A_USER = """\
hostname "$0"; mount -t tmpfs tmpfs /home; install -d -o {user} -g {user} /home/paddle
setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"; exit $?
"""


def command(pod: Object) -> list[str]:
    """What the container of a pod runs."""
    (container,) = pod["spec"]["containers"]
    return list(container["command"])


class Kubelet(Protocol):
    """Runs containers."""

    def start(self, index: int, name: str, pod: Object, env: Mapping[str, str]) -> Any:
        """Start the one of a pod whose host name is given; `env` has its variables; the result has `wait`."""

    def end(self, running: Any) -> None:
        """Kill it with all that it started, and wait."""


class LocalKubelet:
    """Containers are processes beside the test."""

    def start(self, index: int, name: str, pod: Object, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a process."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("_PADDLE")}
        return subprocess.Popen(
            command(pod),
            env={**clean, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end(self, running: subprocess.Popen[bytes]) -> None:
        """Kill it; callback agents end what they started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(10)


class HostKubelet:
    """The pod of each index runs on the test host of that index."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._hosts: dict[int, int] = {}

    def start(self, index: int, name: str, pod: Object, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a pod; its end is the end of all its processes."""
        user = pod["spec"]["securityContext"].get("runAsUser", 0)
        apart = ("unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--uts")
        script = _AS_A_USER.format(user=user) if user else _IN_A_POD
        child = self._cluster.hosts[index].popen([*apart, "sh", "-c", script, name, *command(pod)], env=env)
        self._hosts[child.pid] = index
        return child

    def end(self, running: subprocess.Popen[bytes]) -> None:
        """Kill a pod."""
        self._cluster.hosts[self._hosts[running.pid]].end(running)
