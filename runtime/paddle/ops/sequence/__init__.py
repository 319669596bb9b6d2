# SPDX-License-Identifier: Apache-2.0
"""Operators on sequences of rows, which their offsets tell apart; on the floor above `base`."""
