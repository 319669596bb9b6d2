# SPDX-License-Identifier: Apache-2.0
"""dropout: zeroes each element with probability dropout_prob during training.

`downgrade_in_infer` (v2's rule) leaves the other elements unchanged and multiplies by 1 - p in test mode;
`upscale_in_train` divides them by 1 - p and changes nothing in test mode.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host, random_words
from paddle.ops.base.errors import AttrError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import curved

_UPSCALE = "upscale_in_train"
_IMPLEMENTATIONS = (_UPSCALE, "downgrade_in_infer")


def _infer(x: Spec, *, dropout_prob: float, dropout_implementation: str) -> tuple[Spec, Spec]:
    if not 0.0 <= dropout_prob <= 1.0:
        raise AttrError(f"dropout_prob: expected a probability, got {dropout_prob}")
    if dropout_implementation not in _IMPLEMENTATIONS:
        raise AttrError(
            f"dropout_implementation: expected one of {_IMPLEMENTATIONS}, got {dropout_implementation!r}"
        )
    return x, x._replace(dtype=np.dtype("uint8"))


@operator(
    "dropout",
    "X -> Out Mask~",
    attrs={
        "dropout_prob": 0.5,
        "is_test": False,
        "fix_seed": False,
        "seed": 0,
        "dropout_implementation": "downgrade_in_infer",
    },
    infer=_infer,
)
def dropout(
    x: Array, *, dropout_prob: float, is_test: bool, dropout_implementation: str, rng: np.random.Generator
) -> tuple[Array, Array | None]:
    """Return X with elements dropped, and the uint8 mask with 1 for the others."""
    if is_test:
        return (x if dropout_implementation == _UPSCALE else x * x.dtype.type(1.0 - dropout_prob)), None
    if dropout_prob < 1.0:
        kept = random_words(rng, x.size) >= np.uint32(round(dropout_prob * 2**32))
    else:
        kept = np.zeros(x.size, bool)
    mask = from_host(kept.view(np.uint8).reshape(x.shape), x)
    return _masked(x, mask, dropout_prob, dropout_implementation), mask


@gradient("dropout", "Mask? Out@GRAD -> X@GRAD")
def dropout_grad(
    mask: Array, dout: Array, *, dropout_prob: float, is_test: bool, dropout_implementation: str
) -> Array:
    """Return dX = dOut where not dropped, scaled as in the forward pass."""
    if is_test:
        return dout if dropout_implementation == _UPSCALE else dout * dout.dtype.type(1.0 - dropout_prob)
    return _masked(dout, mask, dropout_prob, dropout_implementation)


def _masked(x: Array, mask: Array, dropout_prob: float, implementation: str) -> Array:
    out: Array = x * mask
    if implementation == _UPSCALE and dropout_prob < 1.0:
        out *= x.dtype.type(1.0 / (1.0 - dropout_prob))
    return out


curved("dropout", None)
