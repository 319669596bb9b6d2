# SPDX-License-Identifier: Apache-2.0
"""Runs the processes of a job on this node, from start to stop. Depends on `link`, but not on `files`."""
