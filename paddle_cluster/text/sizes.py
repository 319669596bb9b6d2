# SPDX-License-Identifier: Apache-2.0
"""Formats numbers, sizes and durations for people."""

from __future__ import annotations

from collections.abc import Sequence


def size_text(count: float) -> str:
    """Format a number of bytes, such as "1 byte" or "8.0 MB"."""
    for power, unit in ((30, "GB"), (20, "MB"), (10, "kB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return counted(int(count), "byte")


def duration(seconds: float) -> str:
    """Format a duration, such as "7.2 ms", "2.50 s" or "120 s"."""
    if abs(seconds) < 0.1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.2f} s" if abs(seconds) < 100 else f"{seconds:.0f} s"


def count(number: float) -> str:
    """Format a large number, short enough for a column, such as "1.2 M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.1f} {unit}"
    return f"{number:.0f}"


def counted(number: int, noun: str) -> str:
    """Format a count with its noun in the singular, whose plural ends in s or es: "1 node", "3 nodes"."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def some(names: Sequence[str], most: int) -> str:
    """Format a list of names; a long list is shortened, such as "a, b and 7 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def spans(numbers: Sequence[int]) -> str:
    """Format numbers as ranges, such as "7164-7167, 7200"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
