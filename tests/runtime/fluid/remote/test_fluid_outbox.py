# SPDX-License-Identifier: Apache-2.0
"""What a run sends: large values leave while it computes, each one time, and small ones with the last message."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from paddle.errors import PserverError
from paddle.fluid.remote.outbox import EARLY_BYTES, Outbox, Parcel
from tests.cluster.deadline import wait_for

DEADLINE_S = 20.0


class Wire:
    """Takes parcels, one at a time as soon as `room` allows."""

    def __init__(self, room: int = 1000, error: Exception | None = None) -> None:
        self.came: list[Parcel] = []
        self.room, self.error = threading.Semaphore(room), error

    def push(self, parcel: Parcel) -> None:
        assert self.room.acquire(timeout=DEADLINE_S)
        if self.error is not None:
            raise self.error
        self.came.append(parcel)

    @property
    def names(self) -> list[str]:
        return [name for parcel in self.came for values in parcel.values.values() for name in values]


def bytes_of(count: int) -> np.ndarray:
    return np.zeros(count, np.uint8)


def begun(wire: Wire, early: tuple[int, ...] = (0,)) -> Outbox:
    outbox = Outbox(wire.push)
    outbox.begin(early)
    return outbox


def test_a_large_value_leaves_before_the_step_is_over() -> None:
    wire = Wire()
    outbox = begun(wire)
    outbox.put(0, "large", bytes_of(EARLY_BYTES))
    wait_for("the value", lambda: wire.names == ["large"], DEADLINE_S)
    assert not outbox.is_empty
    outbox.put(0, "small", bytes_of(1))
    last = outbox.take()
    assert (list(last.values[0]), last.is_first, wire.came[0].is_first) == (["small"], False, True)


def test_a_box_is_empty_after_its_step_and_after_a_run_that_failed() -> None:
    outbox = begun(Wire())
    emptied = []
    for empty in (outbox.take, outbox.drop):
        outbox.put(0, "large", bytes_of(EARLY_BYTES))
        empty()
        emptied.append(outbox.is_empty)
    assert emptied == [True, True]


def test_small_values_and_those_for_servers_of_this_node_wait_for_the_last_message() -> None:
    wire = Wire()
    outbox = begun(wire)
    outbox.put(0, "small", bytes_of(EARLY_BYTES - 1))
    outbox.put(1, "near", bytes_of(EARLY_BYTES))
    last = outbox.take()
    assert last.is_first
    assert [*last.values] == [0, 1]
    assert not wire.came


@pytest.mark.parametrize("seed", range(5))
def test_each_value_leaves_one_time_in_its_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wire = Wire()
    outbox = begun(wire, (0, 1))
    for step in range(20):
        wire.came.clear()
        sizes = rng.integers(0, 2 * EARLY_BYTES, rng.integers(0, 12))
        sent: dict[int, list[str]] = {0: [], 1: [], 2: []}
        for at, size in enumerate(sizes):
            server = int(rng.integers(3))
            sent[server].append(f"{step}.{at}")
            outbox.put(server, sent[server][-1], bytes_of(size))
        parcels = [outbox.take()]
        parcels = [*wire.came, *parcels]
        assert [each.is_first for each in parcels] == [True] + [False] * (len(parcels) - 1)
        for server, names in sent.items():
            assert [name for each in parcels for name in each.values.get(server, {})] == names


def test_what_gathers_meanwhile_goes_in_one_message() -> None:
    wire = Wire(room=0)
    outbox = begun(wire)
    for at in range(5):
        outbox.put(0, str(at), bytes_of(EARLY_BYTES))
    wire.room.release()
    wire.room.release()
    wait_for("all", lambda: len(wire.names) == 5, DEADLINE_S)
    assert len(wire.came) == 2
    outbox.take()


@pytest.mark.parametrize("where", ["put", "take"])
def test_what_cannot_be_sent_is_an_error_of_the_run(where: str) -> None:
    wire = Wire(error=PserverError("refused"))
    outbox = begun(wire)
    outbox.put(0, "large", bytes_of(EARLY_BYTES))

    def again() -> None:
        while True:
            outbox.put(0, "large", bytes_of(EARLY_BYTES))

    with pytest.raises(PserverError, match="refused"):
        (again if where == "put" else outbox.take)()


def test_what_a_failed_run_left_is_forgotten_and_the_next_parcel_is_the_first_of_its_step() -> None:
    wire = Wire(room=0)
    outbox = begun(wire)
    outbox.put(0, "old", bytes_of(EARLY_BYTES))  # on its way
    outbox.put(0, "older", bytes_of(EARLY_BYTES))
    outbox.drop()
    outbox.begin([0])
    outbox.put(0, "new", bytes_of(EARLY_BYTES))
    for _ in range(3):
        wire.room.release()
    last = outbox.take()
    first_of_new = next(each for each in [*wire.came, last] if "new" in each.values.get(0, {}))
    assert first_of_new.is_first
    assert "older" not in wire.names or wire.came[0].values[0].keys() == {"old", "older"}


def test_a_box_sends_early_again_after_an_error() -> None:
    wire = Wire(error=PserverError("refused"))
    outbox = begun(wire)

    def put_on() -> None:
        while True:
            outbox.put(0, "large", bytes_of(EARLY_BYTES))

    with pytest.raises(PserverError, match="refused"):
        put_on()
    wire.error = None
    outbox.begin([0])
    outbox.put(0, "next", bytes_of(EARLY_BYTES))
    wait_for("the value", lambda: wire.names == ["next"], DEADLINE_S)
    outbox.take()
