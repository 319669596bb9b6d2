# SPDX-License-Identifier: Apache-2.0
"""Execution of transpiled programs: trainers' messages and servers' blocks; above `files`."""
