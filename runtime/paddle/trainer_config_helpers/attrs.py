# SPDX-License-Identifier: Apache-2.0
"""Attributes of parameters and layers, under their v1 names."""

from __future__ import annotations

from paddle.v2.attr import (
    ExtraAttr,
    ExtraLayerAttribute,
    HookAttr,
    HookAttribute,
    ParamAttr,
    ParameterAttribute,
)

__all__ = [
    "ExtraAttr",
    "ExtraLayerAttribute",
    "HookAttr",
    "HookAttribute",
    "ParamAttr",
    "ParameterAttribute",
]
