# SPDX-License-Identifier: Apache-2.0
"""What scripts import from `fluid.framework`: programs and their parts."""

from paddle.fluid.program.block import Block
from paddle.fluid.program.defaults import (
    default_main_program,
    default_startup_program,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from paddle.fluid.program.name_scopes import name_scope
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Parameter, Variable

__all__ = [
    "Block",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "default_main_program",
    "default_startup_program",
    "name_scope",
    "program_guard",
    "switch_main_program",
    "switch_startup_program",
]
