# SPDX-License-Identifier: Apache-2.0
"""The only place that quotes or writes shell text: the one command line that a login shell ever gets.

It is read alike by sh, bash, dash, zsh, ksh, fish and tcsh: they start /bin/sh and quote words for it. Everything
else a node is told travels in frames.
"""

from __future__ import annotations

import shlex

from paddle_cluster.connection.bootstrap import FLAGS, TOO_OLD, Bootstrap

AGENT_PYTHON = "python3"

# Statuses of a Python that is not there, cannot be run, cannot start, or is too old. An agent never ends with one.
_NO_PYTHON = (1, 2, TOO_OLD, 126, 127)

# $0 is the agent's code, $1 the other interpreter. The word `last` makes that one say what is wrong with it.
_SCRIPT = (
    'if command -v {python} >/dev/null 2>&1; then {python} {flags} -c "$0"; s=$?; '
    "case $s in {statuses});; *) exit $s;; esac; fi; "
    'exec "$1" {flags} -c "$0" last'
)


def agent_argv(bootstrap: Bootstrap, python: str) -> list[str]:
    """What starts an agent without a shell."""
    return [python, *FLAGS, "-c", bootstrap.code, "last"]


def agent_command(bootstrap: Bootstrap, fallback_python: str) -> str:
    """Return the shell command that starts an agent on a node; it starts one interpreter if the first is suitable.

    Args:
        fallback_python: the job's interpreter (PYTHON in conf.py); runs the agent too where the node has no
            `python3` of 3.8 or newer. A leading ~/ stands for the home directory.
    """
    script = _SCRIPT.format(
        python=AGENT_PYTHON, flags=" ".join(FLAGS), statuses="|".join(map(str, _NO_PYTHON))
    )
    return f"exec /bin/sh -c {_quote(script)} {_quote(bootstrap.code)} {_quote(fallback_python)}"


def _quote(text: str) -> str:
    """One word for any of these shells; a leading `~/` is left to the shell."""
    return "~/" + shlex.quote(text[2:]) if text.startswith("~/") else shlex.quote(text)
