# SPDX-License-Identifier: Apache-2.0
"""``DataFeeder`` under the original's name; it converts a batch of samples to a network's inputs."""

from __future__ import annotations

from paddle.v2.training.feeder import DataFeeder

__all__ = ["DataFeeder"]
