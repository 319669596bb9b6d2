# SPDX-License-Identifier: Apache-2.0
"""Running a program: places, scopes, tensors, feeding and fetching; above `program`."""
