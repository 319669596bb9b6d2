# SPDX-License-Identifier: Apache-2.0
"""Agents that wait for the next job, as processes: who counts as one, which of two stays, what a visitor leaves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddle_cluster.system import job_certificate
from paddle_node.agent.processes import residents
from paddle_node.contract.frames import encode
from tests.cluster.deadline import wait_for
from tests.runtime.paddle_node.agent.relay.relay_nodes import dial

RUNTIME = Path(__file__).parents[5] / "runtime"
WAIT = f"""
import json, sys
sys.path.insert(0, {str(RUNTIME)!r})
from paddle_node.agent.resident import wait
wait(json.load(sys.stdin))
"""
IMPOSTOR = f"printf {residents.NAME.decode()} > /proc/$$/comm && echo && read line"
SUPERVISE = f"""
import os, sys
sys.path.insert(0, {str(RUNTIME)!r})
from paddle_node.agent.supervisor import supervise
alive, _held = os.pipe()
sinks = [os.open(os.devnull, os.O_WRONLY) for _ in range(2)]
sys.exit(7 if supervise(bytes.fromhex(sys.argv[1]), alive, *sinks) else 0)
"""
NOBODY = 65534
CERTIFICATE = job_certificate.make()
PATIENCE_S = 15

Waiting = tuple["subprocess.Popen[bytes]", int]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], Waiting]]:
    """Starts agents of one name."""
    begun = []

    def make() -> Waiting:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            number, port = listener.fileno(), int(listener.getsockname()[1])
            settings = {
                "listener": number,
                "certificate": CERTIFICATE.certificate,
                "key": CERTIFICATE.key,
                "wait_s": 60,
                "name": tmp_path.name,
            }
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", WAIT],
                stdin=subprocess.PIPE,
                env={residents.MARK: residents.mark(tmp_path.name, port, 60, str(tmp_path))},
                pass_fds=[number],
                start_new_session=True,
            )
            begun.append(process)
            assert process.stdin is not None
            process.stdin.write(json.dumps(settings).encode())
            process.stdin.close()
        return process, port

    yield make
    for process in begun:
        process.kill()
        process.wait()


def waiting(root_dir: Path) -> set[int]:
    return {one.process.pid for one in residents.find() if one.root_dir == str(root_dir)}


def test_of_two_agents_the_one_that_began_last_stays(tmp_path: Path, begin: Callable[[], Waiting]) -> None:
    first, _ = begin()
    os.kill(first.pid, signal.SIGSTOP)  # before it has looked for others
    last, _ = begin()
    wait_for("the last one", lambda: last.pid in waiting(tmp_path), PATIENCE_S)
    os.kill(first.pid, signal.SIGCONT)
    first.wait(PATIENCE_S)
    assert waiting(tmp_path) == {last.pid}


def test_a_launcher_that_goes_without_a_word_leaves_no_agent(begin: Callable[[], Waiting]) -> None:
    process, port = begin()
    with dial(("127.0.0.1", port), CERTIFICATE) as peer:
        peer.sendall(json.dumps({"nonce": "0" * 32, "wait_s": 60}).encode() + b"\n")
        assert peer.recv(1)  # an agent greets, and waits for an answer
    process.wait(PATIENCE_S)  # it goes when the agent has ended


@pytest.mark.parametrize("reconnects", [True, False])
def test_an_answer_that_nobody_reads_after_the_goodbye_does_not_prevent_a_resident_agent(
    tmp_path: Path, reconnects: bool
) -> None:
    key = {"at": f"paddle-{os.getpid()}-{tmp_path.name}", "word": "0" * 64, "spare_s": 5.0}
    hello = {"job_id": "JOB20261127000000-abcdef", "root_dir": str(tmp_path), "python": sys.executable}
    more = {"node_id": 0, "lease_s": 30.0, "resident": {}, "reconnect": key if reconnects else None}
    begun = encode("hello", {**hello, **more})
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, begun.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        os.write(agent.stdin.fileno(), encode("bye", {"grace_s": 0.0, "drain_s": 60.0}))
        received = b""
        while b"goodbye" not in received:
            received += (some := os.read(agent.stdout.fileno(), 1 << 16))
            assert some, received
        agent.stdout.close()  # as the launcher does on a goodbye, while a question of its own may be on the way
        with contextlib.suppress(BrokenPipeError):
            for question, fields in (("ping", {"seq": 1}), ("bye", {"grace_s": 0.0, "drain_s": 0.0})):
                os.write(agent.stdin.fileno(), encode(question, fields))
            agent.stdin.close()
        assert agent.wait(PATIENCE_S) == 7


def test_one_that_somebody_stopped_can_be_ended(tmp_path: Path, begin: Callable[[], Waiting]) -> None:
    process, _ = begin()
    wait_for("it", lambda: waiting(tmp_path), PATIENCE_S)
    os.kill(process.pid, signal.SIGSTOP)
    assert [one.end() for one in residents.find() if one.process.pid == process.pid] == [True]
    process.wait(PATIENCE_S)


@pytest.mark.parametrize("wait_s", ["60", "soon"])
def test_who_only_calls_himself_so_is_no_agent_of_this_user(tmp_path: Path, wait_s: str) -> None:
    mark = f"{residents.MARK}=name 7164 {wait_s} {tmp_path}"
    user = NOBODY if os.geteuid() == 0 else None
    if user is None and wait_s == "60":
        pytest.skip("takes root, who can read what others say of themselves")
    with subprocess.Popen(
        ["/usr/bin/env", mark, "/bin/sh", "-c", IMPOSTOR],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        user=user,
    ) as impostor:
        assert impostor.stdout is not None
        assert impostor.stdout.read(1) == b"\n"
        assert waiting(tmp_path) == set()
        impostor.kill()
