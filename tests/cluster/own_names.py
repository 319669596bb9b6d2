# SPDX-License-Identifier: Apache-2.0
"""What hosts find when they look up names: /etc/hosts as Debian writes it when it is installed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from tests.cluster.hosts import Cluster


@contextlib.contextmanager
def names_of_debian(cluster: Cluster) -> Iterator[None]:
    """Each host knows itself alone for a while, at 127.0.1.1, and so does the launcher's side."""
    files = {host.name: host.files.etc / "hosts" for host in cluster.hosts}
    files[socket.gethostname()] = cluster.state / "hosts"
    before = {name: file.read_text() for name, file in files.items()}
    for name, file in files.items():  # written in place: the host has this very file mounted
        file.write_text(f"127.0.0.1\tlocalhost\n127.0.1.1\t{name}\n")
    try:
        yield
    finally:
        for name, file in files.items():
            file.write_text(before[name])
