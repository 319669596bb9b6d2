# SPDX-License-Identifier: Apache-2.0
"""The process named for a port is the one that keeps this address of it busy."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from paddle.pserver.wire.address import owner_text
from paddle_node.linux.ports import owner_of

ALL = socket.inet_ntoa(bytes(4))
HOLD = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=int(sys.argv[3]))
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def held(address: str, port: int = 0) -> Iterator[tuple[int, int]]:
    """The pid of another process that listens at an address, and its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    command = [sys.executable, "-c", HOLD, address, str(port), str(int(family))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.stdin.close()


def test_of_two_processes_with_one_port_the_one_at_the_address_is_named() -> None:
    with held("127.0.0.2") as (first, port), held("127.0.0.3", port) as (second, _):
        for address, pid in (("127.0.0.2", first), ("127.0.0.3", second)):
            owner = owner_of(address, port)
            assert owner is not None
            assert (owner.pid, owner.uid) == (pid, os.geteuid())
            assert owner_text(f"{address}:{port}").startswith(f": held by pid {pid} ({sys.executable} -c")
        assert owner_of("127.0.0.4", port) is None
        assert owner_text(f"127.0.0.4:{port}") == ""


@pytest.mark.parametrize("asked", ["127.0.0.2", ALL, ""])
def test_a_process_that_listens_on_all_addresses_is_named_for_each(asked: str) -> None:
    with held(ALL) as (pid, port):
        owner = owner_of(asked, port)
        assert owner is not None
        assert owner.pid == pid


def test_a_descriptor_that_is_closed_during_the_search_hides_no_other() -> None:
    with open(os.devnull) as first, socket.create_server(("127.0.0.1", 0)) as listener:
        first.close()  # its number is that of the search's own listing, which ends before the link is read
        owner = owner_of("127.0.0.1", listener.getsockname()[1])
        assert owner is not None
        assert owner.pid == os.getpid()


def test_a_server_on_all_addresses_is_kept_from_its_port_by_any_of_them() -> None:
    with held("127.0.0.2") as (pid, port):
        assert owner_text(f"*:{port}").startswith(f": held by pid {pid} ")


def test_an_address_of_ipv6_in_brackets_is_read() -> None:
    with ExitStack() as stack:
        try:
            pid, port = stack.enter_context(held("::1"))
        except ValueError:
            pytest.skip("no IPv6 here")
        assert owner_text(f"[::1]:{port}").startswith(f": held by pid {pid} ")
