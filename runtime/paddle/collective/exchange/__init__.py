# SPDX-License-Identifier: Apache-2.0
"""Data exchange: shared memory within a node, a ring and recursive doubling between nodes."""
