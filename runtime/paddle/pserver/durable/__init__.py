# SPDX-License-Identifier: Apache-2.0
"""State that outlives a process: an in-memory copy with a journal, and checkpoints on disk. Depends on `store`."""
