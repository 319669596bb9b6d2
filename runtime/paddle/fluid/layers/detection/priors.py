# SPDX-License-Identifier: Apache-2.0
"""Prior boxes (default boxes, SSD) around each cell of a feature map."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = ["density_prior_box", "prior_box"]


def listed(given: npt.ArrayLike | None) -> tuple[float, ...]:
    """Return one number or several as a tuple of floats; None becomes an empty tuple."""
    return () if given is None else tuple(float(each) for each in np.ravel(given))


@takes(
    "input, image, min_sizes, max_sizes=None, aspect_ratios=[1.0], variance=[0.1,0.1,0.2,0.2], flip=False, "
    "clip=False, steps=[0.0,0.0], offset=0.5, name=None, min_max_aspect_ratios_order=False"
)
def prior_box(given: dict[str, Any]) -> tuple[Variable, Variable]:
    """Return the prior boxes (H, W, boxes, 4) of a feature map's cells, in fractions of the image, and their variances.

    Args:
        input: the feature map (N, C, H, W).
        image: (N, C, height, width).
        min_sizes: side lengths in pixels; each gives one box per aspect ratio.
        max_sizes: empty, or one per element of min_sizes; each adds a square of side √(min max).
        aspect_ratios: width over height; 1 is always included.
        variance: divisors of the boxes' codes.
        flip: whether to use 1 / ratio, too.
        clip: whether to clip boxes to the image.
        steps: distances between cells in pixels, (horizontal, vertical); 0: the cells cover the image.
        offset: position of a box's center within its cell, as a fraction of the step.
        min_max_aspect_ratios_order: whether the added square comes second instead of last.
    """
    largest = listed(given["max_sizes"])
    attrs = {
        **{name: listed(given[name]) for name in ("min_sizes", "aspect_ratios")},
        "max_sizes": largest if largest and largest[0] > 0 else (),
    }
    return _boxes("prior_box", given, {**attrs, **renamed(given, "flip min_max_aspect_ratios_order")})


@takes(
    "input, image, densities=None, fixed_sizes=None, fixed_ratios=None, variance=[0.1,0.1,0.2,0.2], clip=False, "
    "steps=[0.0,0.0], offset=0.5, flatten_to_2d=False, name=None"
)
def density_prior_box(given: dict[str, Any]) -> tuple[Variable, Variable]:
    """Return dense prior boxes (H, W, boxes, 4) and variances; each size of density d gives d × d boxes per ratio.

    Args:
        densities: one density per element of fixed_sizes.
        fixed_sizes: side lengths in pixels.
        fixed_ratios: width over height.
        flatten_to_2d: whether to return boxes as (H W boxes, 4).

    For the other arguments see `prior_box`.
    """
    densities = tuple(map(int, given["densities"] or ()))
    attrs = {name: listed(given[name]) for name in ("fixed_sizes", "fixed_ratios")}
    return _boxes(
        "density_prior_box",
        given,
        {**attrs, "densities": densities, "flatten_to_2d": given["flatten_to_2d"]},
    )


def _boxes(op_type: str, given: dict[str, Any], attrs: dict[str, Any]) -> tuple[Variable, Variable]:
    if len(listed(given["steps"])) != 2:
        raise FluidError(f"{op_type}: expected steps (horizontal, vertical), got {given['steps']}")
    across, down = listed(given["steps"])
    shared = {**renamed(given, "variances=variance clip offset"), "step_w": across, "step_h": down}
    boxes, variances = LayerHelper(op_type, given["name"]).apply_all(
        op_type, renamed(given, "Input=input Image=image"), {**attrs, **shared}, fixed=["Boxes", "Variances"]
    )
    return boxes, variances
