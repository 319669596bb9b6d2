# SPDX-License-Identifier: Apache-2.0
"""Arithmetic: element-wise operators, matrix products, reductions, comparisons, sorting; depends only on `base`."""
