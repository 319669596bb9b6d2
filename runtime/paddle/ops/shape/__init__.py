# SPDX-License-Identifier: Apache-2.0
"""Operators that move, select, join or pad values without changing them. Depends only on `base`."""
