# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from paramiko.ssh_exception import SSHException

from paddle_cluster.connection.bootstrap import Bootstrap
from paddle_cluster.ssh.transport import SshStream


def test_a_connection_that_hangs_while_it_is_told_to_go_on_sending_is_broken() -> None:
    channel = Mock(in_window_threshold=1 << 18)
    channel.fileno.return_value = 7
    channel.recv_stderr_ready.return_value = False
    channel.recv.side_effect = SSHException("Key-exchange timed out waiting for key negotiation")
    stream = SshStream(channel, Bootstrap("n", b""), lambda: None)
    with pytest.raises(ConnectionError, match="the connection ended: Key-exchange timed out"):
        stream.read(1 << 18)


ROOT = Path(__file__).resolve().parents[3]


class _Flood:
    """A channel on which both streams never end; notes when it speaks to the node, as the library does."""

    in_window_threshold = 1 << 18
    eof_received = closed = False

    def __init__(self) -> None:
        self.has_spoken = False
        self._read = 0

    def settimeout(self, timeout_s: float) -> None:
        pass

    def fileno(self) -> int:
        return 7

    def recv_ready(self) -> bool:
        return True

    recv_stderr_ready = recv_ready

    def recv(self, size: int) -> bytes:
        self._read += size
        if self._read > self.in_window_threshold:
            self._read, self.has_spoken = 0, True
        return b"x" * size

    recv_stderr = recv


@pytest.mark.parametrize("limit", [1000, 1 << 15, 1 << 18])
def test_a_flood_on_standard_error_does_not_make_a_read_block_that_said_it_would_not(limit: int) -> None:
    channel = _Flood()
    stream = SshStream(channel, Bootstrap("n", b""), lambda: None)
    spoken = 0
    for _ in range(200):
        said_so, channel.has_spoken = stream.may_block(), False
        stream.read(limit)
        assert said_so or not channel.has_spoken
        spoken += channel.has_spoken
    assert spoken


NESTED = """
import struct, threading
from paddle_cluster.connection.carrier import Decoder
from paddle_cluster.ssh.transport import STACK_SIZE
from paddle_node.contract.frames import FrameError
from paddle_node.contract.opening import marker
def decode():
    for text in (b"[" * (1 << 20), b'{"a":' * (1 << 17)):
        try:
            Decoder("n").feed(marker("n") + struct.pack("!IQ", len(text), 0) + text)
        except FrameError as error:
            print(error)
threading.stack_size(STACK_SIZE)
thread = threading.Thread(target=decode)
thread.start()
thread.join()
"""


def test_nested_json_of_a_node_cannot_overflow_the_stack_of_a_connections_thread() -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "runtime")])
    done = subprocess.run(
        [sys.executable, "-c", NESTED],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.count("nested more than 64 ") == 2, done.stdout + done.stderr
