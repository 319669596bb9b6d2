# SPDX-License-Identifier: Apache-2.0
"""The package that scripts for the original's C++ interface import; the supported part is in ``paddle.swig``."""

from __future__ import annotations

from paddle import second_names
from paddle.swig import swig_paddle
from paddle.swig.dataprovider_converter import DataProviderConverter

__all__ = ["DataProviderConverter", "swig_paddle"]

__path__: list[str] = []  # a package, whose modules the finder knows
second_names.install(
    {f"{__name__}.{name}": f"paddle.swig.{name}" for name in ("swig_paddle", "dataprovider_converter")}
)
