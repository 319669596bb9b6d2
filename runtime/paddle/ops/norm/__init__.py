# SPDX-License-Identifier: Apache-2.0
"""Normalisation, norms of gradients, and dropout; depends only on `base`."""
