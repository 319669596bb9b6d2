# SPDX-License-Identifier: Apache-2.0
"""The node itself, as it is before a job, and the ways from it to others; above `files` and `processes`."""
