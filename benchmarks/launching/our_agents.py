# SPDX-License-Identifier: Apache-2.0
"""A program that starts our agents on every host of a conf.py and prints the duration as JSON.

our_agents.py CONF WORKSPACE; run it from the repository's root. The clock runs from the first connection
to the last agent's hello, in a process that has imported what it needs and has read the packed agent from its cache.
"""

from __future__ import annotations

import time

BEGUN = time.monotonic()

import json  # noqa: E402 - the imports are what is measured
import queue  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

import paddle_cluster.cli.main  # noqa: E402 - all that paddle.py imports
import paddle_cluster.job.job  # noqa: E402
import paddle_cluster.ssh.login  # noqa: E402, F401
from paddle_cluster.config import arguments  # noqa: E402
from paddle_cluster.config.resolve import resolve  # noqa: E402
from paddle_cluster.connection.link import Link, MessageEvent  # noqa: E402
from paddle_cluster.engines.engine import entry  # noqa: E402
from paddle_cluster.nodes.connector import Connected, Connector, prepare  # noqa: E402
from paddle_cluster.plan import plan  # noqa: E402

IMPORTED = time.monotonic()
LIMIT_S = 120.0


def main(conf: str, workspace: str) -> None:
    """Start the agents, print the duration, and end them."""
    given = arguments.parse([f"--conf={conf}", f"--job_dispatch_package={workspace}", "--mode=collective"])
    resolved = resolve(given, {})
    planned = plan.build(resolved, "JOB20260101000000-bec0de")
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine = entry(planned.settings).of(planned, is_job=False)
    connector = Connector(events, engine)
    prepare(planned, engine).join()
    begun, cpu_begun = time.monotonic(), time.process_time()
    for node in planned.nodes:
        connector.connect(node.node_id, node.label, node.host, node.python)
    links: list[Link] = []
    greeted: set[int] = set()
    while len(greeted) < len(planned.nodes):
        event = events.get(timeout=LIMIT_S)
        if isinstance(event, Connected):
            node = planned.node(event.node_id)
            links.append(Link(node.node_id, node.label, event.stream, events, connector.reactor))
            links[-1].send(
                "hello",
                job_id=planned.job_id,
                node_id=node.node_id,
                lease_s=resolved.limits.lease_s,
                root_dir=node.root_dir,
                python=node.python,
            )
        elif isinstance(event, MessageEvent) and event.kind == "hello":
            greeted.add(event.node_id)
        else:
            raise RuntimeError(f"an agent did not start: {event}")
    ended, cpu_s = time.monotonic(), time.process_time() - cpu_begun
    times = {"import_s": IMPORTED - BEGUN, "start_s": ended - begun}
    print(json.dumps({**times, "before_cpu_s": cpu_begun, "cpu_s": cpu_s / len(planned.nodes)}))
    connector.close()
    for link in links:
        link.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
