# SPDX-License-Identifier: Apache-2.0
"""What `Executor.run` returns for one number: an array of shape (1,) that still converts to a number.

Scripts write `float(loss)` for a loss of shape (1,); numpy took that before 2.4 and refuses it since.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class OneNumber(np.ndarray[Any, Any]):
    """An array of one element, of any rank. What is computed from it may have more, and converts no more."""

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))


def fetched(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a fetched array, one that converts to a number if it holds one."""
    return value.view(OneNumber) if value.size == 1 and value.ndim else value
