# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from unittest.mock import Mock

import pytest
from paramiko.ssh_exception import SSHException

from launcher.bootstrap import Bootstrap
from launcher.ssh_stream import SshStream


def test_a_connection_that_hangs_while_it_is_told_to_go_on_sending_is_broken() -> None:
    channel = Mock(in_window_threshold=1 << 18)
    channel.fileno.return_value = 7
    channel.recv_stderr_ready.return_value = False
    channel.recv.side_effect = SSHException("Key-exchange timed out waiting for key negotiation")
    stream = SshStream(channel, Bootstrap("n", b""), lambda: None)
    with pytest.raises(ConnectionError, match="the connection ended: Key-exchange timed out"):
        stream.read(1 << 18)
