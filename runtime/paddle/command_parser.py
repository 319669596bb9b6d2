# SPDX-License-Identifier: Apache-2.0
"""The parser of commands that users start as `paddle COMMAND`, or through the launcher as `paddle.py COMMAND`."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

_USAGE = 2

PROGRAM: str = str(sys._xoptions.get("paddle_program", "paddle"))
"""The name of the program that the user started; the launcher passes its own with -X."""


class CommandParser(argparse.ArgumentParser):
    """Parses the arguments of a command; an error is one line that names the command and where its options are."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        _, _, command = self.prog.partition(" ")
        self.exit(_USAGE, f"{PROGRAM}: {command}: {message}; `{self.prog} --help` lists the arguments\n")
