# SPDX-License-Identifier: Apache-2.0
"""The events that a job shows its user, as plain values: a console of this or another process can draw them.

Every event is frozen and holds only text, numbers, bytes and tuples of them. `to_fields` turns one into a JSON
object and `from_fields` back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, get_args

from paddle_cluster.errors import ExitCode
from paddle_node.contract.classes import dataclass
from paddle_node.contract.facts import NodeUsage, Progress
from paddle_node.contract.records import Fields, Finite, fields_of, read


@dataclass(frozen=True)
class NodesNamed:
    """The nodes of the job: (id, label) each, and what the user calls the job (--name)."""

    labels: tuple[tuple[int, str], ...]
    name: str = ""


@dataclass(frozen=True)
class PhaseEntered:
    """The job enters a phase.

    Attributes:
        began: when the job did, in seconds since 1970; 0: just now.
    """

    name: str
    began: Finite = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Noted:
    """Something the user should know; may hold several lines."""

    text: str


@dataclass(frozen=True)
class Printed:
    """What a process wrote.

    Attributes:
        process: its name, such as "trainer-2".
        node: how the screen names its node.
        data: whole lines; with `partial` the last one is still open.
        at: when, in seconds since the epoch on the launcher's clock.
    """

    process: str
    node: str
    data: bytes
    partial: bool
    at: Finite


@dataclass(frozen=True)
class Unsent:
    """Output that an agent did not send, because its process wrote faster than the link takes.

    Attributes:
        log: the file on the node that has it, relative to the job directory.
    """

    process: str
    node: str
    size: int
    log: str


@dataclass(frozen=True)
class NodeState:
    """What a node is doing."""

    node_id: int
    state: str


@dataclass(frozen=True)
class Transferred:
    """How much of what a node lacked has come there, about once a second; at the end all.

    Attributes:
        bytes_per_s: of the last seconds.
    """

    node_id: int
    arrived: int
    total: int
    bytes_per_s: Finite


class _OfFacts:
    """An event whose facts are attributes and JSON members of its own: `event.cost`."""

    facts: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "facts":
            raise AttributeError(name)
        return getattr(self.facts, name)


@dataclass(frozen=True)
class Progressed(_OfFacts):
    """The progress of a trainer.

    Attributes:
        process: its name, such as "trainer-0".
    """

    node_id: int
    process: str
    facts: Progress


@dataclass(frozen=True)
class Plotted:
    """Where a curve is that a script draws by `paddle.v2.plot`."""

    node_id: int
    process: str
    curve: str
    step: Finite
    value: Finite


@dataclass(frozen=True)
class Used(_OfFacts):
    """The resources that a node and the job's processes on it use, every few seconds.

    Attributes:
        facts: a GPU that does not report its use has NO_PERCENT.
    """

    node_id: int
    facts: NodeUsage


@dataclass(frozen=True)
class Tabled:
    """A table whose rows at the indices in `red` are wrong."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    red: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.headers) for row in self.rows):
            raise ValueError(f"rows without {len(self.headers)} cells")


@dataclass(frozen=True)
class Failed:
    """What went wrong first, with the end of its log."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Timed:
    """How long each phase took: (name, seconds) each."""

    phases: tuple[tuple[str, Finite], ...]


@dataclass(frozen=True)
class Ended:
    """How the job ended and where its results are; logs and output may be empty.

    Attributes:
        cause: who failed first and why, in one line; empty where nobody did.
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
    """An event as a JSON object; bytes that are no UTF-8 become lone surrogates."""
    found = fields_of(event)
    facts = found.pop("facts", {})
    return {"event": type(event).__name__, **found, **facts}


def from_fields(given: Fields) -> Event:
    """The event that `to_fields` made.

    Raises:
        ValueError: it is none.
    """
    kind = KINDS.get(str(given.get("event")))
    if kind is None:
        raise ValueError(f"no event is called {given.get('event')!r}")
    return read(kind, {**given, "facts": given}, kind.__name__, "the event")
