# SPDX-License-Identifier: Apache-2.0
"""Operators that make values from nothing: constants, ranges, random numbers; on the floor above `base`."""
