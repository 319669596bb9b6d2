# SPDX-License-Identifier: Apache-2.0
"""`paddle.py doctor`: runs only a job's preflight checks. Changes nothing on any machine and needs no workspace."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime

from paddle_cluster.cli import cluster_of
from paddle_cluster.config.resolve import resolve
from paddle_cluster.errors import ExitCode
from paddle_cluster.nodes import doctor_text, visit
from paddle_cluster.plan import plan
from paddle_cluster.screen.writer import answer, columns
from paddle_cluster.system.installation import PROGRAM

USAGE = f"""\
{PROGRAM} doctor [--conf=FILE] [--hosts=HOST[,HOST]] [--hostfile=FILE]
      [--port=N] [--nics=NAMES] [--mode=v2|fluid|collective]
      [--job_workspace=DIR] [--json]

Checks every node of conf.py as a job would before it starts, and changes
nothing: login and host key, Python and modules, disks, clock, addresses, routes
between the nodes, ports, limits, GPUs. Exit status: 0, or 3 if a check failed.

  --job_workspace=DIR   also check this directory on the nodes
  --json                print JSON

Also accepts the other job options that affect the checks:
--allow_mismatch, --accept_new_host_keys, --nproc_per_node, --ports_num, ...
"""


def run(argv: Sequence[str]) -> ExitCode:
    """Run the preflight checks on all nodes and print the result; return 0, or 3 if a check found a problem.

    Raises:
        UsageError: an argument is not valid for doctor.
        ConfError: conf.py is invalid.
    """
    as_data = "--json" in argv
    given = cluster_of.job_arguments("doctor", [one for one in argv if one != "--json"])
    resolved = resolve(given, os.environ)
    planned = plan.build(resolved, plan.new_job_id(datetime.now(), os.urandom(plan.ENTROPY_BYTES)))
    begun = time.monotonic()
    examined = visit.examine(planned, lambda phase: None)
    took_s = time.monotonic() - begun
    if as_data:
        answer(doctor_text.document(examined, took_s))
    else:
        answer("\n".join(doctor_text.lines(examined, took_s, columns())))
    return ExitCode.PREFLIGHT if examined.result.problems else ExitCode.DONE
