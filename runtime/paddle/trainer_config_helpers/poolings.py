# SPDX-License-Identifier: Apache-2.0
"""Poolings: ``MaxPooling`` is ``paddle.v2.pooling.Max``, and so on."""

from __future__ import annotations

from paddle.v2 import pooling

BasePoolingType = pooling.BasePoolingType

__all__ = ["BasePoolingType"]

for _name, _kind in vars(pooling).items():
    _is_kind = isinstance(_kind, type) and issubclass(_kind, BasePoolingType) and not _name.startswith("_")
    if _is_kind and _kind is not BasePoolingType:
        globals()[f"{_name}Pooling"] = _kind
        __all__.append(f"{_name}Pooling")
