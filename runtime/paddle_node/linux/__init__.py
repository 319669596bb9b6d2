# SPDX-License-Identifier: Apache-2.0
"""Wrappers of Linux interfaces, each of which only one module calls. The lowest layer."""
