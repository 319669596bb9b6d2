# SPDX-License-Identifier: Apache-2.0
"""What steers a program: loops, branches, arrays of values, beam searches, feeding, printing, functions of Python; above `base`."""
