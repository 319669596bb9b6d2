# SPDX-License-Identifier: Apache-2.0
"""Operators for normalisation, norms of gradients, and dropout. Depends only on `base`."""
