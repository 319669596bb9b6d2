# SPDX-License-Identifier: Apache-2.0
"""How numbers get from rank to rank: shared memory within a node, ring and recursive doubling between nodes."""
