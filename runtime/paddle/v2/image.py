# SPDX-License-Identifier: Apache-2.0
"""Image preprocessing: `paddle.dataset.image` under its v2 name."""

from paddle.dataset import image
from paddle.dataset.image import *  # noqa: F403

__all__ = image.__all__
