# SPDX-License-Identifier: Apache-2.0
"""A picture of what a benchmark found: a bar for each figure, from the least to the most a thin line across its end.

    python -m benchmarks.plot FILE.json PICTURE.svg

Figures of one unit share a panel and a scale; the same side has the same colour wherever it stands.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#9c6b4e", "#9498a0")
_ROW, _BAR, _LABEL, _PANEL, _VALUE = 22, 14, 260, 520, 150  # pixels
_HEAD = 34
_STYLE = "text{font:12px sans-serif;fill:#222}.unit{font-weight:bold}.note{fill:#666}"


class Bar(NamedTuple):
    """One figure."""

    name: str
    median: float
    low: float
    high: float


def picture(found: Mapping[str, Any]) -> str:
    """Return an SVG of what `Report.write` wrote, as far as there are figures; negative ones are left out."""
    panels: dict[str, list[Bar]] = {}
    for name, figure in found["figures"].items():
        if figure["median"] is not None and figure["median"] >= 0:
            bar = Bar(name, figure["median"], figure["low"], figure["high"])
            panels.setdefault(figure["unit"] or "number", []).append(bar)
    colours: dict[str, str] = {}
    parts, top = [], 0
    for unit, bars in panels.items():
        parts.append(_panel(unit, bars, top, colours))
        top += _HEAD + _ROW * len(bars)
    machine = escape(", ".join(f"{key} {value}" for key, value in found["machine"].items()))
    top += _HEAD
    parts.append(f'<text class="note" x="8" y="{top - 12}">{machine}</text>')
    width = _LABEL + _PANEL + _VALUE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}">'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _panel(unit: str, bars: Sequence[Bar], top: int, colours: dict[str, str]) -> str:
    most = max(bar.high for bar in bars) or 1.0
    lines = [f'<text class="unit" x="8" y="{top + 22}">{escape(unit)}</text>']
    for row, bar in enumerate(bars):
        y = top + _HEAD + row * _ROW
        side = bar.name.partition("_")[0]
        colour = colours.setdefault(side, _COLOURS[len(colours) % len(_COLOURS)])
        end, low, high = (_LABEL + _PANEL * value / most for value in (bar.median, bar.low, bar.high))
        middle = y + _BAR / 2
        lines += [
            f'<text x="{_LABEL - 8}" y="{y + 11}" text-anchor="end">{escape(bar.name)}</text>',
            f'<rect x="{_LABEL}" y="{y}" width="{end - _LABEL:.1f}" height="{_BAR}" fill="{colour}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="#222"/>',
            f'<text x="{max(end, high) + 6:.1f}" y="{y + 11}">{bar.median:.4g}</text>',
        ]
    return "".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=__doc__)
    parser.add_argument("found", type=Path, metavar="FILE.json", help="what a benchmark's --json wrote")
    parser.add_argument("picture", type=Path, metavar="PICTURE.svg")
    given = parser.parse_args(argv)
    try:
        found = json.loads(given.found.read_text(encoding="utf-8"))
        drawn = picture(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{given.found}: expected what a benchmark's --json wrote: {error!r}")
    given.picture.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
