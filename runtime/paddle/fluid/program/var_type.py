# SPDX-License-Identifier: Apache-2.0
"""Where Fluid scripts look for the numbers of dtypes and of kinds of variables."""

from __future__ import annotations

from paddle.ops.base.dtypes import VarType

__all__ = ["VarDesc", "VarType"]


class VarDesc:
    """Where scripts look for the numbers: `core.VarDesc.VarType.FP32`."""

    VarType = VarType
