# SPDX-License-Identifier: Apache-2.0
"""`paddle.py dashboard [JOB] [--port=N]`: serves a web page that shows all jobs of this user."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import urlencode

from paddle_cluster.cli import command_arguments
from paddle_cluster.control import store
from paddle_cluster.dashboard.job_board import JobBoard
from paddle_cluster.dashboard.server import DashboardServer
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.screen.writer import show
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import places

USAGE = f"""\
{PROGRAM} dashboard [JOB] [--port=N]

Serves a web page with your jobs on this machine: nodes, processes, cost, the
merged log, why a job failed, and a button that stops a job. Prints its address
and serves it until Ctrl+C, which stops no job. With JOB (a name, an id,
or the beginning or end of one) the address opens that job.

  --port=N      port on 127.0.0.1 (default: any free port)

Keep the address private: it is the page's only protection. From another
machine: ssh -L N:127.0.0.1:N THIS-MACHINE, then open the address there.
"""
MOST = 65535


def run(argv: Sequence[str]) -> ExitCode:
    """Serve the dashboard until a signal arrives; return 0.

    Raises:
        UsageError: an argument is invalid, no job matches, or the port is in use.
    """
    given = command_arguments.read("dashboard", argv, USAGE)
    port = command_arguments.whole_number("dashboard", given, "--port", 0)
    if port > MOST:
        raise UsageError(f"dashboard: --port: expected a port from 0 to {MOST}, got {port}")
    if (given.job or "").isdecimal() and len(given.job or "") < 6:
        raise UsageError(f"dashboard: {given.job} is not a job; did you mean --port={given.job}?")
    where = places(os.environ)
    job = store.find(where, given.job) if given.job is not None else None
    try:
        server = DashboardServer(JobBoard(where), port)
    except OSError as error:
        raise UsageError(
            f"dashboard: cannot listen on 127.0.0.1:{port} ({error.strerror}); omit --port to use a free port"
        ) from error
    try:
        show(f"{server.address}{'?' + urlencode({'job': job.job_id}) if job else ''}")
        show(
            "keep this address private: anyone who has it can see and stop your jobs. Ctrl+C "
            "closes the page, not the jobs"
        )
        server.serve_forever(poll_interval=1.0)
    finally:
        server.server_close()
    return ExitCode.DONE
