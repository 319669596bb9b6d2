# SPDX-License-Identifier: Apache-2.0
"""The events that a job shows to its user, as plain values that any console can draw, also in another process.

Every event is frozen and contains only text, numbers, bytes and tuples of them. `to_fields` converts one to a JSON
object and `from_fields` converts it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from paddle_cluster.errors import ExitCode
from paddle_node.contract.classes import NamedTuple, dataclass, field
from paddle_node.contract.facts import NodeUsage, Progress
from paddle_node.contract.records import Fields, Finite, fields_of, read


@dataclass(frozen=True)
class NodesNamed:
    """The names of the job's nodes, as (id, label) pairs, and the job's own name (--name)."""

    labels: tuple[tuple[int, str], ...]
    name: str = ""


@dataclass(frozen=True)
class PhaseEntered:
    """The start of a phase of the job.

    Attributes:
        began: when the job entered it, in seconds since 1970; 0 means just now.
    """

    name: str
    began: Finite = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Noted:
    """A note for the user, of one or several lines."""

    text: str


class Printed(NamedTuple):
    """Output lines of a process; the most frequent event.

    Attributes:
        process: its name, such as "trainer-2".
        node: the node's name on the screen.
        data: complete lines; with `partial` the last one is incomplete.
        at: time of writing, in seconds since the epoch on the launcher's clock.
    """

    process: str
    node: str
    data: bytes
    partial: bool
    at: Finite


@dataclass(frozen=True)
class Unsent:
    """The size of output that was not sent, because its process wrote faster than the connection transmits.

    Attributes:
        log: the file on the node that contains it, relative to the job directory.
    """

    process: str
    node: str
    size: int
    log: str


@dataclass(frozen=True)
class NodeState:
    """The new state of a node, as text."""

    node_id: int
    state: str


@dataclass(frozen=True)
class Transferred:
    """The progress of the transfer of missing files to a node, about once a second; the last event reports completion.

    Attributes:
        bytes_per_s: average over the last few seconds.
    """

    node_id: int
    arrived: int
    total: int
    bytes_per_s: Finite


class _OfFacts:
    """An event whose facts appear both as attributes and as JSON members: `event.cost`."""

    facts: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "facts":
            raise AttributeError(name)
        return getattr(self.facts, name)


@dataclass(frozen=True)
class Progressed(_OfFacts):
    """A trainer's progress, as it last reported it.

    Attributes:
        process: its name, such as "trainer-0".
    """

    node_id: int
    process: str
    facts: Progress


@dataclass(frozen=True)
class Plotted:
    """A new point of a curve that a script draws with `paddle.v2.plot`."""

    node_id: int
    process: str
    curve: str
    step: Finite
    value: Finite


@dataclass(frozen=True)
class Used(_OfFacts):
    """The resources used by a node and the job's processes on it, every few seconds.

    Attributes:
        facts: the measurements; the usage of a GPU that does not report it is NO_PERCENT.
    """

    node_id: int
    facts: NodeUsage


@dataclass(frozen=True)
class Tabled:
    """A table to show; the rows at the indices in `red` have failed."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    red: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.headers) for row in self.rows):
            raise ValueError(f"every row needs {len(self.headers)} cells")


@dataclass(frozen=True)
class Failed:
    """The first failure of the job, as lines, with the end of the process's log."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Timed:
    """The duration of each phase, as (name, seconds) pairs."""

    phases: tuple[tuple[str, Finite], ...]


@dataclass(frozen=True)
class Ended:
    """The outcome of the job and the location of its results; logs and output may be empty.

    Attributes:
        cause: the process that failed first and the reason, in one line; empty if none failed.
    """

    job_id: str
    code: ExitCode
    cause: str
    logs: str
    output: str
    lines: tuple[str, ...]


Event = (
    NodesNamed
    | PhaseEntered
    | Noted
    | Printed
    | Unsent
    | NodeState
    | Transferred
    | Progressed
    | Plotted
    | Used
    | Tabled
    | Failed
    | Timed
    | Ended
)
KINDS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
NO_PERCENT = -1.0


def to_fields(event: Event) -> Fields:
    """Convert an event to a JSON object; bytes that are not valid UTF-8 become lone surrogates."""
    found = fields_of(event)
    facts = found.pop("facts", {})
    return {"event": type(event).__name__, **found, **facts}


def from_fields(given: Fields) -> Event:
    """Convert the result of `to_fields` back to an event, after checking it.

    Raises:
        ValueError: the fields do not describe an event.
    """
    kind = KINDS.get(str(given.get("event")))
    if kind is None:
        raise ValueError(f"unknown event {given.get('event')!r}")
    return read(kind, {**given, "facts": given}, kind.__name__, "the event")
