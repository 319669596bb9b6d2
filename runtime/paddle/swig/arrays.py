# SPDX-License-Identifier: Apache-2.0
"""`Matrix`, `Vector` and `IVector`: numpy arrays under the names of the C++ interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Matrix:
    """A float32 matrix; `useGpu` has no effect."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @staticmethod
    def createZero(height: int, width: int, useGpu: bool | None = None) -> Matrix:
        """Return a new matrix (height, width) of zeros."""
        return Matrix(np.zeros((height, width), np.float32))

    @staticmethod
    def createDense(data: Sequence[float], height: int, width: int, useGpu: bool | None = None) -> Matrix:
        """Return a new matrix (height, width) of the given numbers, row by row."""
        return Matrix(np.array(data, np.float32).reshape(height, width))

    @staticmethod
    def createDenseFromNumpy(data: Array, copy: bool = True, useGpu: bool | None = None) -> Matrix:
        """Return a matrix with the values of an array (height, width), copied unless `copy` is False."""
        return Matrix(np.array(data, np.float32, copy=True if copy else None))

    def getHeight(self) -> int:
        """Return the number of rows."""
        return int(self.array.shape[0])

    def getWidth(self) -> int:
        """Return the number of columns."""
        return int(self.array.shape[1])

    def get(self, x: int, y: int) -> float:
        """Return the element in row x, column y."""
        return float(self.array[x, y])

    def set(self, x: int, y: int, val: float) -> None:
        """Set the element in row x, column y."""
        self.array[x, y] = val

    def getData(self) -> list[float]:
        """Return all elements as a list, row by row."""
        return [float(each) for each in self.array.ravel()]

    def copyToNumpyMat(self) -> Array:
        """Return a copy of the matrix as a numpy array (height, width)."""
        return self.array.copy()

    def toNumpyMatInplace(self) -> Array:
        """Return the matrix as a numpy array (height, width) that shares its memory."""
        return self.array

    def copyFromNumpyMat(self, data: Array) -> None:
        """Overwrite all elements with the elements of an array of the same shape."""
        self.array[...] = data


class Vector:
    """A float32 vector, such as the values of a parameter; `useGpu` has no effect."""

    dtype: type[Any] = np.float32

    def __init__(self, array: Array) -> None:
        self.array = array

    @classmethod
    def create(cls, data: Sequence[float], useGpu: bool | None = None) -> Any:
        """Return a new vector with the given numbers."""
        return cls(np.array(data, cls.dtype).reshape(-1))

    @classmethod
    def createZero(cls, sz: int, useGpu: bool | None = None) -> Any:
        """Return a new vector of `sz` zeros."""
        return cls(np.zeros(sz, cls.dtype))

    @classmethod
    def createVectorFromNumpy(cls, data: Array, copy: bool = True, useGpu: bool | None = None) -> Any:
        """Return a vector with the values of a one-dimensional array, copied unless `copy` is False."""
        return cls(np.array(data, cls.dtype, copy=True if copy else None).reshape(-1))

    def __len__(self) -> int:
        return int(self.array.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array.tolist())

    def __getitem__(self, at: int) -> Any:
        return self.array[at].item()

    def __setitem__(self, at: int, value: float) -> None:
        self.array[at] = value

    def getSize(self) -> int:
        """Return the number of elements."""
        return len(self)

    def getData(self) -> list[Any]:
        """Return all elements as a list."""
        return list(self)

    def copyFrom(self, src: Vector) -> None:
        """Overwrite all elements with the elements of another vector."""
        self.array[...] = src.array

    def copyToNumpyArray(self) -> Array:
        """Return a copy of the vector as a numpy array."""
        return self.array.copy()

    def toNumpyArrayInplace(self) -> Array:
        """Return the vector as a numpy array that shares its memory."""
        return self.array

    def copyFromNumpyArray(self, data: Array) -> None:
        """Overwrite all elements with the elements of an array of the same length."""
        self.array[...] = data


class IVector(Vector):
    """A vector of int32 ids; `useGpu` has no effect."""

    dtype = np.int32
