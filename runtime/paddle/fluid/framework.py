# SPDX-License-Identifier: Apache-2.0
"""`fluid.framework`: programs and their parts, under the names that scripts import."""

from typing import Any

from paddle.fluid import core
from paddle.fluid.errors import answering
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import (
    Program,
    default_main_program,
    default_startup_program,
    name_scope,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.fluid.run.places import cpu_places, cuda_pinned_places, cuda_places, is_compiled_with_cuda
from paddle.fluid.run.single_operator import OpProtoHolder, get_all_op_protos

EMPTY_VAR_NAME, TEMP_VAR_NAME = core.kEmptyVarName(), core.kTempVarName()
GRAD_VAR_SUFFIX, ZERO_VAR_SUFFIX = core.kGradVarSuffix(), core.kZeroVarSuffix()


def convert_np_dtype_to_dtype_(np_dtype: Any) -> VarType:
    """Return the number of a numpy dtype in the original's enum `VarType`."""
    return VarType.of(np_dtype)


def dtype_is_floating(dtype: Any) -> bool:
    """Return whether a dtype is a floating-point type."""
    return VarType.of(dtype).numpy.kind == "f"


def grad_var_name(var_name: str) -> str:
    """Return the name of a variable's gradient, `<name>@GRAD`."""
    return var_name + GRAD_VAR_SUFFIX


def in_dygraph_mode() -> bool:
    """Return False: there is no imperative mode (dygraph); programs are always built before they run."""
    return False


def _get_var(name: str, program: Program | None = None) -> Variable:
    """Return a variable of block 0 of a program; program None is the default main program."""
    return (program or default_main_program()).global_block().var(name)


get_var = _get_var


__all__ = [
    "Block", "OpProtoHolder", "Operator", "Parameter", "Program", "Variable", "cpu_places", "cuda_pinned_places",
    "cuda_places", "default_main_program", "default_startup_program", "get_all_op_protos", "in_dygraph_mode",
    "is_compiled_with_cuda", "name_scope", "program_guard", "switch_main_program", "switch_startup_program",
]  # fmt: skip

__getattr__ = answering(__name__)
