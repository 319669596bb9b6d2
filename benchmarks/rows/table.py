# SPDX-License-Identifier: Apache-2.0
"""The results of rows, as text for the screen, as Markdown, and as a picture."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

SENSE = "A ratio is our speed divided by that of the other tool: above 1, paddle-cluster is faster."
HEAD = ("ratio (minimum to maximum)", "target", "reached", "task", "ours", "other tool or limit")
_ROW, _LABEL, _PANEL, _VALUE, _TOP = 20, 520, 420, 190, 44  # pixels
_NOTE, _MOST_LABEL = 170, 78  # characters
_LEAST, _MOST = 0.04, 16.0
_STYLE = "text{font:12px sans-serif;fill:#222}.note{fill:#666}.head{font-weight:bold}"
_GOOD, _BAD, _FREE = "#3ca951", "#ff725c", "#9498a0"

Found = Mapping[str, Mapping[str, Any]]
"""Row -> what `Row.measure` returned."""


class Line(NamedTuple):
    """One comparison, as text except for the ratio itself."""

    ratio: str
    reach: str
    reached: str
    what: str
    ours: str
    rival: str


def lines(found: Found) -> Iterator[Line]:
    """Yield one line per comparison, the first with the row's description, or one for a row without comparisons."""
    for row in found.values():
        for number, one in enumerate(row["ratios"]):
            what = "the same" if number else row["what"]
            reach = "none" if one["reach"] is None else f"{one['reach']:g}"
            ours, theirs = (_side(row, one[who]) for who in ("ours", "theirs"))
            if one["ratio"] is None:
                yield Line("-", reach, "not measured", what, ours, theirs)
                continue
            ratio = f"{one['ratio']:.2f} ({one['low']:.2f} to {one['high']:.2f})"
            verdict = {None: "-", True: "yes", False: "**no**"}[one["reached"]]
            yield Line(ratio, reach, verdict, what, ours, theirs)
        if not row["ratios"]:
            yield Line("-", "", "not measured", row["what"], "; ".join(_lacking(row)), "")


def text(found: Found) -> str:
    """Return the table, with the reasons why rows or sides are missing or slower."""
    table = [HEAD, *(tuple(cell.replace("*", "") for cell in line) for line in lines(found))]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEAD))]
    rows = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]
    return "\n".join([SENSE, "", *rows, "", *_notes(found)])


def markdown(found: Found, facts: Mapping[str, object]) -> str:
    """Return the table in Markdown, for docs/benchmarks.md."""
    loads = [each for row in found.values() for each in row["load"]]
    dates = sorted({row["date"] for row in found.values()})
    machine = ", ".join(f"{name} {value}" for name, value in facts.items() if not name.startswith("load"))
    table = ["| " + " | ".join(line) + " |" for line in (HEAD, ("---",) * len(HEAD), *lines(found))]
    where = f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}; {machine}; load {min(loads):g} to {max(loads):g}."
    notes = [f"- {note}" for note in _notes(found)]
    opening = textwrap.fill(f"**{SENSE}** {where}", _NOTE, break_on_hyphens=False)
    return "\n".join([opening, "", *table, "", *notes])


def picture(found: Found, facts: Mapping[str, object]) -> str:
    """Return an SVG: one bar per comparison, starting at 1, on a logarithmic scale, with a mark at its target."""
    bars = [(row["what"], one) for row in found.values() for one in row["ratios"] if one["ratio"] is not None]
    machine = textwrap.wrap(", ".join(f"{name} {value}" for name, value in facts.items()), _NOTE)
    height = _TOP + _ROW * len(bars) + 14 + _ROW * len(machine)
    width = _LABEL + _PANEL + _VALUE
    parts = [f'<text class="head" x="8" y="20">{escape(SENSE)}</text>']
    for mark in (0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8):
        x = _x(mark)
        stroke = "#222" if mark == 1 else "#ddd"
        parts.append(f'<path d="M{x:.1f} {_TOP - 6}V{_TOP + _ROW * len(bars)}" stroke="{stroke}"/>')
        parts.append(f'<text class="note" x="{x:.1f}" y="{_TOP - 10}" text-anchor="middle">{mark:g}</text>')
    for number, (what, one) in enumerate(bars):
        parts += _bar(what, one, _TOP + number * _ROW)
    for number, line in enumerate(reversed(machine)):
        y = height - 10 - _ROW * number
        parts.append(f'<text class="note" x="8" y="{y}">{escape(line)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _bar(what: str, one: Mapping[str, Any], y: int) -> list[str]:
    ends = sorted((_x(1.0), _x(one["ratio"])))
    low, high, middle = _x(one["low"]), _x(one["high"]), y + 8
    colour = {None: _FREE, True: _GOOD, False: _BAD}[one["reached"]]
    sides = f": {one['ours']} / {one['theirs']}"
    label = _short(what, _MOST_LABEL - len(sides)) + sides
    parts = [
        f'<text x="{_LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>',
        f'<rect x="{ends[0]:.1f}" y="{y + 2}" width="{ends[1] - ends[0]:.1f}" height="12" fill="{colour}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="#222"/>',
        f'<text x="{_LABEL + _PANEL + 8}" y="{y + 12}">{one["ratio"]:.2f}</text>',
    ]
    if one["reach"] is not None:
        x = _x(one["reach"])
        parts.append(f'<path d="M{x:.1f} {y}v16" stroke="#4269d0" stroke-width="3"/>')
        parts.append(
            f'<text class="note" x="{_LABEL + _PANEL + 56}" y="{y + 12}">target {one["reach"]:g}</text>'
        )
    return parts


def _x(ratio: float) -> float:
    part = math.log(min(max(ratio, _LEAST), _MOST) / _LEAST) / math.log(_MOST / _LEAST)
    return _LABEL + _PANEL * part


def _short(what: str, most: int) -> str:
    return what if len(what) <= most else f"{what[: most - 3]}..."


def _side(row: Mapping[str, Any], name: str) -> str:
    side = row["sides"].get(name)
    if side is None:
        return name.replace("_", " ")
    values = side["values"]
    figures = [_figure(each) for each in (statistics.median(values), min(values), max(values))]
    spread = f" ({figures[1]} to {figures[2]})" if len(values) > 1 else ""
    return f"{name.replace('_', ' ')} {figures[0]}{spread} {row['unit']}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _lacking(row: Mapping[str, Any]) -> list[str]:
    return [f"{name.replace('_', ' ')}: {why}" for name, why in row["lacking"].items()]


def _notes(found: Found) -> list[str]:
    """Return why our side is slower, and which sides are missing; a reason shared by several rows is given once."""
    losing: dict[str, list[str]] = {}
    lacking: dict[str, list[str]] = {}
    for name, row in found.items():
        if row["why"] and any(one.get("reached") is False for one in row["ratios"]):
            losing.setdefault(row["why"], []).append(name)
        for why in _lacking(row):
            lacking.setdefault(why, []).append(name)
    return [
        *(f"below the target ({_names(names)}): {why}" for why, names in losing.items()),
        *(f"not measured ({_names(names)}): {why}" for why, names in lacking.items()),
    ]


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)
