# SPDX-License-Identifier: Apache-2.0
"""Tables that grow with the ids seen: int64 id -> row of values and optimizer state.

`HashTable` is compiled; `PlainTable` is the same with numpy and dict, slow and simple. Importing this package loads no
numba: only importing `hash_table` does, which its user puts off until there is a table to make.
"""
