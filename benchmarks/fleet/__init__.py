# SPDX-License-Identifier: Apache-2.0
"""Thousands of nodes, simulated, for the launcher as it is."""
