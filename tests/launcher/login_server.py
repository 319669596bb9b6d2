# SPDX-License-Identifier: Apache-2.0
"""A real sshd on 127.0.0.1 with keys of its own, for tests of logging in."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_range

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
PRIVILEGE_DIR = Path("/run/sshd")

CONFIG = """\
ListenAddress {address}:{port}
HostKey {folder}/host_key
PidFile {folder}/pid
AuthorizedKeysFile {folder}/authorized_keys
{extra}
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
StrictModes no
PrintMotd no
"""


def missing() -> str:
    """Why no sshd can run here, or nothing."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        return "needs sshd and ssh-keygen (openssh-server)"
    return ""


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    """Make a key pair and return the private key's path."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=30,
    )
    return path


def public_key(private: Path) -> str:
    """Type and base64 of a key."""
    return " ".join(private.with_name(private.name + ".pub").read_text().split()[:2])


def free_port(address: str = "127.0.0.1") -> int:
    if ":" not in address:
        return free_range(1)
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@dataclass
class LoginServer:
    """One sshd. `client_key` may log in as the user who runs the tests.

    Attributes:
        account: a line of passwd that sshd is to see in the place of that user's, or empty; needs root.
    """

    folder: Path
    extra: str = ""
    address: str = "127.0.0.1"
    account: str = ""
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def user(self) -> str:
        return self.account.partition(":")[0] or getpass.getuser()

    @property
    def client_key(self) -> Path:
        return self.folder / "client_key"

    @property
    def name(self) -> str:
        """As known_hosts spells it."""
        return f"[{self.address}]:{self.port}"

    @property
    def known_line(self) -> str:
        return f"{self.name} {public_key(self.folder / 'host_key')}\n"

    def start(self) -> LoginServer:
        self.folder.mkdir(parents=True)
        if os.geteuid() == 0:
            PRIVILEGE_DIR.mkdir(mode=0o755, exist_ok=True)
        make_key(self.folder / "host_key")
        make_key(self.client_key)
        (self.folder / "authorized_keys").write_text(public_key(self.client_key) + "\n")
        self.port = free_port(self.address)
        config = self.folder / "sshd_config"
        address = f"[{self.address}]" if ":" in self.address else self.address
        config.write_text(
            CONFIG.format(folder=self.folder, address=address, port=self.port, extra=self.extra)
        )
        assert SSHD is not None
        argv = [SSHD, "-D", "-e", "-f", str(config)]
        if self.account:
            others = [line for line in Path("/etc/passwd").read_text().splitlines() if not self._is_own(line)]
            (self.folder / "passwd").write_text("\n".join([self.account, *others]) + "\n")
            script = 'mount --bind "$1" /etc/passwd && shift && exec "$@"'
            argv = ["unshare", "--mount", "sh", "-c", script, "sh", str(self.folder / "passwd"), *argv]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        while b"Server listening" not in (line := self.process.stderr.readline()):
            assert line, "sshd ended"
        os.set_blocking(self.process.stderr.fileno(), False)
        return self

    def _is_own(self, line: str) -> bool:
        return line.partition(":")[0] == self.user

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stderr is not None
            self.process.stderr.close()
