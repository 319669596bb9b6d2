# SPDX-License-Identifier: Apache-2.0
"""``py_paddle.swig_paddle``: the names of the C++ interface that prediction scripts and training loops use."""

from __future__ import annotations

from paddle.flags import parse_arguments
from paddle.swig.arguments import Arguments
from paddle.swig.arrays import IVector, Matrix, Vector
from paddle.swig.machine import (
    PARAMETER_GRADIENT,
    PARAMETER_MOMENTUM,
    PARAMETER_VALUE,
    PASS_GC,
    PASS_TEST,
    PASS_TRAIN,
    GradientMachine,
    Parameter,
    Trainer,
)
from paddle.v2 import settings
from paddle.v2.errors import MissingNameError
from paddle_node.contract.flags import INIT_FLAGS

__all__ = [
    "CREATE_MODE_NORMAL",
    "CREATE_MODE_TESTING",
    "PARAMETER_GRADIENT",
    "PARAMETER_MOMENTUM",
    "PARAMETER_VALUE",
    "PASS_GC",
    "PASS_TEST",
    "PASS_TRAIN",
    "Arguments",
    "GradientMachine",
    "IVector",
    "Matrix",
    "Parameter",
    "Trainer",
    "Vector",
    "initPaddle",
    "isGpuVersion",
    "isUsingGpu",
]  # fmt: skip

CREATE_MODE_NORMAL, CREATE_MODE_TESTING = 0, 4
_ABSENT = ("Evaluator", "ISequenceGenerator", "OptimizationConfig", "ParameterOptimizer", "ParameterUpdater")


def initPaddle(*args: str) -> None:
    """Set up this process with flags in text form, such as --use_gpu=0 and --trainer_count=1."""
    settings.init(**parse_arguments(INIT_FLAGS, list(args)))


def isUsingGpu() -> bool:
    """Return whether networks compute on a GPU."""
    return settings.current().use_gpu


def isGpuVersion() -> bool:
    """Return whether networks can compute on a GPU at all."""
    return False


def __getattr__(name: str) -> object:
    if name in _ABSENT:
        raise MissingNameError(
            f"py_paddle.swig_paddle.{name} is not available: train with swig_paddle.Trainer or paddle.v2.trainer.SGD"
        )
    raise AttributeError(f"module 'py_paddle.swig_paddle' has no attribute {name!r}")
