# SPDX-License-Identifier: Apache-2.0
"""Wrappers of Linux interfaces, each used in one place only. The lowest layer."""
