# SPDX-License-Identifier: Apache-2.0
"""Growing tables, which map int64 ids to rows of values and optimizer state.

A `HashTable` consists of an index and rows. Both use compiled kernels if the machine has the library; otherwise, dicts
and numpy compute bitwise equal values more slowly.
"""
