# SPDX-License-Identifier: Apache-2.0
"""Derives programs for training on several machines from a program for one machine. Depends on `parallel`."""

import sys

from paddle import second_names
from paddle.fluid.errors import NEWER, answering
from paddle.fluid.program.memory import memory_optimize, release_memory
from paddle.fluid.transpiler.configuration import (
    DistributeTranspilerConfig,
    HashName,
    PSDispatcher,
    RoundRobin,
)
from paddle.fluid.transpiler.distribute import DistributeTranspiler
from paddle.fluid.transpiler.inference import InferenceTranspiler
from paddle.fluid.transpiler.placement import slice_variable

__all__ = [
    "DistributeTranspiler", "DistributeTranspilerConfig", "HashName", "InferenceTranspiler", "PSDispatcher",
    "RoundRobin", "memory_optimize", "release_memory", "slice_variable",
]  # fmt: skip

# Modules of the original whose names are in other modules here: scripts import them too.
_MODULES = (
    "distribute_transpiler",
    "inference_transpiler",
    "memory_optimization_transpiler",
    "ps_dispatcher",
)
second_names.nest(__name__, dict.fromkeys(_MODULES, sys.modules[__name__]))
second_names.refuse(__name__, {"geo_sgd_transpiler": NEWER["geo_sgd_transpiler"]})

__getattr__ = answering(__name__)
