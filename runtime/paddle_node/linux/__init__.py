# SPDX-License-Identifier: Apache-2.0
"""Wrappers of Linux interfaces, each called by only one module. The lowest layer."""
