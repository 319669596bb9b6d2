# SPDX-License-Identifier: Apache-2.0
"""Tables that grow with the ids seen: int64 id -> row of values and optimizer state.

`make_table` chooses the form; `HashTable` is compiled, `PlainTable` is the same in numpy and dict. Importing this
package loads no numba: only making a `HashTable` does.
"""
