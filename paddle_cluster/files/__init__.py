# SPDX-License-Identifier: Apache-2.0
"""File transfer: sends workspaces to nodes and collects logs and output. Depends on `ssh` and lower layers."""
