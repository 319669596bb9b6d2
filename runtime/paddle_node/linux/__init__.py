# SPDX-License-Identifier: Apache-2.0
"""Wrappers of Linux interfaces. Only one module calls each interface. The lowest layer."""
