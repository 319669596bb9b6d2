# SPDX-License-Identifier: Apache-2.0
"""MultiSlot text: lines of `count value value ...` for each slot, read by threads into batches; above `program`."""
