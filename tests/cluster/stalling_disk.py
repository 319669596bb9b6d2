# SPDX-License-Identifier: Apache-2.0
"""A disk of its own, a file system in a file, that stops taking writes for as long as it is told to."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType

SIZE_MB = 8192  # most of it a hole
INODES_PER_MB = 180


class StallingDisk:
    """A mounted ext4 image. Use it as a context; needs root.

    Attributes:
        path: where it is mounted.
    """

    def __init__(self, size_mb: int = SIZE_MB) -> None:
        self._state = Path(tempfile.mkdtemp(prefix="paddle-disk-", dir="/var/tmp"))
        self.path = self._state / "mount"
        self.path.mkdir()
        image = self._state / "image"
        with image.open("wb") as file:
            file.truncate(size_mb << 20)
        options = ["-q", "-F", "-N", str(INODES_PER_MB * size_mb), "-O", "^has_journal"]
        subprocess.run(["mkfs.ext4", *options, str(image)], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(self.path)], check=True, capture_output=True)
        self._lock = threading.Lock()
        self._is_frozen = False
        self._slow: threading.Thread | None = None
        self._ends = threading.Event()

    def freeze(self) -> None:
        """Let writers wait from now on."""
        with self._lock:
            if not self._is_frozen:
                subprocess.run(["fsfreeze", "--freeze", str(self.path)], check=True)
                self._is_frozen = True

    def thaw(self) -> None:
        """Let them go on."""
        with self._lock:
            if self._is_frozen:
                subprocess.run(["fsfreeze", "--unfreeze", str(self.path)], check=True)
                self._is_frozen = False

    def stall(self, seconds: float) -> None:
        """Take no writes for a while, or until the end."""
        self.freeze()
        self._ends.wait(seconds)
        self.thaw()

    def be_slow(self, frozen_s: float = 0.3, thawed_s: float = 0.1) -> None:
        """Take writes for a part of the time only, from now on until `be_fast`."""

        def alternate() -> None:
            while not self._ends.wait(thawed_s):
                self.stall(frozen_s)

        self._slow = threading.Thread(target=alternate, name="slow disk")
        self._slow.start()

    def be_fast(self) -> None:
        """Take every write at once again."""
        self._ends.set()
        if self._slow is not None:
            self._slow.join()
            self._slow = None
        self._ends.clear()
        self.thaw()

    def close(self) -> None:
        """Unmount it, and leave nothing."""
        self.be_fast()
        subprocess.run(["umount", "--lazy", str(self.path)], check=False, capture_output=True)
        shutil.rmtree(self._state, ignore_errors=True)

    def __enter__(self) -> StallingDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
