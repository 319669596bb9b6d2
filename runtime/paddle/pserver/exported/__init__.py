# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files with rows of growing tables, for other programs and for new jobs."""
