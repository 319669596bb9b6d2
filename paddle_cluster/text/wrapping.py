# SPDX-License-Identifier: Apache-2.0
"""Formats plain text for the screen: bounded lines without control characters, tables, the last lines.

On a terminal, text is measured in cells: wide characters occupy two, combining characters none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from paddle_cluster.errors import ExitCode
from paddle_cluster.text.output_events import Ended, Event, Failed, Noted, Progressed, Tabled, Timed, Unsent
from paddle_cluster.text.sizes import size_text
from paddle_node.contract.classes import regex
from paddle_node.contract.text import visible as visible

MAX_LINE = 2000
_CAUSE = 300  # maximum cells of the first failure in the last line
FILE_WIDTH = 1000  # columns of an output that is not a terminal

_OUTCOMES = {
    ExitCode.DONE: "done",
    ExitCode.PROCESS_FAILED: "failed: a process of the job failed",
    ExitCode.USAGE: "not started: error in the command line or conf.py",
    ExitCode.PREFLIGHT: "not started: preflight failed",
    ExitCode.DISPATCH: "not started: dispatch failed",
    ExitCode.LOST: "failed: a node or pserver was lost",
    ExitCode.NOT_CLEAN: "something could not be cleaned or collected",
    ExitCode.HANGUP: "stopped by hangup",
    ExitCode.INTERRUPTED: "stopped by Ctrl+C",
    ExitCode.QUIT: "stopped by Ctrl+\\",
    ExitCode.TERMINATED: "stopped by SIGTERM",
}
_BEFORE_UNIT = regex(r"(?<=\d) (?=(?:m?s|[kMG]?B)\b)")
_UNBROKEN = "\u00a0"
_CONTROL = regex("[\x00-\x08\x0b-\x1f\x80-\x9f\u2028-\u202e\u2066-\u2069]")  # DEL has no effect


def harmless(text: str) -> str:
    """Return a text of the launcher, such as JSON, with stray control characters escaped."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def end_of(text: str, most: int) -> tuple[str, ...]:
    """Return up to `most` last lines of a text, each cut to MAX_LINE characters."""
    found = text[-most * MAX_LINE :].replace("\r\n", "\n").rstrip("\n").split("\n")[-most:]
    return tuple(line[:MAX_LINE] for line in found) if text else ()


def visible_lines(text: str) -> str:
    """Return a text of several lines with control characters escaped."""
    return "\n".join(visible(line) for line in text.split("\n"))


@functools.lru_cache(maxsize=1 << 12)
def label(process: str, node: str) -> str:
    """Return the label of a process's lines, such as "trainer 2 node-c", without control characters."""
    return visible(f"{process.replace('-', ' ', 1)} {node}")


def unsent(event: Unsent) -> str:
    """Return the line that the screen shows for output that was dropped."""
    return f"[{label(event.process, event.node)}] {unsent_text(event)}"


def unsent_text(event: Unsent) -> str:
    """Describe how much output was not sent, and which log contains it."""
    return (
        f"({size_text(event.size)} of output not shown: the connection is too slow; "
        f"{visible(event.log)} has all of it)"
    )


def transfer(arrived: int, total: int, bytes_per_s: float) -> dict[str, str]:
    """Return the facts that a node's line shows while it receives files; they are empty after the transfer."""
    facts = {"arrived": str(arrived), "total": str(total), "bytes_per_s": f"{bytes_per_s:.0f}"}
    if arrived >= total:
        return {**facts, "progress": "", "cost": "", "speed": ""}
    left = f", {duration_clock((total - arrived) / bytes_per_s)} left" if bytes_per_s >= 1 else ""
    return {
        **facts,
        "progress": f"{size_text(arrived)} of {size_text(total)}",
        "cost": f"{100 * arrived // total} %",
        "speed": f"{size_text(bytes_per_s)}/s{left}",
    }


def duration_clock(seconds: float) -> str:
    """Format a duration as minutes and seconds, with hours if needed, such as "0:07" or "2:03:04"."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def progress(event: Progressed) -> dict[str, str]:
    """Return the facts that a node's line shows after a training step: position, cost and speed."""
    facts, speed = event.facts, event.facts.samples_per_s
    return {
        "progress": step_text(facts.pass_id, facts.batch_id),
        "cost": "" if facts.cost is None else f"{facts.cost:.5g}",
        "speed": "" if speed is None else speed_text(speed),
        "process": event.process,
        "pass_id": str(facts.pass_id or 0),
        "batch_id": str(facts.batch_id),
        "rate": "" if speed is None else f"{speed:g}",
    }


def step_text(pass_id: int | None, batch_id: int) -> str:
    """Format a trainer's position, such as "pass 2 batch 100", or "step 100" if the script has no passes."""
    return f"step {batch_id}" if pass_id is None else f"pass {pass_id} batch {batch_id}"


def speed_text(samples_per_s: float) -> str:
    """Format a speed, such as "1,200 samples/s"; a speed below 10 has one decimal."""
    return f"{samples_per_s:,.{int(0 < samples_per_s < 10)}f} samples/s"


def event_lines(event: Event, width: int, job: str = "") -> list[tuple[str, str]]:
    """Return the lines of an event that are the launcher's own messages, each with its style.

    Args:
        width: columns of the screen; tables and times are fitted to it.
        job: the job's name; if empty, its ID is shown.
    """
    match event:
        case Noted():
            return [(line, "") for line in event.text.split("\n")]
        case Tabled():
            (head, *lines), below = fitted_table(event.headers, event.rows, frozenset(event.red), width)
            return [
                (head, ""),
                *((line, "red" if row in event.red else "") for row, line in enumerate(lines)),
                *((line, "") for line in below),
            ]
        case Failed():
            return [(line, "bold red") for line in event.lines]
        case Timed():
            return [(line, "") for line in wrapped(times(dict(event.phases)), width)]
        case Ended():
            places = {"logs": event.logs, "output": event.output}
            return [
                *((line, "bold red") for line in event.lines),
                *((f"{what}: {path}", "") for what, path in places.items() if path),
                (
                    outcome(job or event.job_id, event.code, event.cause),
                    "bold" if event.code is ExitCode.DONE else "bold red",
                ),
            ]
        case _:
            return []


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], red: AbstractSet[int]) -> list[str]:
    """Format an aligned table; the rows at the indices in `red` are marked."""
    cells = [[visible(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(headers), *cells]) for column in range(len(headers))]
    lines = [_row("  ", headers, widths)]
    lines += [_row("! " if index in red else "  ", row, widths) for index, row in enumerate(cells)]
    return lines


def fitting(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the indices of the columns that fit the screen: the first two, then each further one that still fits."""
    room = width - 2
    chosen = []
    for column, header in enumerate(headers):
        size = max(len(header), *(len(visible(str(row[column]))) for row in rows), 0) + (2 if column else 0)
        if size <= room or column < 2:
            chosen.append(column)
            room -= size
    return chosen


def fitted_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], red: AbstractSet[int], width: int
) -> tuple[list[str], list[str]]:
    """Draw a table that fits the screen; list a column below it when all rows have the same value.

    The first column names the rows.

    Returns:
        The lines of the table, and the lines below it: columns with one value, and columns that did not fit.
    """
    found = {column: {row[column] for row in rows if row[column]} for column in range(len(headers))}
    alike = [column for column in found if column > 1 and len(rows) > 1 and len(found[column]) == 1]
    kept = [column for column in found if column < 2 or (found[column] and column not in alike)]
    fits = [
        kept[at]
        for at in fitting([headers[c] for c in kept], [[row[c] for c in kept] for row in rows], width)
    ]
    below = (
        [f"same on all: {'; '.join(f'{headers[column]} {min(found[column])}' for column in alike)}"]
        if alike
        else []
    )
    for column in kept:
        if column not in fits:
            values = "; ".join(f"{row[0]} {row[column]}" for row in rows if row[column])
            below.append(f"{headers[column]}: {values}")
    drawn = table([headers[c] for c in fits], [[row[c] for c in fits] for row in rows], red)
    return drawn, [line for text in below for line in wrapped(text, width)]


def wrapped(text: str, width: int) -> list[str]:
    """Return a text as lines that fit the screen, broken between words; all but the first are indented."""
    shown, width = visible(text), max(width, 40)
    if len(shown) <= width and shown and shown == " ".join(shown.split()):
        return [shown]  # most texts fit, and need no further import
    import textwrap

    lines = textwrap.wrap(
        _BEFORE_UNIT.sub(_UNBROKEN, shown),
        width,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_UNBROKEN, " ") for line in lines]


def _row(mark: str, cells: Sequence[str], widths: Iterable[int]) -> str:
    return (mark + "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))).rstrip()


def times(phases: Mapping[str, float]) -> str:
    """Format the duration of each phase as one line."""
    return "times: " + ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in phases.items())


def outcome(job: str, code: ExitCode, cause: str) -> str:
    """Return the last line of a job's output; `cause` replaces the general meaning of the exit code `code`."""
    shown = visible(cause)
    shown = crop(shown, _CAUSE) + (" ..." if cells(shown) > _CAUSE else "")
    said = f"{_OUTCOMES[code].partition(':')[0]}: {shown}" if cause else _OUTCOMES[code]
    return f"{job}: {said} (exit {int(code)})"


def cells(text: str) -> int:
    """Return the number of terminal cells that a text occupies."""
    return len(text) if text.isascii() else sum(map(_width, text))


def crop(text: str, width: int) -> str:
    """Cut a text to the given number of terminal cells."""
    if cells(text) <= width:
        return text
    taken, used = [], 0
    for character in text:
        used += _width(character)
        if used > width:
            break
        taken.append(character)
    return "".join(taken)


def row(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Format a row of a table, with each text cropped or padded to its column width."""
    cropped = [crop(text, width) for text, width in zip(texts, widths, strict=True)]
    filled = [text + " " * (width - cells(text)) for text, width in zip(cropped, widths, strict=True)]
    return "  ".join(filled).rstrip()


def _width(character: str) -> int:
    import unicodedata  # other characters are rare

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
