# SPDX-License-Identifier: Apache-2.0
"""Builds the only shell text of the launcher: the command line that a login shell on a node receives.

sh, bash, dash, zsh, ksh, fish and tcsh all interpret it in the same way: it starts /bin/sh with quoted arguments. All
other data for a node is sent in frames.
"""

from __future__ import annotations

import shlex

from paddle_cluster.connection.bootstrap import FLAGS, TOO_OLD, Bootstrap

AGENT_PYTHON = "python3"

# Exit statuses of a Python that is missing, not executable, broken or too old. An agent never exits with one of them.
_NO_PYTHON = (1, 2, TOO_OLD, 126, 127)

# $0 begins the shell's error messages. $1 is the agent's code, $2 the other interpreter. The word `last` makes that one
# report its own error.
_SCRIPT = (
    'if command -v {python} >/dev/null 2>&1; then {python} {flags} -c "$1"; s=$?; '
    "case $s in {statuses});; *) exit $s;; esac; fi; "
    'exec "$2" {flags} -c "$1" last'
)


def agent_argv(bootstrap: Bootstrap, python: str) -> list[str]:
    """Return the command line that starts an agent as a child process, without a shell."""
    return [python, *FLAGS, "-c", bootstrap.code, "last"]


def agent_command(bootstrap: Bootstrap, fallback_python: str) -> str:
    """Return the shell command that starts an agent on a node, with the first suitable interpreter.

    Args:
        fallback_python: the job's interpreter (PYTHON in conf.py); it also runs the agent if the node has no `python3`
            of 3.8 or newer. A leading ~/ stands for the home directory.
    """
    script = _SCRIPT.format(
        python=AGENT_PYTHON, flags=" ".join(FLAGS), statuses="|".join(map(str, _NO_PYTHON))
    )
    return f"exec /bin/sh -c {_quote(script)} agent {_quote(bootstrap.code)} {_quote(fallback_python)}"


def _quote(text: str) -> str:
    """Quote a word for any of these shells; the shell expands a leading `~/`."""
    return "~/" + shlex.quote(text[2:]) if text.startswith("~/") else shlex.quote(text)
