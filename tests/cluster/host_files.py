# SPDX-License-Identifier: Apache-2.0
"""The files of one test host, as they lie on this machine."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

RUNTIME = "root/.paddle/runtime"  # the trees that jobs of ours run from


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
