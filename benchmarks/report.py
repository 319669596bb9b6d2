# SPDX-License-Identifier: Apache-2.0
"""Figures, ratios and missing measurements, as a table and as JSON.

Also draws a picture of a benchmark's results: one bar per figure, with a thin line from minimum to maximum at its end.

    python -m benchmarks.report FILE.json PICTURE.svg

Figures with the same unit share a panel and a scale; a side has the same colour everywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import Facts
from benchmarks.machine import text as machine_text
from benchmarks.timing import Samples

_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#9c6b4e", "#9498a0")
_ROW, _BAR, _LABEL, _PANEL, _VALUE = 22, 14, 260, 520, 150  # pixels
_HEAD = 34
_STYLE = "text{font:12px sans-serif;fill:#222}.unit{font-weight:bold}.note{fill:#666}"


@dataclass
class Report:
    """The results of a benchmark, in order of measurement.

    Attributes:
        figures: name -> (samples, unit, description of the measurement).
        ratios: name -> (ratio of the medians, ratio of the minima, the two figures); below 1, ours is smaller. On a
            shared machine, the minima are least affected by other work.
        missing: name -> why the figure is missing.
        tell: called with each figure when it is measured, so that a long run reports its progress.
    """

    figures: dict[str, tuple[Samples, str, str]] = field(default_factory=dict)
    ratios: dict[str, tuple[float, float, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda line: None

    def add(self, name: str, values: Samples | float, unit: str, note: str = "") -> None:
        """Add a figure."""
        samples = values if isinstance(values, Samples) else Samples((values,))
        self.figures[name] = (samples, unit, note)
        self.tell(f"{name} {samples.median:.4g} {unit}")

    def add_all(
        self,
        found: Mapping[str, Samples],
        failed: Mapping[str, str],
        unit: str,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        """Add the results of `timing.interleave`."""
        for name, samples in found.items():
            self.add(name, samples, unit, (notes or {}).get(name, ""))
        for name, why in failed.items():
            self.lack(name, why)

    def lack(self, name: str, why: str) -> None:
        """Record that a figure could not be measured."""
        self.missing[name] = " ".join(why.split())
        self.tell(f"{name} not measured: {self.missing[name]}")

    def compare(self, name: str, ours: str, theirs: str) -> None:
        """Add the ratio of two figures' medians, if both exist."""
        absent = [figure for figure in (ours, theirs) if figure not in self.figures]
        if absent:
            self.lack(name, f"missing: {', '.join(absent)}")
            return
        of_ours, of_theirs = self.figures[ours][0], self.figures[theirs][0]
        self.ratios[name] = (
            of_ours.median / of_theirs.median,
            of_ours.low / of_theirs.low,
            f"{ours} / {theirs}",
        )

    def text(self, machine: Facts) -> str:
        """Return the whole report for the screen."""
        parts = [machine_text(machine)]
        if self.figures:
            rows = [_row(name, *figure) for name, figure in self.figures.items()]
            parts.append(_table(("figure", "median", "least", "most", "n", "unit", "what"), rows))
        if self.ratios:
            ratios = [
                (name, f"{value:.3g}", f"{at_best:.3g}", of)
                for name, (value, at_best, of) in self.ratios.items()
            ]
            parts.append(_table(("ratio", "of medians", "of the least", "figures"), ratios))
        if self.missing:
            parts.append(_table(("not measured", "why"), list(self.missing.items())))
        return "\n\n".join(parts)

    def show(self, facts: Facts, path: Path | None, plot: Path | None = None) -> None:
        """Print the whole report; if given, also write it to `path`, and draw it to `plot`."""
        print(self.text(facts))
        if path is not None:
            self.write(path, facts)
        if plot is not None:
            plot.write_text(picture(self.everything(facts)), encoding="utf-8")

    def write(self, path: Path, machine: Facts) -> None:
        """Write the result of `everything` as JSON."""
        path.write_text(json.dumps(self.everything(machine), indent=1) + "\n", encoding="utf-8")

    def everything(self, machine: Facts) -> dict[str, Any]:
        """Return {"machine", "figures", "ratios"}; a missing figure has a null median and a reason."""
        figures: dict[str, dict[str, Any]] = {
            name: {
                "median": samples.median,
                "low": samples.low,
                "high": samples.high,
                "n": len(samples.values),
                "unit": unit,
                "what": note,
            }
            for name, (samples, unit, note) in self.figures.items()
        }
        figures |= {name: {"median": None, "why": why} for name, why in self.missing.items()}
        ratios = {name: round(value, 4) for name, (value, _, _) in self.ratios.items()}
        return {"machine": machine, "figures": figures, "ratios": ratios}


def _row(name: str, samples: Samples, unit: str, note: str) -> tuple[str, ...]:
    spread = [f"{value:.4g}" for value in (samples.median, samples.low, samples.high)]
    return (name, *spread, str(len(samples.values)), unit, note)


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def tell(line: str) -> None:
    """Print the progress of a long run on standard error."""
    print(line, file=sys.stderr, flush=True)


class Bar(NamedTuple):
    """The bar of one figure."""

    name: str
    median: float
    low: float
    high: float


def picture(found: Mapping[str, Any]) -> str:
    """Return an SVG of the output of `Report.write`, if it has figures; negative ones are omitted."""
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
    """Read, draw, and write the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument(
        "found", type=Path, metavar="FILE.json", help="a file that a benchmark wrote with --json"
    )
    parser.add_argument("picture", type=Path, metavar="PICTURE.svg")
    given = parser.parse_args(argv)
    try:
        found = json.loads(given.found.read_text(encoding="utf-8"))
        drawn = picture(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{given.found}: expected a file that a benchmark wrote with --json: {error!r}")
    given.picture.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
