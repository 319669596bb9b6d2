# SPDX-License-Identifier: Apache-2.0
"""Wrappers of Linux interfaces, each of which the project uses in one place only; the lowest layer."""
