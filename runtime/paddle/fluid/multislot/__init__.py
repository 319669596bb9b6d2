# SPDX-License-Identifier: Apache-2.0
"""Reads MultiSlot text, whose lines have `count value value ...` for each slot, in batches. Depends on `program`."""
