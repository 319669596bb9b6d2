# SPDX-License-Identifier: Apache-2.0
"""Figures, ratios and what could not be measured, as a table and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import Facts
from benchmarks.machine import text as machine_text
from benchmarks.plot import picture
from benchmarks.timing import Samples


@dataclass
class Report:
    """What a benchmark found, in the order in which it was found.

    Attributes:
        figures: name -> (samples, unit, what exactly was measured).
        ratios: name -> (that of the medians, that of the least values, the two figures); below 1 ours is the
            smaller one. On a machine that others use too, the least values have met the least of it.
        missing: name -> why there is no such figure.
        tell: called with each figure as it is found: a long run says what it is at.
    """

    figures: dict[str, tuple[Samples, str, str]] = field(default_factory=dict)
    ratios: dict[str, tuple[float, float, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda line: None

    def add(self, name: str, values: Samples | float, unit: str, note: str = "") -> None:
        """Take one figure."""
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
        """Take what `timing.interleave` returned."""
        for name, samples in found.items():
            self.add(name, samples, unit, (notes or {}).get(name, ""))
        for name, why in failed.items():
            self.lack(name, why)

    def lack(self, name: str, why: str) -> None:
        """Note that a figure could not be had."""
        self.missing[name] = " ".join(why.split())
        self.tell(f"{name} not measured: {self.missing[name]}")

    def compare(self, name: str, ours: str, theirs: str) -> None:
        """Add the ratio of two figures' medians, if both are there."""
        absent = [figure for figure in (ours, theirs) if figure not in self.figures]
        if absent:
            self.lack(name, f"there is no {', no '.join(absent)}")
            return
        of_ours, of_theirs = self.figures[ours][0], self.figures[theirs][0]
        self.ratios[name] = (
            of_ours.median / of_theirs.median,
            of_ours.low / of_theirs.low,
            f"{ours} / {theirs}",
        )

    def text(self, machine: Facts) -> str:
        """Everything, for the screen."""
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
        """Print everything; with a path, write it there too, and draw it where `plot` says."""
        print(self.text(facts))
        if path is not None:
            self.write(path, facts)
        if plot is not None:
            plot.write_text(picture(self.everything(facts)), encoding="utf-8")

    def write(self, path: Path, machine: Facts) -> None:
        """Write what `everything` returns, as JSON."""
        path.write_text(json.dumps(self.everything(machine), indent=1) + "\n", encoding="utf-8")

    def everything(self, machine: Facts) -> dict[str, Any]:
        """Return {"machine", "figures", "ratios"}; a figure that is missing has a null median and says why."""
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
    """Says on standard error what a long run is at."""
    print(line, file=sys.stderr, flush=True)
