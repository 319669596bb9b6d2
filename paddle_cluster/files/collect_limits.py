# SPDX-License-Identifier: Apache-2.0
"""The limits on the data collected from one node, and what was collected from it so far."""

from __future__ import annotations

from paddle_node.contract.classes import dataclass

WARN_AT = 0.8


@dataclass(frozen=True)
class CollectLimits:
    """The limits on the data collected from one node: the number of files, and of bytes without holes."""

    most_bytes: int = 100 << 30
    most_files: int = 1_000_000


@dataclass
class NodeShare:
    """The data collected from one node.

    Attributes:
        files: the number of files, directories and links.
        size: their bytes without holes.
        left_there: the first file beyond the limit; `chunks_left` counts the chunks of all such files.
    """

    limits: CollectLimits
    files: int = 0
    size: int = 0
    left_there: str = ""
    chunks_left: int = 0
    _warned: bool = False

    @property
    def is_full(self) -> bool:
        """Return whether the node has sent the maximum number of files."""
        return self.files >= self.limits.most_files

    @property
    def room(self) -> int:
        """Return the number of bytes that may still be stored."""
        return max(0, self.limits.most_bytes - self.size)

    @property
    def limit_text(self) -> str:
        """Return the exceeded limit, for messages."""
        return f"more than COLLECT_LIMIT_FILES = {self.limits.most_files} files"

    def leave(self, node_id: int, path: str) -> str:
        """Count a chunk of a file beyond the limit; return a message for the first one, otherwise ""."""
        self.chunks_left += 1
        if self.left_there:
            return ""
        self.left_there = path[:80]
        return (
            f"node {node_id}: COLLECT_LIMIT_FILES = {self.limits.most_files} is reached: further "
            "files stay on the node"
        )

    def warning(self, node_id: int) -> str:
        """Return a message when the node comes near a limit for the first time, otherwise ""."""
        limits = self.limits
        is_near = self.size >= WARN_AT * limits.most_bytes or self.files >= WARN_AT * limits.most_files
        if self._warned or not is_near:
            return ""
        self._warned = True
        return (
            f"node {node_id}: {self.size / (1 << 30):.3g} GB in {self.files} files were collected; the node keeps "
            f"files beyond COLLECT_LIMIT_GB ({limits.most_bytes / (1 << 30):.3g}) or "
            f"COLLECT_LIMIT_FILES ({limits.most_files})"
        )
