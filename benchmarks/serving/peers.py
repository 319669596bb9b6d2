# SPDX-License-Identifier: Apache-2.0
"""Other ways to move a gradient to another process and values back, if they are installed."""

from __future__ import annotations

import importlib.util

from benchmarks.report import Report

PACKAGES = ("ray", "torch", "mpi4py")


def measure(report: Report, size: int, turns: int) -> None:
    """Name those that are lacking."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            report.lack(f"{package}_40MB_w1", f"{package} is not installed")
