# SPDX-License-Identifier: Apache-2.0
"""Where this program lies and what it is called: `paddle.py` in a checkout, `paddle-cluster` where it is installed.

An installed launcher/ lies in the package `paddle_cluster`, among docs/, workspace_template/ and runtime/agent/ as in
a checkout. The nodes' package `paddle` alone lies elsewhere then: beside `paddle_cluster`, where scripts import it.
"""

from __future__ import annotations

import sys
from pathlib import Path

_HOME = Path(__file__).resolve().parents[2]
_SCRIPT = _HOME / "paddle.py"
IS_CHECKOUT = _SCRIPT.is_file()

RUNTIME_DIR = _HOME / "runtime" if IS_CHECKOUT else _HOME.parent
"""Holds the package `paddle`, and perhaps others beside it, which never travel."""
AGENT_DIR = _HOME / "runtime" / "agent"
DOCS_DIR = _HOME / "docs"
LOCK_FILE = _HOME / "requirements.lock"
CONF_FILE = _HOME / "conf.py"
"""The cluster of a checkout; what a new conf.py begins as."""
TEMPLATE_DIR = _HOME / "workspace_template"


def _name() -> str:
    """By what was called: a checkout may be installed as well (`pip install --editable`)."""
    called = Path(sys.argv[0])
    as_installed = called.name == "paddle-cluster" or called.parent.name == "paddle_cluster"
    return "paddle-cluster" if as_installed or not IS_CHECKOUT else "paddle.py"


PROGRAM = _name()
COMMAND = "python paddle.py" if PROGRAM == "paddle.py" else PROGRAM
"""How users call it."""


def argv() -> list[str]:
    """How another process calls it, wherever it is."""
    return [sys.executable, str(_SCRIPT)] if IS_CHECKOUT else [sys.executable, "-P", "-m", "paddle_cluster"]
