# SPDX-License-Identifier: Apache-2.0
"""Saving and loading, in the original's file formats; and where scripts look for readers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.backend import to_host
from paddle.fluid.errors import FluidTypeError
from paddle.fluid.executor import Executor
from paddle.fluid.files.distributed_files import load_persistables, save_persistables
from paddle.fluid.files.inference_model import load_inference_model, save_inference_model
from paddle.fluid.files.variable_files import (
    is_parameter,
    is_persistable,
    load_params,
    load_vars,
    save_params,
    save_vars,
)
from paddle.fluid.program.defaults import default_main_program
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Parameter
from paddle.fluid.reader import DataLoader, PyReader
from paddle.fluid.run.scope import global_scope
from paddle.reader import (
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shuffle,
    xmap_readers,
)

__all__ = [
    "DataLoader",
    "PyReader",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "get_parameter_value",
    "get_parameter_value_by_name",
    "is_parameter",
    "is_persistable",
    "load_inference_model",
    "load_params",
    "load_persistables",
    "load_vars",
    "map_readers",
    "save_inference_model",
    "save_params",
    "save_persistables",
    "save_vars",
    "shuffle",
    "xmap_readers",
]


def get_parameter_value(para: Parameter, executor: Executor) -> npt.NDArray[Any]:
    """Return the value of a parameter in the global scope.

    Raises:
        FluidTypeError: it is no parameter.
    """
    if not isinstance(para, Parameter):
        raise FluidTypeError(f"get_parameter_value: expected a Parameter, got {para!r}")
    return np.array(to_host(global_scope().get(para.name)))


def get_parameter_value_by_name(
    name: str, executor: Executor, program: Program | None = None
) -> npt.NDArray[Any]:
    """Return the value of the parameter of that name."""
    variable = (program or default_main_program()).global_block().var(name)
    return get_parameter_value(variable, executor)  # type: ignore[arg-type]
