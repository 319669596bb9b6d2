# SPDX-License-Identifier: Apache-2.0
"""The command `paddle-cluster`: the launcher as an installed package.

In a wheel this folder holds launcher/ and what it needs (`launcher.system.installation`); in a checkout they lie
beside it. The launcher is put on the path of its own process alone: no other package gets to see that name.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path


def find_launcher() -> None:
    """Put the folder that holds launcher/ on the path of this process."""
    here = Path(__file__).resolve().parent
    home = str(here if (here / "launcher").is_dir() else here.parent)
    if home not in sys.path:
        sys.path.insert(0, home)


def main() -> int:
    """Be the command; returns its exit code."""
    find_launcher()
    gc.set_threshold(50_000)  # as in paddle.py
    try:
        from launcher.cli.main import main as launch

        return launch()
    except KeyboardInterrupt:
        return 130
    finally:
        gc.freeze()
