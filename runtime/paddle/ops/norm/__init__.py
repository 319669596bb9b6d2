# SPDX-License-Identifier: Apache-2.0
"""Normalisation, norms of gradients, and dropout; on the floor above `base`."""
