# SPDX-License-Identifier: Apache-2.0
"""Poolings: ``MaxPooling`` is ``paddle.v2.pooling.Max``, and so on."""

from __future__ import annotations

from paddle.v2 import pooling

BasePoolingType = pooling.BasePool

__all__ = ["BasePoolingType"]

for _name, _kind in vars(pooling).items():
    if isinstance(_kind, type) and issubclass(_kind, BasePoolingType) and _kind is not BasePoolingType:
        globals()[f"{_name}Pooling"] = _kind
        __all__.append(f"{_name}Pooling")
