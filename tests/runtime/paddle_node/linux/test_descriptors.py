# SPDX-License-Identifier: Apache-2.0
"""Files in memory, and descriptors over a socket."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from paddle_node.linux import descriptors, proc


def test_a_file_in_memory_is_read_by_children_and_gone_afterwards() -> None:
    with descriptors.memory_file("some", b"content") as path:
        assert Path(path).read_bytes() == b"content"
        assert subprocess.run(["cat", path], capture_output=True).stdout == b"content"
    assert not Path(path).exists()


def test_descriptors_come_with_their_message_and_are_not_inherited() -> None:
    before = proc.open_descriptors()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert descriptors.is_our_user(ours)
        read, write = os.pipe()
        descriptors.send(ours, b"a pipe", [read, write])
        data, (their_read, their_write) = descriptors.receive(theirs, 100, 2)
        os.write(their_write, b"through")
        assert (data, os.read(read, 10)) == (b"a pipe", b"through")
        assert not os.get_inheritable(their_read)
        for fd in (read, write, their_read, their_write):
            os.close(fd)
    assert proc.open_descriptors() == before
