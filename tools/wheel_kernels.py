# SPDX-License-Identifier: Apache-2.0
"""The build hook of the wheel: compiles the kernels for this machine first, so that `pip install .` includes them.

Without a C compiler, the wheel has no kernels and the plain numpy forms are used; nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs `python -m paddle.kernels.build` before files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile missing kernels. A failure is printed, and the wheel is built without kernels."""
        subprocess.run(
            [sys.executable, "-P", "-m", "paddle.kernels.build", "--offline"],
            env={**os.environ, "PYTHONPATH": str(Path(self.root, "runtime"))},
            check=False,
        )
