# SPDX-License-Identifier: Apache-2.0
"""Growing tables: they map int64 ids to rows of values and optimizer state.

A `HashTable` is an index and rows. Both are compiled where the machine has a library of kernels; without one, dicts and
numpy give the same values bit by bit, but slowly.
"""
