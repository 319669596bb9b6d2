# SPDX-License-Identifier: Apache-2.0
"""Tables that grow with the ids seen: int64 id -> row of values and optimizer state.

A `HashTable` is an index and rows. Both are compiled where the machine has a library of kernels; without one, dicts and
numpy give the same values bit by bit, but slowly.
"""
