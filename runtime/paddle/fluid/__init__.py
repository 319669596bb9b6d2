# SPDX-License-Identifier: Apache-2.0
"""PaddlePaddle Fluid: programs of operators, `import paddle.fluid as fluid`."""

from paddle.fluid import (
    clip,
    core,
    framework,
    initializer,
    layers,
    param_attr,
    regularizer,
)
from paddle.fluid.defaults import default_main_program, default_startup_program, program_guard
from paddle.fluid.name_scopes import name_scope
from paddle.fluid.param_attr import ParamAttr, WeightNormParamAttr
from paddle.fluid.program import Program
from paddle.graph import unique_name

__all__ = [
    "ParamAttr",
    "Program",
    "WeightNormParamAttr",
    "clip",
    "core",
    "default_main_program",
    "default_startup_program",
    "framework",
    "initializer",
    "layers",
    "name_scope",
    "param_attr",
    "program_guard",
    "regularizer",
    "unique_name",
]
