# SPDX-License-Identifier: Apache-2.0
"""VarType: Fluid's numbers of variable types and tensor dtypes, as used in attributes and program files."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np


class VarType(IntEnum):
    """An enumeration of dtypes and of kinds of variables, with the original's numbers."""

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT8 = 20
    INT8 = 21

    @staticmethod
    def of(dtype: Any) -> VarType:
        """Return the number of a dtype, given as a number, a name such as "float32", or a numpy dtype.

        Raises:
            ValueError: the dtype has no number in Fluid.
        """
        try:
            if isinstance(dtype, (int, np.integer)) and not isinstance(dtype, bool):
                return _NUMBERS[_DTYPES[int(dtype)]]
            return _NUMBERS[np.dtype(dtype)]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{dtype!r} is not a tensor dtype: expected one of {', '.join(map(str, _NUMBERS))}"
            ) from error

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype with this number; numpy reads this attribute, so the number can be passed as a dtype.

        Raises:
            AttributeError: the number does not belong to a tensor dtype.
        """
        found = _DTYPES.get(self.value)
        if found is None:
            raise AttributeError(
                f"{self.name} is not a tensor dtype: expected one of {', '.join(map(str, _NUMBERS))}"
            )
        return found

    def __eq__(self, other: object) -> bool:
        if isinstance(other, np.dtype):
            return _NUMBERS.get(other) is self
        return int.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        # Equal to numpy's dtype and with the same hash, so that tables of dtypes accept either.
        return hash(_DTYPES.get(self.value, self.value))

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype that corresponds to this number; see `dtype`."""
        return _DTYPES[self.value]


_DTYPES: dict[int, np.dtype[Any]] = {
    VarType.BOOL.value: np.dtype("bool"),
    VarType.INT16.value: np.dtype("int16"),
    VarType.INT32.value: np.dtype("int32"),
    VarType.INT64.value: np.dtype("int64"),
    VarType.FP16.value: np.dtype("float16"),
    VarType.FP32.value: np.dtype("float32"),
    VarType.FP64.value: np.dtype("float64"),
    VarType.UINT8.value: np.dtype("uint8"),
    VarType.INT8.value: np.dtype("int8"),
}
_NUMBERS = {dtype: VarType(number) for number, dtype in _DTYPES.items()}
