# SPDX-License-Identifier: Apache-2.0
"""Simulates thousands of nodes for the unmodified launcher."""
