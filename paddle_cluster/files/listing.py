# SPDX-License-Identifier: Apache-2.0
"""Lists the files to send and their sizes, with a summary for many files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from paddle_cluster.files.package import IGNORE_FILE, LeftOut, survey
from paddle_cluster.text.sizes import counted, size_text
from paddle_cluster.text.wrapping import visible

SHOWN = 20  # files, up to which each has a line
LARGEST = 5  # of more, those that have one
FOLDERS = 10


class Sized(NamedTuple):
    """A file of the workspace."""

    path: str
    size: int


def of_workspace(root: Path, withheld: Collection[str], shard_dirs: Sequence[str]) -> list[str]:
    """Return lines about what a dispatch would send; reads no file."""
    left_out: list[LeftOut] = []
    files = [Sized(path, size) for path, size in survey(root, withheld, left_out)]
    share = f"; {', '.join(shard_dirs)}: one shard per node" if shard_dirs else ""
    lines = [f"to send: {_total(files)} (only where missing){share}"]
    if len(files) <= SHOWN:
        lines += _rows(sorted(files))
    else:
        lines += [*_folders(files), "  the largest:", *_rows(largest(files), "    ")]
    return [*lines, *told_left_out(left_out)]


def warning(files: Sequence[Sized], node: str, limit_mb: int, left_out: Sequence[LeftOut]) -> list[str]:
    """Return the warning before many megabytes are sent to a node."""
    return [
        f"{node} is missing {_total(files)}, more than WARN_SIZE_MB = {limit_mb}; the largest:",
        *_rows(largest(files)),
        *told_left_out(left_out),
        f"  (files named in {IGNORE_FILE} are not sent)",
    ]


def largest(files: Sequence[Sized]) -> list[Sized]:
    """Return the largest files, largest first."""
    return sorted(files, key=lambda one: (-one.size, one.path))[:LARGEST]


def told_left_out(left_out: Sequence[LeftOut]) -> list[str]:
    """Return lines about files that are not sent, grouped by rule."""
    lines = []
    for rule in dict.fromkeys(one.rule for one in left_out):
        paths = sorted(one.path for one in left_out if one.rule == rule)
        names = Counter(path.rstrip("/").rpartition("/")[2] for path in paths)
        if len(names) == 1 and len(paths) > 1:
            shown = [f"{len(paths)} {visible(next(iter(names)))}"]
        else:
            shown = [visible(path) for path in paths[:LARGEST]]
            shown += [f"{len(paths) - LARGEST} more"] if len(paths) > LARGEST else []
        lines.append(f"  not sent, by {rule}: {', '.join(shown)}")
    return lines


def _total(files: Sequence[Sized]) -> str:
    return f"{counted(len(files), 'file')}, {size_text(sum(one.size for one in files))}"


def _rows(files: Sequence[Sized], indent: str = "  ") -> Iterator[str]:
    sizes = [size_text(one.size) for one in files]
    wide = max(map(len, sizes), default=0)
    for one, size in zip(files, sizes, strict=True):
        yield f"{indent}{size:>{wide}}  {visible(one.path)}"


def _folders(files: Sequence[Sized]) -> Iterator[str]:
    """A line for each folder at the top, the largest first."""
    sizes, counts = Counter[str](), Counter[str]()
    for one in files:
        folder = one.path.partition("/")[0] + "/" if "/" in one.path else "at the top"
        sizes[folder] += one.size
        counts[folder] += 1
    order = sorted(counts, key=lambda folder: (-sizes[folder], folder))
    wide = max(len(size_text(sizes[folder])) for folder in order[:FOLDERS])
    for folder in order[:FOLDERS]:
        yield f"  {size_text(sizes[folder]):>{wide}}  {visible(folder)}  ({counted(counts[folder], 'file')})"
    if len(order) > FOLDERS:
        rest = order[FOLDERS:]
        size = sum(sizes[folder] for folder in rest)
        yield f"  {size_text(size):>{wide}}  in {counted(len(rest), 'more folder')}"
