# SPDX-License-Identifier: Apache-2.0
"""Transpiled programs at work: trainers' messages, servers' blocks; above `files`."""
