# SPDX-License-Identifier: Apache-2.0
"""create_lod_tensor and create_random_int_lodtensor: tensors with sequences, of arrays and lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.run.places import Place
from paddle.fluid.run.tensor import Lengths, LoDTensor


def create_lod_tensor(
    data: npt.NDArray[Any] | list[Any] | LoDTensor, recursive_seq_lens: Lengths, place: Place | None = None
) -> LoDTensor:
    """Return a tensor with sequences.

    Args:
        data: rows as an array or a tensor; or a list of lists of ids, which become one column.
        recursive_seq_lens: lengths of each level.
        place: has no meaning.

    Raises:
        FluidError: the lengths do not fit.
        FluidTypeError: the data is something else.
    """
    if isinstance(data, list):
        lengths = [len(each) for each in data]
        if [lengths] != [list(level) for level in recursive_seq_lens]:
            raise FluidError(
                f"the lists have lengths {[lengths]}, recursive_seq_lens says {recursive_seq_lens}"
            )
        rows = [np.asarray(each) for each in data]
        data = np.concatenate(rows).reshape(-1, 1).astype("int64") if rows else np.zeros((0, 1), "int64")
    if not isinstance(data, (np.ndarray, LoDTensor)):
        raise FluidTypeError(f"create_lod_tensor: expected an array, a list or a LoDTensor, got {data!r}")
    tensor = LoDTensor()
    tensor.set(np.asarray(data), place)
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


def create_random_int_lodtensor(
    recursive_seq_lens: Lengths, base_shape: Sequence[int], place: Place | None, low: int, high: int
) -> LoDTensor:
    """Return random int64 rows from `low` to `high`, both included, in the given sequences."""
    shape = [sum(recursive_seq_lens[-1]), *base_shape]
    data = np.random.randint(low, high + 1, shape).astype("int64")
    return create_lod_tensor(data, recursive_seq_lens, place)
