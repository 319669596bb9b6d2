# SPDX-License-Identifier: Apache-2.0
"""The run of a program: its places, its scope, its tensors, feeding and fetching; above `program`."""
