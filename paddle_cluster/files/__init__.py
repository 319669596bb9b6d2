# SPDX-License-Identifier: Apache-2.0
"""File transfer: workspaces to nodes, logs and output back; above `ssh`."""
