# SPDX-License-Identifier: Apache-2.0
"""The only place that quotes or writes shell text: the one command line that a login shell ever gets.

It is read alike by sh, bash, dash, zsh, ksh and fish. Everything else a node is told travels in frames.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from launcher.bootstrap import FLAGS, OLDEST_PYTHON, Bootstrap

AGENT_PYTHON = "python3"


def agent_argv(bootstrap: Bootstrap, python: str) -> list[str]:
    """What starts an agent without a shell."""
    return [python, *FLAGS, "-c", bootstrap.code]


def agent_command(bootstrap: Bootstrap, fallback_python: str) -> str:
    """What starts an agent on a node.

    Args:
        fallback_python: the job's interpreter (PYTHON in conf.py); runs the agent too where the node has no
            `python3` of 3.8 or newer. A leading ~/ stands for the home directory.
    """
    oldest = ",".join(map(str, OLDEST_PYTHON))
    check = [AGENT_PYTHON, *FLAGS, "-c", f"import sys;sys.exit(sys.version_info<({oldest}))"]
    return (
        f"{_join(check)} 2>/dev/null && exec {_join(agent_argv(bootstrap, AGENT_PYTHON))}"
        f" || exec {_join(agent_argv(bootstrap, fallback_python))}"
    )


def _join(argv: Sequence[str]) -> str:
    return " ".join(_quote(part) for part in argv)


def _quote(text: str) -> str:
    """One word for any of these shells; a leading `~/` is left to the shell."""
    return "~/" + shlex.quote(text[2:]) if text.startswith("~/") else shlex.quote(text)
