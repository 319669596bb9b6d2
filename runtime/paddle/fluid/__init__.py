# SPDX-License-Identifier: Apache-2.0
"""PaddlePaddle Fluid: builds and runs programs of operators. Use it as `import paddle.fluid as fluid`."""

import sys
from typing import TYPE_CHECKING

from paddle import later, second_names
from paddle.fluid import (
    backward,
    clip,
    core,
    executor,
    framework,
    initializer,
    io,
    layers,
    metrics,
    optimizer,
    param_attr,
    regularizer,
)
from paddle.fluid.backward import gradients
from paddle.fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from paddle.fluid.data_feeder import DataFeeder
from paddle.fluid.errors import ABSENT, answering
from paddle.fluid.executor import Executor
from paddle.fluid.framework import in_dygraph_mode
from paddle.fluid.layers.io import sized_data as data
from paddle.fluid.layers.nn.projections import shaped_embedding as embedding
from paddle.fluid.layers.nn.projections import shaped_one_hot as one_hot
from paddle.fluid.param_attr import ParamAttr, WeightNormParamAttr
from paddle.fluid.program.memory import memory_optimize, release_memory
from paddle.fluid.program.program import (
    Program,
    default_main_program,
    default_startup_program,
    name_scope,
    program_guard,
)
from paddle.fluid.reader import DataLoader, PyReader
from paddle.fluid.run import tensor
from paddle.fluid.run.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    is_compiled_with_cuda,
)
from paddle.fluid.run.scope import RowsHandle as SelectedRows
from paddle.fluid.run.scope import Scope, global_scope, scope_guard
from paddle.fluid.run.tensor import LoDTensor, LoDTensorArray, create_lod_tensor, create_random_int_lodtensor
from paddle.graph import unique_name

if TYPE_CHECKING:
    from paddle.fluid import (
        communicator,
        contrib,
        dataset,
        evaluator,
        incubate,
        install_check,
        nets,
        profiler,
        recordio_writer,
        transpiler,
    )
    from paddle.fluid.async_executor import AsyncExecutor, DataFeedDesc
    from paddle.fluid.dataset import DatasetFactory
    from paddle.fluid.parallel_executor import ParallelExecutor
    from paddle.fluid.transpiler import DistributeTranspiler, DistributeTranspilerConfig

Tensor = LoDTensor
average, lod_tensor = metrics, tensor
# Modules of the original whose names are in other modules here: scripts import them too.
sys.modules |= {
    f"{__name__}.average": metrics,
    f"{__name__}.lod_tensor": tensor,
}

__all__ = [
    "AsyncExecutor", "BuildStrategy", "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "CompiledProgram", "DataFeedDesc",
    "DataFeeder", "DataLoader", "DatasetFactory", "DistributeTranspiler", "DistributeTranspilerConfig",
    "ExecutionStrategy", "Executor", "LoDTensor", "LoDTensorArray", "ParallelExecutor", "ParamAttr", "Program",
    "PyReader", "Scope", "SelectedRows", "Tensor", "WeightNormParamAttr", "average", "backward", "clip",
    "communicator", "contrib", "core", "cpu_places", "create_lod_tensor", "create_random_int_lodtensor",
    "cuda_pinned_places", "cuda_places", "data", "dataset", "default_main_program", "default_startup_program",
    "embedding", "evaluator", "executor", "framework", "global_scope", "gradients", "in_dygraph_mode", "incubate",
    "initializer", "install_check", "io", "is_compiled_with_cuda", "layers", "memory_optimize", "metrics",
    "name_scope", "nets", "one_hot", "optimizer", "param_attr", "profiler", "program_guard", "recordio_writer",
    "regularizer", "release_memory", "scope_guard", "transpiler", "unique_name",
]  # fmt: skip

second_names.install(
    {
        f"{__name__}.data_feed_desc": f"{__name__}.async_executor",
        f"{__name__}.debugger": f"{__name__}.program.drawing",
        f"{__name__}.default_scope_funcs": f"{__name__}.run.scope",
        f"{__name__}.inferencer": f"{__name__}.contrib.inferencer",
        f"{__name__}.net_drawer": f"{__name__}.program.drawing",
        f"{__name__}.op": f"{__name__}.run.single_operator",
        f"{__name__}.trainer": f"{__name__}.contrib.trainer",
    }
)
second_names.refuse(
    __name__,
    {
        "distributed": ABSENT["distributed"].removeprefix("use "),
        "dygraph": "static programs of fluid.layers, run by fluid.Executor",
    },
)
__getattr__, __dir__ = later.attributes(
    __name__,
    {
        ".async_executor": "AsyncExecutor DataFeedDesc",
        ".communicator": "",
        ".contrib": "",
        ".contrib.inferencer": "Inferencer",
        ".contrib.trainer": "BeginEpochEvent BeginStepEvent CheckpointConfig EndEpochEvent EndStepEvent Trainer",
        ".data_feed_desc": "",
        ".dataset": "DatasetFactory",
        ".debugger": "",
        ".default_scope_funcs": "",
        ".evaluator": "",
        ".incubate": "",
        ".install_check": "",
        ".net_drawer": "",
        ".nets": "",
        ".op": "",
        ".parallel_executor": "ParallelExecutor",
        ".profiler": "",
        ".recordio_writer": "",
        ".transpiler": "DistributeTranspiler DistributeTranspilerConfig",
    },
    answering(__name__, depth=2),
)
