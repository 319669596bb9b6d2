# SPDX-License-Identifier: Apache-2.0
"""State that outlives a process: a copy in memory with a journal, checkpoints on disk; above `store`."""
