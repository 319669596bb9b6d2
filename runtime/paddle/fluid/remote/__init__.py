# SPDX-License-Identifier: Apache-2.0
"""Runs transpiled programs: sends trainers' messages and runs servers' blocks. Depends on `files`."""
