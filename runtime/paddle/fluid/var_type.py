# SPDX-License-Identifier: Apache-2.0
"""VarType: Fluid's numbers of what a variable can be, tensors' dtypes among them."""

from __future__ import annotations

from enum import IntEnum


class VarType(IntEnum):
    """Numbers of dtypes and of kinds of variables, as program files carry them."""

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT8 = 20
    INT8 = 21


class VarDesc:
    """Where scripts look for the numbers: `core.VarDesc.VarType.FP32`."""

    VarType = VarType
