# SPDX-License-Identifier: Apache-2.0
"""Checkpoints on disk: copied while training continues, published completely or not at all, verified when read."""
