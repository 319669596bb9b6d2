# SPDX-License-Identifier: Apache-2.0
"""The relay: files on their way between the nodes of one job; above `files`, beside `node`."""
