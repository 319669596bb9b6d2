# SPDX-License-Identifier: Apache-2.0
"""Control flow: loops, conditionals, arrays, beam search, feeding, printing, Python functions; depends on `base`."""
