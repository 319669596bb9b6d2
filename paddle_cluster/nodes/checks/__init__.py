# SPDX-License-Identifier: Apache-2.0
"""The checks of preflight, one family per module: they judge answers and return findings, without queries or output."""
