# SPDX-License-Identifier: Apache-2.0
"""What the launcher goes by when it calls an agent that waits, and how long it listens to somebody else there."""

from __future__ import annotations

import os
import socket
import ssl
import time
from pathlib import Path

import pytest

from paddle_cluster.connection.tls_stream import TlsStream
from paddle_cluster.plan.plan import Plan
from paddle_cluster.ssh.residents import Residents
from paddle_cluster.system import job_certificate
from tests.launcher.planning import Planned


def offered(plan: Plan, listener: socket.socket) -> Residents:
    """A job's, whose node was logged in to and says that an agent will wait there."""
    residents = Residents(plan)
    assert residents.wish(0)
    residents.offered(0, "127.0.0.1", listener.getsockname()[1])
    return residents


@pytest.mark.parametrize("changed", ["", "config", "known_hosts"])
def test_what_changes_while_a_job_runs_makes_the_next_one_log_in(
    tmp_path: Path, planned: Planned, changed: str
) -> None:
    routes = [tmp_path / "config", tmp_path / "known_hosts"]
    for path in routes:
        path.write_text("# as it was\n")
    known = f"SSH_CONFIG = {str(routes[0])!r}\nSSH_KNOWN_HOSTS = {str(routes[1])!r}\n"
    plan = planned("HOSTS = ['root@a']\nRESIDENT_S = 60\n" + known, PADDLE_STATE_DIR=str(tmp_path / "jobs"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        residents = offered(plan, listener)
        if changed:  # the agent waits where the login went before
            (tmp_path / changed).write_text("Host a\n  HostName b\n")
        residents.keep()
    later = Residents(plan)
    stream, remark = later.connect(0)
    assert stream is None
    assert ("have changed" if changed else "no resident agent at 127.0.0.1") in remark
    assert later.wait_for_all  # there was a record: until a login is needed, its library is not imported


def test_a_peer_that_speaks_without_end_is_heard_until_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\x16\x03\x03\x40\x00" + bytes(1000))  # the beginning of a record, and never its end
        certificate = ssl.PEM_cert_to_DER_cert(job_certificate.make().certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        os.set_blocking(theirs.fileno(), False)
        with pytest.raises(TimeoutError, match="the handshake timed out"):
            TlsStream(ours, context, server_side=False).call(certificate, b"", time.monotonic())
