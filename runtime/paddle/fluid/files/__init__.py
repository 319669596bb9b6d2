# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files of programs and values in the original's formats. Depends on `run`."""
