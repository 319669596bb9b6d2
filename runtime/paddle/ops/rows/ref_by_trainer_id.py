# SPDX-License-Identifier: Apache-2.0
"""ref_by_trainer_id: one of several values, that of a trainer."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.errors import InputError
from paddle.ops.base.registry import Spec, operator


def _infer(x: list[Spec], trainer_id: Spec) -> Spec:
    return x[0]


@operator("ref_by_trainer_id", "X* TrainerId -> Out", infer=_infer, shares_lod=False)
def ref_by_trainer_id(x: list[Array], trainer_id: Array) -> Array:
    """Return X[TrainerId]; the id is (1,) int64."""
    at = int(trainer_id.reshape(-1)[0])
    if not 0 <= at < len(x):
        raise InputError(f"trainer {at} of {len(x)}")
    return x[at]
