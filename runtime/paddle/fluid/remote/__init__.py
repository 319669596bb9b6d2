# SPDX-License-Identifier: Apache-2.0
"""Runs transpiled programs: trainers' messages and servers' blocks; above `files`."""
