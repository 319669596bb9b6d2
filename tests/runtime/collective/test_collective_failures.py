# SPDX-License-Identifier: Apache-2.0
"""Ranks that vanish, leave early, do something else or never come: an error names them, and nobody hangs."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paddle.collective import CollectiveError, Membership, PeerDiffers, PeerLate, PeerLost, Ranks, connect
from paddle.collective.connection.calls import call, listen
from paddle.collective.connection.mesh import connected
from paddle.collective.connection.rendezvous import meet
from paddle.collective.connection.stream import finish
from paddle.errors import ConfigError, PortBusy
from tests.runtime.collective.ranks import KEY, at_once, endpoints, failure, members

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
WAYS = ["auto", "tcp"]
OTHER = """
import sys
import numpy as np
from paddle.collective import Membership, connect
way, key, *everyone = sys.argv[1:]
group = connect(Membership.of(2, everyone, job_key=key, timeout_s=30, way=way))
group.barrier()
print("here", flush=True)
sys.stdin.read()
"""


def errors_of(everyone: list[Membership], act: Callable[[Ranks], object]) -> list[CollectiveError]:
    """Connect, let each rank act until it fails, and return how."""

    def run(me: Membership) -> CollectiveError:
        with connect(me) as group:
            return failure(lambda: act(group))

    return at_once([partial(run, me) for me in everyone])


def refusal(me: Membership) -> CollectiveError:
    """Return how connecting fails."""
    return failure(lambda: connect(me))


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_rank_is_named_by_all_others(way: str) -> None:
    everyone = members(3, way=way)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, way, KEY, *everyone[0].endpoints],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(RUNTIME)},
        text=True,
    ) as other:

        def act(group: Ranks) -> None:
            group.barrier()
            assert other.stdout is not None
            if group.rank == 0:
                other.stdout.readline()
                other.kill()
            group.all_reduce(np.ones(100_000))

        try:
            errors = errors_of(everyone[:2], act)
        finally:
            other.kill()
    assert [(type(error), error.rank) for error in errors] == [(PeerLost, 2)] * 2
    assert all(f"rank 2 ({everyone[0].endpoints[2]}) was lost" in str(error) for error in errors)


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_with_fewer_batches_is_named(way: str) -> None:
    def act(group: Ranks) -> None:
        batches = 2 if group.rank == 1 else 3
        for _ in range(batches):
            group.all_reduce(np.ones(50_000, np.float32))
        if group.rank == 1:
            group.close()
            raise PeerDiffers("left", 1)

    errors = errors_of(members(3, way=way), act)
    assert [(type(error), error.rank) for error in errors] == [(PeerDiffers, 1)] * 3
    for error in (errors[0], errors[2]):
        assert "has left after 2 operations" in str(error)
        assert "the same number of batches" in str(error)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_rank_with_another_size_is_told_apart(way: str, size: int) -> None:
    def act(group: Ranks) -> None:
        group.all_reduce(np.ones(size + group.rank, np.float32))

    for error in errors_of(members(2, way=way), act):
        assert isinstance(error, PeerDiffers)
        assert "ranks must run the same program" in str(error)
        assert error.rank in (0, 1)


def test_another_program_is_noticed_before_the_first_step() -> None:
    errors = errors_of(members(3), lambda group: group.agree("program", f"size {group.rank // 2}"))
    texts = {str(error) for error in errors}
    assert len(texts) == 1
    assert re.match("rank 2 and rank 0 .* program:", texts.pop())


def test_a_late_rank_is_named_by_all_others() -> None:
    """Three groups, which wait simultaneously."""

    def errors_of_group(way: str, late: int) -> list[CollectiveError]:
        go_on = threading.Event()

        def act(group: Ranks) -> None:
            if group.rank == late:
                go_on.wait(30.0)
            try:
                group.all_reduce(np.ones(100_000))
            finally:
                go_on.set()

        return errors_of(members(3, way=way, timeout_s=6.0), act)

    cases = [("auto", 1), ("tcp", 1), ("tcp", 0)]
    groups = at_once([partial(errors_of_group, *case) for case in cases])
    for (_, late), errors in zip(cases, groups, strict=True):
        assert [error.rank for error in errors] == [late] * 3
        waited = [error for rank, error in enumerate(errors) if rank != late]
        assert all(
            isinstance(error, PeerLate) and f"waited 6 s for rank {late}" in str(error) for error in waited
        )


@pytest.mark.skipif(sys.platform != "linux", reason="needs TCP_USER_TIMEOUT")
@pytest.mark.parametrize("wire", ["curve", "plain"])
def test_a_rank_that_takes_no_data_is_waited_for_as_long_as_the_group_waits(wire: str) -> None:
    """To the kernel it looks like one that is lost, which the connections for news find out sooner."""

    def limits(me: Membership) -> tuple[int, int]:
        listener = listen(me) if me.rank else None
        with ExitStack() as opened:
            if listener is not None:
                opened.enter_context(listener)
            met = meet(me)
            found = []
            for links in (connected(me, [0, 1], met, listener), met.links):
                (stream,) = links.values()
                opened.callback(stream.close)
                found.append(stream.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
            return found[0], found[1]

    everyone = members(2, way="tcp", timeout_s=100.0, wire=wire)
    assert at_once([partial(limits, me) for me in everyone]) == [(100_000, 25_000)] * 2


def test_a_group_that_failed_says_the_same_again() -> None:
    def act(group: Ranks) -> None:
        first = failure(lambda: group.all_reduce(np.ones(2 + group.rank)))
        assert failure(group.barrier) is first
        group.close()
        raise first

    errors_of(members(2), act)


def test_a_closed_group_refuses_to_work() -> None:
    group = connect(members(1)[0])
    group.close()
    assert "closed" in str(failure(group.barrier))


def test_ranks_that_do_not_come_to_the_meeting_are_named() -> None:
    everyone = members(3, timeout_s=5.0)
    errors = at_once([partial(refusal, me) for me in everyone[:2]])
    assert all(
        f"rank 2 ({everyone[0].endpoints[2]}) did not connect within 5 s" in str(error) for error in errors
    )
    assert isinstance(failure(lambda: connect(members(2, timeout_s=0.2)[1])), PeerLate)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = (each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)
    return [text for text in found if " is waiting for " in text]


def test_both_sides_of_a_meeting_that_does_not_come_about_say_so_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    everyone = members(2, timeout_s=1.0)
    for me in everyone:
        assert isinstance(failure(partial(connect, me)), PeerLate)
    first, second = (me.endpoints[me.rank] for me in everyone)
    told = warnings_of(caplog)
    assert told[0].startswith(f"rank 0 at {first} is waiting for rank 1 ({second}) (waited ")
    assert told[-1].startswith(f"rank 1 is waiting for rank 0 at {first}: connection refused (waited ")
    assert len(told) > 2, "told once, and not again"


def test_a_name_that_nobody_knows_is_told_by_who_calls_it(caplog: pytest.LogCaptureFixture) -> None:
    everyone = ("no-such-host.invalid:6170", *endpoints(1))
    error = failure(lambda: connect(Membership.of(1, everyone, job_key=KEY, timeout_s=1.0)))
    assert isinstance(error, PeerLate)
    assert "name" in str(error)
    assert "rank 1 is waiting for rank 0 at no-such-host.invalid:6170: " in warnings_of(caplog)[0]


@pytest.mark.parametrize("wire", ["curve", "plain"])
def test_something_else_at_the_place_of_a_rank_is_an_error_at_once(wire: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def speak() -> None:
            with other.accept()[0] as guest:
                guest.sendall(b"SSH-2.0-OpenSSH_9.6 Ubuntu\r\n")
                guest.recv(1)

        thread = threading.Thread(target=speak)
        thread.start()
        everyone = (f"127.0.0.1:{other.getsockname()[1]}", *endpoints(1))
        error = failure(lambda: connect(Membership.of(1, everyone, job_key=KEY, wire=wire)))
        thread.join()
    assert not isinstance(error, PeerLate)
    assert f"rank 0 at {everyone[0]}: " in str(error)
    assert ("not a rank of a collective job; it sent b'SSH-2.0" in str(error)) == (wire == "plain")


@pytest.mark.parametrize("wire", ["curve", "plain"])
def test_a_process_without_the_jobs_key_is_refused(wire: str, caplog: pytest.LogCaptureFixture) -> None:
    everyone = members(2, timeout_s=5.0, wire=wire)
    stranger = Membership.of(1, everyone[0].endpoints, job_key="ab" * 32, wire=wire, timeout_s=5.0)
    with caplog.at_level(logging.WARNING):
        errors = at_once([partial(refusal, me) for me in (everyone[0], stranger)])
    assert isinstance(errors[0], PeerLate)
    assert "key" in str(errors[1])
    assert "refused" in caplog.text


def test_a_rank_with_other_endpoints_is_refused() -> None:
    everyone = members(3)
    other = replace(everyone[2], endpoints=(*everyone[2].endpoints[:1], *endpoints(2)))
    errors = at_once([partial(refusal, me) for me in (everyone[0], other)])
    assert all("rank 2 has different endpoints" in str(error) and error.rank == 2 for error in errors)


def test_a_taken_port_and_a_foreign_address_are_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortBusy, match=f"rank 0 cannot listen at 127.0.0.1:{port}"):
            connect(Membership.of(0, (f"127.0.0.1:{port}", "127.0.0.1:1")))
    with pytest.raises(ConfigError, match="an address of the machine"):
        connect(Membership.of(0, ("192.0.2.1:6170", "127.0.0.1:1")))


def test_strangers_at_the_meeting_do_not_disturb() -> None:
    everyone = members(2)

    def stranger() -> None:
        host, port = everyone[0].endpoints[0].split(":")
        for _ in range(200):
            try:
                with socket.create_connection((host, int(port)), timeout=5) as sock:
                    sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                return
            except OSError:
                threading.Event().wait(0.01)

    def run(me: Membership) -> None:
        with connect(me) as group:
            group.barrier()

    first = threading.Thread(target=run, args=(everyone[0],))
    first.start()
    stranger()
    run(everyone[1])
    first.join(30.0)
    assert not first.is_alive()


@pytest.mark.parametrize("note", [b'{"rank": 1e999, "node": "", "endpoints": ""}', b"[" * 100_000])
def test_a_note_that_means_nothing_does_not_end_the_meeting(note: bytes) -> None:
    everyone = members(2, job_key=None)

    def run(me: Membership) -> None:
        with connect(me) as group:
            group.barrier()

    def stranger_first() -> None:
        with closing(call(everyone[1], 0, time.monotonic() + 10.0)) as stream:
            sent = stream.sending(len(note).to_bytes(4, "little") + note)
            finish(sent, stream.fileno(), time.monotonic() + 10.0)
            with pytest.raises(ConnectionError):
                finish(stream.taking(1), stream.fileno(), time.monotonic() + 30.0)
        run(everyone[1])

    acts: list[Callable[[], None]] = [partial(run, everyone[0]), stranger_first]
    at_once(acts)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:" + "9" * 5000, ".:6170"])
def test_an_endpoint_that_cannot_be_is_told(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"endpoint.*expected .*port|not a valid host name"):
        Membership.of(0, (endpoint, "127.0.0.1:6171"))


@pytest.mark.parametrize("text", ["nan", "inf", "0", "1e300"])
def test_a_deadline_that_cannot_be_waited_for_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        Membership.of(0, ("127.0.0.1:6170", "127.0.0.1:6171"), timeout_s=float(text))
