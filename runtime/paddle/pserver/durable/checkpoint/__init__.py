# SPDX-License-Identifier: Apache-2.0
"""Checkpoints on disk, which are copied while training continues, published atomically, and verified when read."""
