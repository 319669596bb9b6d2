# SPDX-License-Identifier: Apache-2.0
"""What steers a program: loops, branches, arrays, beam searches, feeding, printing, Python functions; above `base`."""
