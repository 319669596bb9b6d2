# SPDX-License-Identifier: Apache-2.0
"""The command line shared by benchmarks with several measurements."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path


def parser(module: str, doc: str | None, measurements: Collection[str]) -> argparse.ArgumentParser:
    """Return a parser of --json, --plot, --quick and --only, to which a benchmark adds its own options.

    Args:
        module: the module's name, such as "benchmarks.pserver".
        doc: its docstring, whose first line describes what it measures.
        measurements: names in the order of measurement; `a_b` also responds to `a`.
    """

    def names(text: str) -> list[str]:
        found: list[str] = []
        for word in text.split(","):
            meant = [name for name in measurements if word in (name, name.partition("_")[0])]
            if not meant:
                raise argparse.ArgumentTypeError(f"{word!r}: expected one of {', '.join(measurements)}")
            found += meant
        return found

    made = argparse.ArgumentParser(
        prog=f"python -m {module}", description=doc.splitlines()[0] if doc else None
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="also write figures and ratios to this file")
    made.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="draw the figures into this file; see benchmarks.report"
    )
    made.add_argument("--quick", action="store_true", help="one short turn, to check that the benchmark runs")
    made.add_argument(
        "--only",
        type=names,
        default=list(measurements),
        metavar="NAME,...",
        help=f"only these of {', '.join(measurements)}; `a` selects all that begin with `a_`",
    )
    return made


def add_peers_python(to: argparse.ArgumentParser, packages: str) -> None:
    """Add --peers_python, the interpreter that has the packages to compare with."""
    to.add_argument(
        "--peers_python",
        default=sys.executable,
        metavar="PYTHON",
        help=f"the Python that has {packages} (default: this one)",
    )
