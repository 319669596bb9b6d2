# SPDX-License-Identifier: Apache-2.0
"""`paddle.py tables list|export|import`: exports and imports growing tables of a running job or of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from paddle_cluster.cli import runtime_command
from paddle_cluster.errors import ExitCode
from paddle_cluster.system.installation import PROGRAM

USAGE = f"""\
{PROGRAM} tables list [--servers=HOST:PORT,...] [--checkpoint=DIR]
      [--batch=N] [--timeout_s=S] [--json]
{PROGRAM} tables export --table=NAME --to=DIR [--since=BATCH] [--states]
      [--format=safetensors|npz|parquet] and the options of list
{PROGRAM} tables import FILE --table=NAME --to=DIR [--key=NAME]
      [--format=FORMAT]

Lists growing tables; exports their rows into a new directory, one file per
server, while training continues; or creates such a directory from another
program's file. GrowingTable(start=DIR) starts from it.

  --servers=HOST:PORT,...  servers of a running job, in order; default: the
                           variable PADDLE_PSERVERS_IP_PORT_LIST; key:
                           PADDLE_JOB_KEY
  --checkpoint=DIR         read checkpoints in this directory instead of a job
  --since=BATCH            only rows that changed after this batch, or after an
                           exported directory
  --states                 include the optimizer's states
  --key=NAME               the weight's name, if the file has several
"""


def run(argv: Sequence[str]) -> ExitCode:
    """Run `paddle tables` with these arguments in a separate process and return its exit code."""
    return runtime_command.perform("tables", argv)
