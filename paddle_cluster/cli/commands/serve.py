# SPDX-License-Identifier: Apache-2.0
"""`paddle.py serve`: follows growing tables of a running job and answers lookups over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from paddle_cluster.cli import runtime_command
from paddle_cluster.errors import ExitCode
from paddle_cluster.system.installation import PROGRAM

USAGE = f"""\
{PROGRAM} serve --servers=HOST:PORT,... [--tables=NAME,...] [--within_s=S]
      [--max_bytes=N] [--host=ADDRESS] [--port=N] [--token_file=FILE]
      [--timeout_s=S]

Keeps a copy of a running job's growing tables and answers lookups over HTTP.
If the copy is older than --within_s seconds (5), lookups fail with 503.

  --servers=HOST:PORT,...  the job's servers, in order; key: PADDLE_JOB_KEY
  --tables=NAME,...        default: all growing tables
  --max_bytes=N            memory limit for the copy of each table
  --host=ADDRESS           default 127.0.0.1; any other address needs a token
  --port=N                 default 8500; 0: any free port
  --token_file=FILE        requests need its content as "Authorization: Bearer";
                           default: the variable PADDLE_SERVE_TOKEN
"""


def run(argv: Sequence[str]) -> ExitCode:
    """Run `paddle serve` with these arguments in a separate process and return its exit code."""
    return runtime_command.perform("serve", argv)
