# SPDX-License-Identifier: Apache-2.0
"""What an agent tells that processes and its node use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_node.contract.facts import NodeUsage, ProcessUsage
from paddle_node.contract.records import read
from tests.runtime.paddle_node.agent.driven_node import Node

MIB = 1 << 20
FAMILY = """
import signal, subprocess, sys
spends = "import time\\nheld = bytearray(64 << 20)\\nwhile True: held.count(0, 0, 4 << 20), time.sleep(0.05)"
subprocess.Popen([sys.executable, "-c", spends])
signal.pause()
"""
TELLS = "#!/bin/sh\nprintf '0, 57, 1024, 81559\\n1, [N/A], 0, 81559\\n'; exec tail -f /dev/null\n"


def test_usage_is_of_a_process_with_its_children_of_the_node_and_of_its_gpus(
    make_node: Callable[..., Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(TELLS)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    node = make_node()
    node.greet()
    node.adopt()
    node.python("import signal; signal.pause()", proc="pserver-0", log="log/pserver.log")
    node.python(FAMILY)
    for _ in range(2):  # rates are there from the second one
        usage = read(NodeUsage, node.expect("usage").fields, "usage", "the agent")
    processes = {name: ProcessUsage(percent, size) for name, percent, size in usage.processes}
    assert processes.keys() == {"pserver-0", "trainer-0"}
    assert processes["trainer-0"].memory_bytes > processes["pserver-0"].memory_bytes + 60 * MIB
    assert processes["trainer-0"].cpu_percent > processes["pserver-0"].cpu_percent
    assert 0 < usage.memory_bytes < usage.memory_total_bytes
    assert usage.cpu_percent is not None
    assert 0 < usage.cpu_percent <= 100
    assert usage.received_bytes_per_s is not None
    assert usage.gpus == ((57.0, 1024 * MIB, 81559 * MIB), (None, 0, 81559 * MIB))
    node.link.send("stop", procs=None, grace_s=0.0)
    assert node.expect("stopped").fields["left"] == []
