# SPDX-License-Identifier: Apache-2.0
"""Operators on sequences, which are rows delimited by offsets. Depends only on `base`."""
