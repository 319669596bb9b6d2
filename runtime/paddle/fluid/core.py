# SPDX-License-Identifier: Apache-2.0
"""`fluid.core`: the names of the original's C++ module that scripts use."""

from __future__ import annotations

from enum import IntFlag

from paddle.errors import PaddleError as EnforceNotMet
from paddle.fluid.errors import answering
from paddle.fluid.files.record_file import RecordIOWriter
from paddle.fluid.program.operator import EMPTY, OP_ROLE, OP_ROLE_VAR, AttrType, OpRole
from paddle.fluid.program.variable import VarDesc
from paddle.fluid.run.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cuda_device_count,
    is_compiled_with_cuda,
)
from paddle.fluid.run.scope import RowsHandle as SelectedRows
from paddle.fluid.run.scope import Scope
from paddle.fluid.run.single_operator import get_all_op_protos
from paddle.fluid.run.tensor import LoDTensor, LoDTensorArray
from paddle.ops.base.errors import EndOfData as EOFException
from paddle.ops.base.registry import find

get_cuda_device_count = cuda_device_count

__all__ = [
    "AttrType", "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "EOFException", "EnforceNotMet", "LoDTensor",
    "LoDTensorArray", "OpRole", "RecordIOWriter", "Scope", "SelectedRows", "VarDesc",
    "get_all_op_protos", "get_cuda_device_count", "is_compiled_with_cuda", "op_proto_and_checker_maker",
]  # fmt: skip


class op_proto_and_checker_maker:  # noqa: N801 - the original's name
    """Namespace of operator roles, and of the names of the attributes that every operator has."""

    class OpRole(IntFlag):
        """Roles of operators in training (forward, backward, ...): the values of the attribute `op_role`."""

        Forward, Backward, Optimize, RPC, Dist, LRSched, Loss = 0, 1, 2, 4, 8, 16, 256
        NotSpecified = 0x1000

    @staticmethod
    def kOpRoleAttrName() -> str:  # noqa: N802
        """Return the name of the attribute that stores an operator's role."""
        return OP_ROLE

    @staticmethod
    def kOpRoleVarAttrName() -> str:  # noqa: N802
        """Return the name of the attribute that lists the parameter and gradient of an operator."""
        return OP_ROLE_VAR

    @staticmethod
    def kOpNameScopeAttrName() -> str:  # noqa: N802
        """Return the name of the attribute that stores an operator's name scope."""
        return "op_namescope"

    @staticmethod
    def kOpCreationCallstackAttrName() -> str:  # noqa: N802
        """Return the name of the attribute that records the source lines where an operator was created."""
        return "op_callstack"


def kEmptyVarName() -> str:  # noqa: N802 - the original's names, here and below
    """Return the name that stands for "no variable" in an operator's slot."""
    return EMPTY


def kTempVarName() -> str:  # noqa: N802
    """Return the placeholder that stands for the name of a temporary variable."""
    return "@TEMP@"


def kGradVarSuffix() -> str:  # noqa: N802
    """Return the suffix of gradients, `@GRAD`, which follows the variable's name."""
    return "@GRAD"


def kZeroVarSuffix() -> str:  # noqa: N802
    """Return the suffix of variables that contain zeros in the shape of another variable."""
    return "@ZERO"


def op_support_gpu(op_type: str) -> bool:
    """Return whether an operator can run on a GPU."""
    return is_compiled_with_cuda() and find(op_type) is not None


def is_float16_supported(place: CPUPlace | CUDAPlace) -> bool:
    """Return whether a place supports float16 natively, as GPUs do."""
    return isinstance(place, CUDAPlace)


def is_compiled_with_mkldnn() -> bool:
    """Return False, because this implementation does not use MKL-DNN."""
    return False


def is_compiled_with_dist() -> bool:
    """Return True: programs can use parameter servers."""
    return True


__getattr__ = answering(__name__)
