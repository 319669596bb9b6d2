# SPDX-License-Identifier: Apache-2.0
"""Other tools on a test cluster, each called as an experienced user would."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.host import interpreter
from tests.cluster.hosts import Cluster

# One curve, one key type, one hardware cipher, no prompts: tuned as far as possible without losing security.
TUNED = (
    "-T",
    *("-c", "aes128-gcm@openssh.com"),
    *("-o", "KexAlgorithms=curve25519-sha256"),
    *("-o", "HostKeyAlgorithms=ssh-ed25519"),
    *("-o", "PubkeyAcceptedAlgorithms=ssh-ed25519"),
    *("-o", "PreferredAuthentications=publickey"),
    *("-o", "GSSAPIAuthentication=no"),
    *("-o", "ControlMaster=no"),
    *("-o", "ControlPath=none"),
    *("-o", "Compression=no"),
    *("-o", "UpdateHostKeys=no"),
    *("-o", "BatchMode=yes"),
    *("-o", "LogLevel=ERROR"),
)
TOOLS = {
    "openssh": ("ssh", "-V"),
    "rsync": ("rsync", "--version"),
    "pdsh": ("pdsh", "-V"),
    "parallel-ssh": ("parallel-ssh", "--version"),
    "mpirun": ("mpirun", "--version"),
}
# The options contain no whitespace, so that $ssh can be split into words; commands that can be exec'ed need no shell.
_TO_EACH_HOST = 'ssh=$1 command=$2; shift 2; printf "%s\\n" "$@" | xargs -P $# -I{} $ssh {} "$command"'
_TAR = (
    'ssh=$1 from=$2 to=$3 tar=$4; shift 4; tar cf "$tar" -C "$from" . && printf "%s\\n" "$@" | '
    "xargs -P $# -I{} sh -c \"exec $ssh {} 'mkdir -p $to && tar x -C $to' < $tar\""
)
_RSYNC = (
    'ssh=$1 from=$2 to=$3; shift 3; printf "%s\\n" "$@" | '
    'xargs -P $# -I{} rsync -a -e "$ssh" "$from/" "{}:$to/"'
)
_BARE = """\
import json, subprocess, sys
argv, *names = json.loads(sys.argv[1]), *sys.argv[2:]
started = [subprocess.Popen([name if word == "HOST" else word for word in argv]) for name in names]
sys.exit(max(each.wait() for each in started))
"""


class Rivals:
    """Command lines of other tools for the hosts of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names = [host.name for host in cluster.hosts]
        self._options = ["-F", str(cluster.ssh_config), *TUNED]
        self._ssh_argv = ["ssh", *self._options]
        self._ssh = shlex.join(self._ssh_argv)

    def xargs_ssh(self, command: str) -> list[str]:
        """Return the command for OpenSSH's client, one process per host, all in parallel."""
        return ["sh", "-c", _TO_EACH_HOST, "sh", self._ssh, command, *self._names]

    def bare_python(self) -> list[str]:
        """Return the command for the least that a launcher and agents in Python do: they have no features."""
        python = interpreter()
        argv = [*self._ssh_argv, "HOST", f"{python} -I -S -c pass"]
        return [python, "-I", "-S", "-c", _BARE, json.dumps(argv), *self._names]

    def pdsh(self, command: str) -> list[str]:
        """Return the command for LLNL's parallel shell over OpenSSH."""
        return [
            *self._pdsh_env(),
            "pdsh",
            "-R",
            "ssh",
            "-f",
            str(len(self._names)),
            *self._pdsh_to(),
            command,
        ]

    def parallel_ssh(self, command: str) -> list[str]:
        """Return the command for the parallel-ssh of Debian's pssh, over OpenSSH."""
        names = " ".join(self._names)
        extra = shlex.join(self._options)
        return ["parallel-ssh", "-t", "0", "-p", str(len(self._names)), "-H", names, "-x", extra, command]

    def mpirun(self, argv: Sequence[str]) -> list[str]:
        """Return the command for Open MPI's launcher, with its daemons started over OpenSSH."""
        hosts = ["-H", ",".join(self._names), "-n", str(len(self._names))]
        return ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", self._ssh, *hosts, *argv]

    def tar(self, source: Path, target: str, scratch: Path) -> list[str]:
        """Return the command for one tar file, created once, through OpenSSH to a `tar x` on each host."""
        where = [self._ssh, str(source), target, str(scratch / "rival.tar")]
        return ["sh", "-c", _TAR, "sh", *where, *self._names]

    def rsync(self, source: Path, target: str) -> list[str]:
        """Return the command for `rsync -a` over OpenSSH, one per host, all in parallel."""
        return ["sh", "-c", _RSYNC, "sh", self._ssh, str(source), target, *self._names]

    def pdcp(self, source: Path, target: str) -> list[str]:
        """Return the command for pdsh's copy; its counterpart must be installed on the hosts."""
        copy = ["pdcp", "-R", "ssh", "-f", str(len(self._names)), *self._pdsh_to(), "-r"]
        return [*self._pdsh_env(), *copy, *sorted(str(path) for path in source.iterdir()), target]

    def fabric_put(self, source: Path, target: str) -> list[str]:
        """Return the command for Fabric's `put`, file by file, one thread per host."""
        script = str(Path(__file__).with_name("fabric_put.py"))
        return [sys.executable, script, str(self._cluster.ssh_config), str(source), target, *self._names]

    def script(self, script: str, *args: str) -> list[str]:
        """Return the command for a shell script that gets the ssh command, these arguments, and the hosts' names."""
        return ["sh", "-c", script, "sh", self._ssh, *args, *self._names]

    def one_copy(self, source: Path, target: str) -> list[str]:
        """Return the command for one file through OpenSSH to the first host."""
        script = f'exec {self._ssh} "$1" "cat > $3" < "$2"'
        return ["sh", "-c", script, "sh", self._names[0], str(source), target]

    def _pdsh_env(self) -> list[str]:
        return ["env", f"PDSH_SSH_ARGS_APPEND={shlex.join(self._options)}"]

    def _pdsh_to(self) -> list[str]:
        return ["-w", ",".join(self._names)]


def lacking(tool: str) -> str:
    """Return why a tool cannot take part, or ""."""
    return "" if shutil.which(tool) else f"{tool} is not installed"
