# SPDX-License-Identifier: Apache-2.0
"""Operators that create values: constants, ranges, random numbers; depends only on `base`."""
