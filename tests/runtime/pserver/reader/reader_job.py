# SPDX-License-Identifier: Apache-2.0
"""The model of the jobs that readers look at."""

from __future__ import annotations

from tests.runtime.pserver.in_process_job import Model

MODEL = Model({"w": (70, 40), "b": (7,), "emb": (30, 3)}, sparse=["emb"], l2=0.01)
