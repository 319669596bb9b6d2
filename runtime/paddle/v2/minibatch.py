# SPDX-License-Identifier: Apache-2.0
"""`paddle.v2.minibatch`: where v2 scripts look for `batch`."""

from __future__ import annotations

from paddle.reader.minibatch import batch

__all__ = ["batch"]
