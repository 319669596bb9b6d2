# SPDX-License-Identifier: Apache-2.0
"""The location and name of this program: `paddle.py` in a checkout, or `paddle-cluster` if installed.

An installed `paddle_cluster` contains docs/, workspace_template/, conf.py and the lock file, which are next to it in a
checkout. The nodes' packages, `paddle` and `paddle_node`, are next to it too; in a checkout, in runtime/.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_SCRIPT = _PACKAGE.parent / "paddle.py"
IS_CHECKOUT = _SCRIPT.is_file()
_HOME = _PACKAGE.parent if IS_CHECKOUT else _PACKAGE

RUNTIME_DIR = _HOME / "runtime" if IS_CHECKOUT else _HOME.parent
"""Holds the packages `paddle` and `paddle_node`, and perhaps others beside them, which never travel."""
NODE_DIR = RUNTIME_DIR / "paddle_node"
DOCS_DIR = _HOME / "docs"
LOCK_FILE = _HOME / "requirements.lock"
CONF_FILE = _HOME / "conf.py"
"""The conf.py of a checkout, from which `init` creates a new one."""
TEMPLATE_DIR = _HOME / "workspace_template"
EXAMPLES_DIR = _HOME / "examples"
"""In an installation it contains only the workspaces that `init` writes."""


def _name() -> str:
    """Return the name by which the launcher was called; a checkout can also be installed (`pip install --editable`)."""
    called = Path(sys.argv[0])
    as_installed = called.name == "paddle-cluster" or called.parent.name == "paddle_cluster"
    return "paddle-cluster" if as_installed or not IS_CHECKOUT else "paddle.py"


PROGRAM = _name()
COMMAND = "python paddle.py" if PROGRAM == "paddle.py" else PROGRAM
"""The command that users type."""


def packages_remedy(module: str) -> str:
    """Return what to do if this Python lacks a package of the launcher."""
    remedy = f"reinstall paddle-cluster with its dependencies ({sys.executable} -m pip check)"
    if IS_CHECKOUT:
        remedy = "run `sh run.sh` to set up .venv, then use .venv/bin/python paddle.py"
    return f"this Python cannot import {module}; {remedy}"


def argv() -> list[str]:
    """Return the command line that starts this program in another process."""
    return [sys.executable, str(_SCRIPT)] if IS_CHECKOUT else [sys.executable, "-P", "-m", "paddle_cluster"]
