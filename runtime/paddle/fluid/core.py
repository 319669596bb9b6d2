# SPDX-License-Identifier: Apache-2.0
"""The names that scripts take from `fluid.core`."""

from paddle.fluid.var_type import VarDesc

__all__ = ["VarDesc"]
