# SPDX-License-Identifier: Apache-2.0
"""Tools of the original for configuration files and their parameters: show, draw, merge."""

from paddle import later, second_names

__all__ = ["Ploter"]

second_names.install({f"{__name__}.plot": "paddle.v2.plot"})
__getattr__, __dir__ = later.attributes(__name__, {"paddle.v2.plot": "Ploter"})
