# SPDX-License-Identifier: Apache-2.0
"""Operators that move, pick, join or pad values and leave their numbers as they are; on the floor above `base`."""
