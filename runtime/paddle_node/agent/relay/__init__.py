# SPDX-License-Identifier: Apache-2.0
"""The relay: passes files between the nodes of one job; above `files`, beside `node`."""
