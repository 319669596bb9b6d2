# SPDX-License-Identifier: Apache-2.0
"""MultiSlot text: a line has `count value value ...` for each slot; threads read lines in batches; above `program`."""
