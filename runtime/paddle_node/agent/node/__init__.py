# SPDX-License-Identifier: Apache-2.0
"""Checks of the node before a job, and its routes to other nodes; above `files` and `processes`."""
