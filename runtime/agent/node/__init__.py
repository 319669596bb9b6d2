# SPDX-License-Identifier: Apache-2.0
"""The node itself, as the agent finds it, and the ways to other nodes; on `link`, `files` and `processes`."""
