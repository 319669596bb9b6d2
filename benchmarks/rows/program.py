# SPDX-License-Identifier: Apache-2.0
"""Measures rows and reports the results. See `benchmarks.whole`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.arguments import add_peers_python, parser
from benchmarks.launching.rivals import TOOLS
from benchmarks.report import tell
from benchmarks.rows import launching, learning, serving, table, tables
from benchmarks.rows.loopback import congestion
from benchmarks.rows.row import Work

ROWS = {row.name: row for row in (*launching.ROWS, *serving.ROWS, *learning.ROWS, *tables.ROWS)}
_PACKAGES = ("numpy", "pyzmq", "cryptography")
_MARKS = ("<!-- whole -->", "<!-- /whole -->")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    arguments = parser("benchmarks.whole", __doc__, ROWS)
    add_peers_python(arguments, "torch and mpi4py")
    arguments.add_argument(
        "--ps_lite_python",
        metavar="PYTHON",
        help="the Python that has mxnet, which contains ps-lite (--peers_python)",
    )
    arguments.add_argument(
        "--turns", type=int, default=5, metavar="N", help="maximum number of turns of each side (5)"
    )
    arguments.add_argument(
        "--congestion",
        default="reno",
        metavar="NAME",
        help="congestion control of all sides on the loopback (reno, our default there; needs root)",
    )
    arguments.add_argument(
        "--write",
        type=Path,
        metavar="FILE.md",
        help=f"write the table into this file, between {' and '.join(_MARKS)}",
    )
    given = arguments.parse_args(argv)
    facts = machine.describe(_PACKAGES, TOOLS)
    facts["tcp on the loopback"], facts["tcp between hosts"] = given.congestion, congestion()
    found = _earlier(given.json)
    tell(f"benchmarks.whole: {machine.text(facts)}")
    with tempfile.TemporaryDirectory(prefix="paddle-whole-") as scratch:
        for name in dict.fromkeys(given.only):
            own = Path(scratch, name)
            own.mkdir()
            work = Work(
                turns=1 if given.quick else given.turns,
                is_quick=given.quick,
                peers_python=given.peers_python,
                ps_lite_python=given.ps_lite_python or given.peers_python,
                congestion=given.congestion,
                scratch=own,
            )
            found[name] = ROWS[name].measure(work)
            for line in table.lines({name: found[name]}):
                tell(f"{name}: {line.ratio}  {line.ours}  {line.rival}")
            _write(given.json, found, facts)
    ordered = {name: found[name] for name in ROWS if name in found}
    print(f"{machine.text(facts)}\n\n{table.text(ordered)}")
    if given.plot is not None:
        given.plot.write_text(table.picture(ordered, facts), encoding="utf-8")
    if given.write is not None:
        _put(given.write, table.markdown(ordered, facts))
    return 0


def _earlier(path: Path | None) -> dict[str, Any]:
    """Return the results of an earlier run; rows that this run omits are preserved."""
    if path is None or not path.exists():
        return {}
    rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def _write(path: Path | None, found: dict[str, Any], facts: machine.Facts) -> None:
    if path is not None:
        everything = {"machine": facts, "sense": table.SENSE, "rows": found}
        path.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


def _put(path: Path, table_text: str) -> None:
    """Replace the text between the marks.

    Raises:
        ValueError: there are no marks.
    """
    before, mark, rest = path.read_text(encoding="utf-8").partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not mark or not end:
        raise ValueError(f"{path}: expected {_MARKS[0]} and {_MARKS[1]}, each on a line of its own")
    path.write_text(f"{before}{mark}\n{table_text}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
