# SPDX-License-Identifier: Apache-2.0
"""Keys and configuration of the test hosts' sshd, and the client files that reach them.

Keys are made afresh for every test session and live in its temporary directory only.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SSHD_CONFIG = """\
Port 22
AddressFamily inet
HostKey /run/host/ssh_host_ed25519_key
PidFile /run/sshd.pid
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key pair on disk.

    Attributes:
        private: path of the private key; the public one lies beside it with the suffix .pub.
    """

    private: Path

    @property
    def public_line(self) -> str:
        """The public key as `type base64`."""
        return " ".join(self.private.with_name(self.private.name + ".pub").read_text().split()[:2])


def make_key(path: Path, comment: str) -> KeyPair:
    """Makes a key pair without a passphrase."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    return KeyPair(path)


def known_hosts_line(names: Sequence[str], key: KeyPair) -> str:
    """One line of a known_hosts file."""
    return f"{','.join(names)} {key.public_line}\n"


def client_config(hosts: Sequence[tuple[str, str]], user: str, identity: Path, known_hosts: Path) -> str:
    """An ssh_config that reaches each (name, address) with one identity and strict host keys."""
    common = (
        f"  User {user}\n  IdentityFile {identity}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known_hosts}\n"
        "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  ConnectTimeout 5\n"
    )
    return "".join(f"Host {name}\n  HostName {address}\n{common}" for name, address in hosts)
