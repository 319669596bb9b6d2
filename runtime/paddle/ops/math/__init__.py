# SPDX-License-Identifier: Apache-2.0
"""Arithmetic: element-wise operators, products of matrices, reductions, comparisons, order; above `base`."""
