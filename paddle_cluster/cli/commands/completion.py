# SPDX-License-Identifier: Apache-2.0
"""`paddle.py completion bash|zsh`: prints the script that completes paddle.py in a shell.

The script runs `paddle.py completion words -- WORD...` for the words themselves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from paddle_cluster.cli.completing import SHELLS, offers
from paddle_cluster.cli.completion_scripts import script
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.screen.console import answer
from paddle_cluster.system.installation import COMMAND, PROGRAM

USAGE = f"""\
{PROGRAM} completion bash|zsh

Prints the script that completes the words of {PROGRAM} when Tab is
pressed. In ~/.bashrc, after your aliases:

  source <({COMMAND} completion bash)

or in ~/.zshrc, after compinit:

  source <({COMMAND} completion zsh)
"""


def run(argv: Sequence[str]) -> ExitCode:
    """Prints a shell's script, or what may stand at the end of a command line.

    Args:
        argv: a shell's name; or `words`, `--` and the words after paddle.py, the last one unfinished.

    Raises:
        UsageError: it is neither.
    """
    if list(argv[:2]) == ["words", "--"]:
        offer = offers(argv[2:], os.environ)
        answer("\n".join([offer.kind, *offer.words]))
        return ExitCode.DONE
    if len(argv) != 1 or argv[0] not in SHELLS:
        got = " ".join(argv) or "nothing"
        raise UsageError(
            f"completion: expected bash or zsh, got {got}; then: source <({COMMAND} completion bash)"
        )
    answer(script(argv[0]))
    return ExitCode.DONE
