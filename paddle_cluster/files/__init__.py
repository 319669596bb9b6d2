# SPDX-License-Identifier: Apache-2.0
"""Trees of files on their way to nodes, and files on their way back; above `ssh`."""
