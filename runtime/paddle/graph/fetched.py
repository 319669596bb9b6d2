# SPDX-License-Identifier: Apache-2.0
"""What scripts get of a run: arrays that convert to a number wherever they hold only one.

numpy took an array of one element of any rank for a number before 2.4 and refuses it since; `"%.2f" % loss`,
`float(row)` and `round(cost, 3)` are in most scripts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Fetched(np.ndarray[Any, Any]):
    """An array whose rows, or itself, may be one number. What is computed from it is one too, or a plain array."""

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __index__(self) -> int:
        number = self._number()
        if not isinstance(number, int):
            raise TypeError(f"an array of {self.dtype} cannot be an index: it holds {number!r}")
        return number

    def __round__(self, ndigits: int | None = None) -> float:
        return round(float(self._number()), ndigits)

    def __format__(self, spec: str) -> str:
        return format(self._number(), spec) if spec else str(self)

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A pickle of it is one of a plain array: who reads it need not have this class.
        return self.view(np.ndarray).__reduce_ex__(protocol)

    def __array_wrap__(
        self, array: npt.NDArray[Any], context: Any = None, return_scalar: bool = False
    ) -> Any:
        return array[()] if return_scalar else fetched(array)

    def _number(self) -> Any:
        if self.size != 1:
            raise TypeError(f"an array of shape {self.shape} is no number: only one of one element converts")
        return self.item()


def fetched(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array, as `Fetched` if it holds one number or its last axis has one, so that its rows may."""
    one = value.ndim and (value.size == 1 or value.shape[-1] == 1)
    return value.view(Fetched) if one else np.asarray(value)
