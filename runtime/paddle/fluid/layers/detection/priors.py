# SPDX-License-Identifier: Apache-2.0
"""Prior boxes (default boxes, SSD) around each cell of a feature map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidError
from paddle.fluid.layers.plain import several

__all__ = ["density_prior_box", "prior_box"]


def listed(given: npt.ArrayLike | None) -> tuple[float, ...]:
    """Convert one number or several to a tuple of floats; None becomes an empty tuple."""
    return () if given is None else tuple(float(each) for each in np.ravel(given))


def _grid(given: Mapping[str, Any]) -> dict[str, Any]:
    if len(listed(given["steps"])) != 2:
        raise FluidError(f"prior boxes: expected steps (horizontal, vertical), got {given['steps']}")
    across, down = listed(given["steps"])
    return {"step_w": across, "step_h": down}


def _sizes(given: Mapping[str, Any]) -> dict[str, Any]:
    largest = listed(given["max_sizes"])
    lists = {name: listed(given[name]) for name in ("min_sizes", "aspect_ratios")}
    return {**lists, "max_sizes": largest if largest and largest[0] > 0 else (), **_grid(given)}


prior_box = several(
    "prior_box(input, image, min_sizes, max_sizes=None, aspect_ratios=[1.0], variance=[0.1,0.1,0.2,0.2], flip=False, "
    "clip=False, steps=[0.0,0.0], offset=0.5, name=None, min_max_aspect_ratios_order=False)",
    """the prior boxes (H, W, boxes, 4) of a feature map's cells, in fractions of the image, and their variances.

    Args:
        input: the feature map (N, C, H, W).
        image: (N, C, height, width).
        min_sizes: side lengths in pixels; each gives one box per aspect ratio.
        max_sizes: empty, or one per element of min_sizes; each adds a square of side √(min max).
        aspect_ratios: width over height; 1 is always included.
        variance: divisors of the boxes' codes.
        flip: whether to use 1 / ratio, too.
        clip: whether to clip boxes to the image.
        steps: distances between cells in pixels (horizontal, vertical), or 0 to cover the image.
        offset: position of the center within a cell, as a fraction of the step.
        min_max_aspect_ratios_order: whether the added square comes second instead of last""",
    to="variance=variances steps=",
    change=_sizes,
    fixed="Boxes Variances",
)


def _densities(given: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: listed(given[name]) for name in ("fixed_sizes", "fixed_ratios")}
    return {**lists, "densities": tuple(map(int, given["densities"] or ())), **_grid(given)}


density_prior_box = several(
    "density_prior_box(input, image, densities=None, fixed_sizes=None, fixed_ratios=None, "
    "variance=[0.1,0.1,0.2,0.2], clip=False, steps=[0.0,0.0], offset=0.5, flatten_to_2d=False, name=None)",
    """dense prior boxes (H, W, boxes, 4) and variances; each size of density d gives d × d boxes per ratio.

    Args:
        densities: one density per element of fixed_sizes.
        fixed_sizes: side lengths in pixels.
        fixed_ratios: width over height.
        flatten_to_2d: whether to return boxes as (H W boxes, 4).

    For the other arguments see `prior_box`""",
    to="variance=variances steps=",
    change=_densities,
    fixed="Boxes Variances",
)
