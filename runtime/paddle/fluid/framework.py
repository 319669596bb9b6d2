# SPDX-License-Identifier: Apache-2.0
"""What scripts import from `fluid.framework`: programs and their parts."""

from paddle.fluid.block import Block
from paddle.fluid.defaults import (
    default_main_program,
    default_startup_program,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from paddle.fluid.name_scopes import name_scope
from paddle.fluid.operator import Operator
from paddle.fluid.program import Program
from paddle.fluid.variable import Parameter, Variable

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
