# SPDX-License-Identifier: Apache-2.0
"""A program that puts every file of a directory on every host with Fabric, as its documentation shows.

fabric_put.py SSH_CONFIG SOURCE TARGET HOST...
"""

from __future__ import annotations

import sys
from pathlib import Path

import fabric
import paramiko


def main(ssh_config: str, source: str, target: str, *hosts: str) -> None:
    """Put the files on all hosts in parallel."""
    config = fabric.Config(ssh_config=paramiko.SSHConfig.from_path(ssh_config), lazy=True)
    known_hosts = config.base_ssh_config.lookup(hosts[0])["userknownhostsfile"]
    group = fabric.ThreadingGroup(*hosts, config=config)
    for connection in group:
        connection.client.load_host_keys(known_hosts)
    group.run(f"mkdir -p {target}", hide=True)
    for path in sorted(Path(source).rglob("*")):
        if path.is_file():
            group.put(str(path), f"{target}/{path.name}")
    group.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
