# SPDX-License-Identifier: Apache-2.0
"""Checks a node before a job, and its routes to other nodes. Depends on `files` and `processes`."""
