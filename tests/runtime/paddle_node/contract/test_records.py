# SPDX-License-Identifier: Apache-2.0
"""One reader checks every record, and names the sender, the field and the limit."""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Any, Dict, List, Literal, NamedTuple, Optional, Tuple, Union  # noqa: UP035 - as on nodes

import pytest

from paddle_node.contract import checked_json
from paddle_node.contract.classes import dataclass, field
from paddle_node.contract.records import (
    Fields,
    JobId,
    Pid,
    Port,
    RecordError,
    RelativePath,
    Seconds,
    Secret,
    Whole,
    fields_of,
    read,
    read_fitting,
    read_text,
)


class Owner(NamedTuple):
    user: str
    pid: Optional[Pid] = None  # noqa: UP045


class Job(NamedTuple):
    job_id: JobId
    batches: Whole = 0
    wait_s: Seconds = 1.5
    cost: float = 0.0
    owner: Optional[Owner] = None  # noqa: UP045
    ports: Tuple[Port, ...] = ()  # noqa: UP006
    seen: Tuple[Tuple[str, Whole], ...] = ()  # noqa: UP006
    env: Dict[str, Secret] = {}  # noqa: UP006, RUF012
    paths: List[RelativePath] = []  # noqa: UP006, RUF012
    state: Literal["new", "old"] = "new"
    quiet: bool = False
    other: Fields = {}  # noqa: RUF012


@dataclass(frozen=True)
class View:
    name: str
    label: str | None
    owner: Owner
    rows: tuple[Owner, ...] = ()
    notes: dict[str, int] = field(default_factory=dict)


def job(text: str) -> Job:
    return read(Job, checked_json.loads(text), "job", "node-a")


def test_a_record_is_read_with_what_it_holds() -> None:
    found = job(
        '{"job_id": "a-1", "batches": 7, "wait_s": 2, "owner": {"user": "u", "pid": 5}, "ports": [1, 65535],'
        ' "seen": [["x", 1]], "env": {"A": "b"}, "paths": ["a/b"], "state": "old", "quiet": true, "unknown": 1}'
    )
    assert found == Job(
        "a-1", 7, 2, 0.0, Owner("u", 5), (1, 65535), (("x", 1),), {"A": "b"}, ["a/b"], "old", True, {}
    )


def test_what_is_missing_or_null_has_its_default() -> None:
    assert job('{"job_id": "a", "batches": null, "owner": null, "ports": null}') == Job("a")
    assert job('{"job_id": "a"}').ports == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "node-a: job must be an object, got []"),
        ("{}", "node-a: job.job_id is missing: it must be 1 to 128 letters"),
        ('{"job_id": null}', "node-a: job.job_id is missing"),
        ('{"job_id": "a b"}', "node-a: job.job_id must be 1 to 128 letters"),
        ('{"job_id": "a", "batches": true}', "job.batches must be a whole number from 0 to 2**62, got true"),
        ('{"job_id": "a", "batches": 1.0}', "job.batches must be a whole number from 0 to 2**62, got 1.0"),
        ('{"job_id": "a", "batches": -1}', "job.batches must be a whole number from 0 to 2**62, got -1"),
        (
            f'{{"job_id": "a", "batches": {2**70}}}',
            "job.batches must be a whole number from 0 to 2**62, got 1.18",
        ),
        ('{"job_id": "a", "wait_s": true}', "job.wait_s must be a number of seconds"),
        ('{"job_id": "a", "wait_s": 1e30}', "job.wait_s must be a number of seconds"),
        ('{"job_id": "a", "wait_s": NaN}', "job.wait_s must be a number of seconds"),
        ('{"job_id": "a", "cost": false}', "job.cost must be a number, got false"),
        ('{"job_id": "a", "owner": {"user": 3}}', "job.owner.user must be a string, got 3"),
        ('{"job_id": "a", "owner": {"user": "u", "pid": 0}}', "job.owner.pid must be a process id, got 0"),
        ('{"job_id": "a", "ports": [1, 65536]}', "job.ports[] must be a port from 1 to 65535, got 65536"),
        ('{"job_id": "a", "seen": [["x"]]}', "job.seen[] must be a list of 2, got ['x']"),
        ('{"job_id": "a", "seen": [["x", true]]}', "job.seen[][] must be a whole number"),
        ('{"job_id": "a", "paths": ["../x"]}', "job.paths[] must be a relative path"),
        ('{"job_id": "a", "paths": ["/x"]}', "job.paths[] must be a relative path"),
        ('{"job_id": "a", "paths": "x"}', "job.paths must be a list, got 'x'"),
        ('{"job_id": "a", "state": "odd"}', "job.state must be one of 'new', 'old', got 'odd'"),
        ('{"job_id": "a", "quiet": 1}', "job.quiet must be true or false, got 1"),
        ('{"job_id": "a", "other": []}', "job.other must be an object, got []"),
    ],
)
def test_what_does_not_fit_is_named_with_its_field_and_limit(text: str, message: str) -> None:
    with pytest.raises(RecordError, match=re.escape(message)):
        job(text)


def test_a_secret_is_not_in_the_message() -> None:
    with pytest.raises(RecordError) as raised:
        job('{"job_id": "a", "env": {"KEY": 123456}}')
    assert str(raised.value) == "node-a: job.env{} must be a string"


@pytest.mark.parametrize("cost", [math.inf, -math.inf, 3, -2.5])
def test_a_number_may_be_whole_negative_or_infinite(cost: float) -> None:
    assert read(Job, {"job_id": "a", "cost": cost}, "job", "x").cost == cost


def test_a_frozen_dataclass_is_a_record_too() -> None:
    value: dict[str, Any] = {"name": "n", "label": None, "owner": {"user": "u"}, "rows": [{"user": "v"}]}
    found = read(View, value, "view", "status.json")
    assert found == View("n", None, Owner("u"), (Owner("v"),))
    with pytest.raises(RecordError, match=re.escape("status.json: view.notes{} must be a whole number")):
        read(View, {**value, "notes": {"a": True}}, "view", "status.json")


def test_a_record_is_written_as_it_is_read() -> None:
    view = View("n", None, Owner("u", 4), (Owner("v"),), {"a": 1})
    fields = fields_of(view)
    assert fields["rows"] == [{"user": "v", "pid": None}]
    assert read(View, fields, "view", "x") == view


def test_records_without_annotations_as_text_are_refused() -> None:
    plain: Any = NamedTuple("plain", [("name", str)])
    with pytest.raises(TypeError, match="from __future__ import annotations"):
        read(plain, {"name": "x"}, "plain", "x")


def test_of_a_listing_each_row_and_each_field_that_does_not_fit_is_left_out_and_named() -> None:
    faults: list[str] = []
    value = {"job_id": "a", "batches": True, "ports": [1, 0, 65536, 7], "seen": [["x", 1], ["y"]], "env": []}
    found = read_fitting(Job, value, "job", "node-a", faults)
    assert found == Job("a", ports=(1, 7), seen=(("x", 1),))
    assert faults == [
        "node-a: job.batches must be a whole number from 0 to 2**62, got true",
        "node-a: job.ports[] must be a port from 1 to 65535, got 0",
        "node-a: job.ports[] must be a port from 1 to 65535, got 65536",
        "node-a: job.seen[] must be a list of 2, got ['y']",
        "node-a: job.env must be an object",
    ]
    with pytest.raises(RecordError, match=re.escape("node-a: job.job_id must be 1 to 128 letters")):
        read_fitting(Job, {"job_id": "a b"}, "job", "node-a", faults)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(NamedTuple):
    name: str
    kind: Literal["line"]
    colour: Colour = Colour.RED


class Dot(NamedTuple):
    name: str
    kind: Literal["dot"]
    at: Whole


class Drawing(NamedTuple):
    parts: Tuple[Union[Line, Dot], ...]  # noqa: UP006, UP007


def test_the_kind_of_a_value_says_which_record_it_is_and_defaults_may_be_missing_at_a_lists_end() -> None:
    text = '[["a", "line"], ["b", "dot", 3], {"name": "c", "kind": "line", "colour": "blue"}]'
    found = read_text(Drawing, text, "drawing", "node-a")
    assert found.parts == (Line("a", "line"), Dot("b", "dot", 3), Line("c", "line", Colour.BLUE))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "node-a: drawing is not JSON: "),
        ("3", "node-a: drawing must be an object, got 3"),
        (
            '[["a", "blot"]]',
            "node-a: drawing.parts[] must be of kind 'line' or 'dot', got ['a', 'blot']",
        ),
        ("[[]]", "node-a: drawing.parts[] must be of kind 'line' or 'dot', got []"),
        ('[["a", "dot"]]', "node-a: drawing.parts[] must be a list of 3, got ['a', 'dot']"),
        ('[["a", "dot", true]]', "node-a: drawing.parts[].at must be a whole number"),
        (
            '[["a", "line", "green"]]',
            "node-a: drawing.parts[].colour must be one of 'red', 'blue', got 'green'",
        ),
    ],
)
def test_a_text_that_is_not_its_record_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(RecordError, match=re.escape(message)):
        read_text(Drawing, text, "drawing", "node-a")
