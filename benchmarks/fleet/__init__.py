# SPDX-License-Identifier: Apache-2.0
"""Thousands of simulated nodes for the unmodified launcher."""
