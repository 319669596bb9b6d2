# SPDX-License-Identifier: Apache-2.0
"""Tensors of a library that is not numpy, as far as a client sees them; a numpy array is inside."""

from __future__ import annotations

from typing import Any, Self

import numpy as np


class Tensor:
    """Speaks DLPack as a PyTorch tensor does: not at all while it takes part in automatic differentiation."""

    def __init__(self, array: np.ndarray, *, requires_grad: bool = False) -> None:
        self.array, self.requires_grad = array, requires_grad

    @property
    def dtype(self) -> str:
        return f"other.{self.array.dtype}"

    def detach(self) -> Self:
        return type(self)(self.array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        if self.requires_grad:
            raise BufferError("cannot export a tensor that requires grad")
        return self.array.__dlpack__(**options)


class OldTensor(Tensor):
    """Speaks DLPack before version 1, by which nobody may write; but it gives out numpy arrays of itself."""

    def __dlpack__(self, **options: Any) -> Any:
        return super().__dlpack__()

    def numpy(self) -> np.ndarray:
        return self.array


class FrozenTensor(Tensor):
    """Speaks DLPack before version 1 and cannot be changed."""

    def __dlpack__(self, **options: Any) -> Any:
        return super().__dlpack__()


class GpuTensor(Tensor):
    """Lies where the processor cannot look; it must be fetched, and be sent to."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("not in the host's memory")

    def cpu(self) -> Tensor:
        return Tensor(self.array.copy())

    def new_tensor(self, array: np.ndarray) -> GpuTensor:
        return GpuTensor(array.copy())

    def copy_(self, other: GpuTensor) -> None:
        self.array[...] = other.array


class Exposed:
    """Has the array interface alone."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__
