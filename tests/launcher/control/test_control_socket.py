# SPDX-License-Identifier: Apache-2.0
"""The control socket: anyone of this user can look and ask, nobody can hold up the job."""

from __future__ import annotations

import queue
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_cluster.control.control_client import ConnectionClosed, ControlClient, ControlLost, connect
from paddle_cluster.control.control_protocol import (
    MAX_FRAME,
    MAX_REQUEST,
    MAX_STACKS,
    ControlDecoder,
    ControlError,
    Frame,
    encode,
)
from paddle_cluster.control.control_server import ControlServer
from paddle_cluster.screen.scrollback import KEPT, Scrollback
from paddle_cluster.text.output_events import NodeState, Noted, PhaseEntered, Printed
from tests.cluster.deadline import wait_for

LIMIT_S = 60.0
Asked = list[tuple[int, bool, str]]


class Job:
    """A server with nothing behind it."""

    def __init__(self, path: Path) -> None:
        self.scrollback = Scrollback()
        self.asked: Asked = []
        self.status: dict[str, Any] = {"phase": "run"}
        self.path = path
        self.server = ControlServer(
            [path],
            None,
            {"job_id": "JOB1"},
            self.scrollback,
            lambda: self.status,
            lambda number, force, by: self.asked.append((number, force, by)),
            self.send_stacks,
        )
        self.server.start()

    def send_stacks(self, names: Sequence[str]) -> None:
        for name in names:
            self.server.send_stacks(name, f"{name} is here")

    def connect(self) -> tuple[ControlClient, queue.SimpleQueue[Any]]:
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client, welcome = connect(self.path, events)
        assert welcome["job_id"] == "JOB1"
        return client, events


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path / "s" / "control")
    yield job
    job.server.close(0, ())


@pytest.fixture
def attach(job: Job) -> Iterator[Callable[[int], queue.SimpleQueue[Any]]]:
    clients: list[ControlClient] = []

    def attach(lines: int) -> queue.SimpleQueue[Any]:
        client, events = job.connect()
        clients.append(client)
        client.send("attach", lines=lines)
        return events

    yield attach
    for client in clients:
        client.close()


def said(text: str) -> Printed:
    return Printed("trainer-0", "a", text.encode(), False, 1.0)


def take(events: queue.SimpleQueue[Any], count: int) -> list[Any]:
    """The next frames, beats left out."""
    found: list[Any] = []
    while len(found) < count:
        event = events.get(timeout=LIMIT_S)
        if not (isinstance(event, Frame) and event.kind == "beat"):
            found.append(event)
    return found


def test_who_attaches_gets_the_last_lines_then_what_comes(
    job: Job, attach: Callable[[int], queue.SimpleQueue[Any]]
) -> None:
    for number in range(5):
        job.scrollback.take(said(f"{number}\n"))
    events = attach(2)
    frames = take(events, 2)  # only then is it certain that the server knows of us
    job.scrollback.take(Noted("new"))
    frames += take(events, 1)
    shown = [frame.fields.get("data") or frame.fields.get("text") for frame in frames]
    assert shown == ["3\n", "4\n", "new"]


def test_who_attaches_late_gets_the_state_of_every_node_once(
    job: Job, attach: Callable[[int], queue.SimpleQueue[Any]]
) -> None:
    for state in ("connecting", "running"):
        for node_id in (0, 1):
            job.scrollback.take(NodeState(node_id, state))
    frames = take(attach(0), 2)
    assert {(frame.fields["node_id"], frame.fields["state"]) for frame in frames} == {
        (0, "running"),
        (1, "running"),
    }


def test_who_attaches_within_a_phase_is_told_which(
    job: Job, attach: Callable[[int], queue.SimpleQueue[Any]]
) -> None:
    job.scrollback.take(PhaseEntered("run"))
    for number in range(5):
        job.scrollback.take(said(f"{number}\n"))
    assert [frame.fields["event"] for frame in take(attach(1), 2)] == ["PhaseEntered", "Printed"]
    assert [frame.fields["event"] for frame in take(attach(9), 2)] == ["PhaseEntered", "Printed"]


def test_two_who_attach_both_see_everything_and_the_end(
    job: Job, attach: Callable[[int], queue.SimpleQueue[Any]]
) -> None:
    both = [attach(10), attach(10)]
    job.scrollback.take(PhaseEntered("run"))
    for events in both:
        assert take(events, 1)[0].fields["name"] == "run"
    job.scrollback.take(Noted("the last words"))
    job.server.close(3, ("pid 7 is left",))
    for events in both:
        words, end, gone = take(events, 3)
        assert words.fields["text"] == "the last words"
        assert (end.fields["exit_code"], end.fields["left"]) == (3, ["pid 7 is left"])
        assert isinstance(gone, ConnectionClosed)
    assert not job.path.exists()


def test_a_client_that_reads_nothing_holds_up_neither_the_job_nor_another_client(
    job: Job, attach: Callable[[int], queue.SimpleQueue[Any]]
) -> None:
    stuck = socket.socket(socket.AF_UNIX)
    stuck.connect(str(job.path))
    stuck.sendall(encode("attach", lines=0))
    events = attach(0)
    for _ in range(3):
        for _ in range(KEPT):
            job.scrollback.take(said("x" * 500 + "\n"))
    job.scrollback.take(Noted("here"))

    def arrived() -> bool:
        frame = events.get(timeout=LIMIT_S)
        return isinstance(frame, Frame) and frame.fields.get("text") == "here"

    wait_for("the line behind the flood", arrived, LIMIT_S, every_s=0)
    stuck.close()


def test_a_client_that_only_asks_is_let_go_before_its_answers_fill_the_memory(job: Job) -> None:
    job.status = {"phase": "x" * (1 << 20)}
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT_S)
        client.connect(str(job.path))
        client.sendall(encode("look") * 100)
        came = 0
        while data := client.recv(1 << 20):
            came += len(data)
    assert came < 2 * MAX_FRAME


def test_who_reads_too_slowly_is_told_how_many_lines_went_by() -> None:
    scrollback = Scrollback()
    position = scrollback.tail(0)
    for number in range(KEPT + 10):
        scrollback.take(said(f"{number}\n"))
    page = scrollback.after(position, KEPT * 2)
    assert (page.missed, len(page.events)) == (10, KEPT)
    assert scrollback.after(page.position, 5).events == ()


def test_requests_reach_the_job_as_signals_would(job: Job) -> None:
    client, events = job.connect()
    client.send("stop", signal="SIGINT", force=False, by="a test")
    client.send("look")
    assert take(events, 1)[0].fields == {"status": {"phase": "run"}}
    assert job.asked == [(2, False, "a test")]
    client.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        struct.pack("!I", MAX_REQUEST + 1),
        struct.pack("!I", 3) + b"[]\n",
        encode("stop", signal="SIGKILL"),
        encode("stop", signal=7),
        encode("attach", lines="many"),
        encode("reboot"),
    ],
)
def test_nonsense_ends_its_own_connection_and_nothing_else(job: Job, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(LIMIT_S)
        raw.connect(str(job.path))
        raw.sendall(data + b"\n" * 8)
        while raw.recv(4096):
            pass
    client, _ = job.connect()
    client.close()
    assert job.asked == []


@given(st.binary(max_size=200))
def test_random_bytes_are_frames_or_errors(data: bytes) -> None:
    try:
        ControlDecoder(MAX_REQUEST).feed(data)
    except ControlError:
        return


@given(st.lists(st.integers(min_value=1, max_value=30)))
def test_frames_arrive_however_they_are_cut(cuts: list[int]) -> None:
    data = encode("attach", lines=3) + encode("stop", by="\udcff€")
    decoder = ControlDecoder(MAX_REQUEST)
    frames = []
    for cut in cuts:
        frames += decoder.feed(data[:cut])
        data = data[cut:]
    frames += decoder.feed(data)
    assert frames == [Frame("attach", {"lines": 3}), Frame("stop", {"by": "\udcff€"})]


def test_a_socket_that_was_removed_comes_back(job: Job) -> None:
    job.path.unlink()
    job.path.parent.rmdir()
    wait_for("the socket", job.path.exists, LIMIT_S)
    client, _ = job.connect()
    client.close()


def test_a_stale_socket_is_told_and_does_not_hinder_a_new_job(tmp_path: Path) -> None:
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with pytest.raises(ControlLost, match="nothing is listening"):
        connect(path, queue.SimpleQueue())
    job = Job(path)
    client, _ = job.connect()
    client.close()
    job.server.close(0, ())


def test_a_peer_that_is_no_launcher_is_told_apart(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen(1)
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        mine = socket.socket(socket.AF_UNIX)
        mine.connect(str(tmp_path / "s"))
        theirs, _ = other.accept()
        theirs.sendall(encode("welcome", version=99))
        from paddle_cluster.control.control_client import welcome

        client = ControlClient(mine, events)
        with pytest.raises(ControlLost, match="version 99"):
            welcome(events.get(timeout=LIMIT_S), tmp_path / "s")
        client.close()
        theirs.close()


def test_stacks_come_to_who_asked_for_them(job: Job) -> None:
    client, events = job.connect()
    other, nothing = job.connect()
    client.send("stacks", procs=["trainer-1", "trainer-2"])
    frames = take(events, 2)
    other.send("look")
    assert [frame.kind for frame in take(nothing, 1)] == ["status"]
    for one in (client, other):
        one.close()
    assert [(frame.kind, frame.fields["process"], frame.fields["text"]) for frame in frames] == [
        ("stacks", "trainer-1", "trainer-1 is here"),
        ("stacks", "trainer-2", "trainer-2 is here"),
    ]


@pytest.mark.parametrize("procs", [["trainer-0"] * (MAX_STACKS + 1), "trainer-0", [7]])
def test_other_requests_for_stacks_are_refused(job: Job, procs: object) -> None:
    client, events = job.connect()
    client.send("stacks", procs=procs)
    frames = take(events, 1)
    client.close()
    assert frames[0].kind == "refused"
