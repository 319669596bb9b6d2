# SPDX-License-Identifier: Apache-2.0
"""dropout: zeroes each element with probability dropout_prob during training.

`downgrade_in_infer` (v2's rule) leaves the other elements unchanged and multiplies by 1 - p in test mode;
`upscale_in_train` divides them by 1 - p and changes nothing in test mode.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host, random_words
from paddle.ops.base.attributes import Limit, one_of
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.second import curved

_UPSCALE = "upscale_in_train"


@operator(
    "dropout",
    "X -> Out Mask~",
    attrs={
        "dropout_prob": Limit(0.5, 0, 1),
        "is_test": False,
        "fix_seed": False,
        "seed": 0,
        "dropout_implementation": one_of("downgrade_in_infer", _UPSCALE),
    },
    infer="X(...) -> X, uint8(..., lod=X)",
)
def dropout(
    x: Array, *, dropout_prob: float, is_test: bool, dropout_implementation: str, rng: np.random.Generator
) -> tuple[Array, Array | None]:
    """Return X with elements set to 0 at random, and the uint8 mask (shape of X), 0 where an element was dropped."""
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
