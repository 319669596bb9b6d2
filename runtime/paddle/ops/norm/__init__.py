# SPDX-License-Identifier: Apache-2.0
"""Operators for normalization, norms of gradients, and dropout. Depends only on `base`."""
