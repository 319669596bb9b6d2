# SPDX-License-Identifier: Apache-2.0
"""The names that scripts take from `fluid.core`."""

from paddle.errors import PaddleError as EnforceNotMet
from paddle.fluid.errors import answering
from paddle.fluid.files.record_file import RecordIOWriter
from paddle.fluid.program.operator import OpRole
from paddle.fluid.program.variable import VarDesc
from paddle.fluid.run.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cuda_device_count,
    is_compiled_with_cuda,
)
from paddle.fluid.run.scope import Scope
from paddle.fluid.run.tensor import LoDTensor, LoDTensorArray
from paddle.ops.base.errors import EndOfData as EOFException
from paddle.ops.base.selected_rows import SelectedRows

get_cuda_device_count = cuda_device_count

__all__ = [
    "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "EOFException", "EnforceNotMet", "LoDTensor",
    "LoDTensorArray", "OpRole", "RecordIOWriter", "Scope", "SelectedRows", "VarDesc",
    "get_cuda_device_count", "is_compiled_with_cuda",
]  # fmt: skip

__getattr__ = answering(__name__)
