# SPDX-License-Identifier: Apache-2.0
"""Statistics of a program: memory_usage and op_freq_statistic."""

from __future__ import annotations

from collections import Counter
from math import prod

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.program.program import Program

__all__ = ["memory_usage", "op_freq_statistic"]

_LEAST, _MOST = 1.05, 1.1  # the original's factors for a run's additional memory
_UNITS = ("B", "KB", "MB")


def memory_usage(program: Program, batch_size: int) -> tuple[float, float, str]:
    """Estimate the memory that the outputs of block 0 need.

    Return (lower bound, upper bound, unit), with unit "B", "KB" or "MB".

    Args:
        program: the program to analyze; variables of unknown rank are not counted.
        batch_size: value to use for an unknown dimension.

    Raises:
        FluidTypeError: program is not a Program.
        FluidError: batch_size is not positive, or a variable has two unknown dimensions.
    """
    if not isinstance(program, Program):
        raise FluidTypeError(f"memory_usage: expected a Program, got {program!r}")
    if batch_size <= 0:
        raise FluidError(f"memory_usage: expected a positive batch_size, got {batch_size}")
    block = program.global_block()
    total = 0.0
    for name in {name for op in block.ops for name in op.writes}:
        variable = block.find(name)
        if variable is None or not variable.shape:
            continue
        if sum(size < 0 for size in variable.shape) > 1:
            raise FluidError(
                f"memory_usage: {variable.describe()} has more than one unknown size: expected at most one, the "
                "batch size"
            )
        total += prod(-size * batch_size if size < 0 else size for size in variable.shape) * (
            variable.dtype.itemsize
        )
    unit = 0
    while total > 1024 and unit + 1 < len(_UNITS):
        total, unit = total / 1024, unit + 1
    return total * _LEAST, total * _MOST, _UNITS[unit]


def op_freq_statistic(program: Program) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Count the operators of block 0 and the pairs of successive operators; return both counts, most frequent first.

    A pair "first->second" names the operator that last wrote an input and the operator that reads it. Parameters do not
    count as inputs. Operators that write only parameters are omitted.

    Raises:
        FluidTypeError: program is not a Program.
    """
    if not isinstance(program, Program):
        raise FluidTypeError(f"op_freq_statistic: expected a Program, got {program!r}")
    block = program.global_block()
    parameters = {each.name for each in block.all_parameters()}
    single: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    wrote: dict[str, str] = {}
    for op in block.ops:
        pairs.update(f"{wrote[name]}->{op.type}" for name in op.reads if name in wrote)
        written = [name for name in op.writes if name not in parameters]
        single[op.type] += bool(written)
        wrote.update(dict.fromkeys(written, op.type))
    return (+single).most_common(), pairs.most_common()
