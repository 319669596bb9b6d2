# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of `Trainer`, in the original's directory layout.

DIR/checkpoint_N/ contains the persistable variables in __model__/, the epoch and step in trainer_RANK/, and each file's
size and CRC-32 in _SUCCESS. It is written under a temporary name and renamed when complete. The newest checkpoint has
the largest N.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import zlib
from pathlib import Path

from paddle.fluid import io
from paddle.fluid.errors import FluidError, ModelFileError
from paddle.fluid.executor import Executor
from paddle.fluid.program.program import Program
from paddle_node.linux.descriptors import sync

_MODEL, _COMPLETE = "__model__", "_SUCCESS"
_NAME = re.compile(r"checkpoint_(0|[1-9][0-9]*)")
_log = logging.getLogger(__name__)


class CheckpointConfig:
    """Settings of `Trainer` for checkpoints: their directory, interval and maximum number.

    Attributes:
        epoch_id: the restored checkpoint's epoch.
        step_id: the last step of this epoch that the checkpoint includes.
        load_serial: the restored checkpoint's number N; None means training began from the start.
    """

    def __init__(
        self,
        checkpoint_dir: str | None = None,
        max_num_checkpoints: int = 3,
        epoch_interval: int = 1,
        step_interval: int = 10,
    ) -> None:
        """Set the location and the interval of checkpoints.

        Args:
            checkpoint_dir: parent directory of the checkpoints; None means the current directory.
            max_num_checkpoints: maximum number of checkpoints; older ones are deleted.
            epoch_interval: save only in every n-th epoch.
            step_interval: save after every n-th step of such an epoch.

        Raises:
            FluidError: a number is smaller than 1.
        """
        for name, number in (
            ("max_num_checkpoints", max_num_checkpoints),
            ("epoch_interval", epoch_interval),
            ("step_interval", step_interval),
        ):
            if number < 1:
                raise FluidError(f"CheckpointConfig: {name}: expected at least 1, got {number}")
        self.checkpoint_dir = os.getcwd() if checkpoint_dir is None else checkpoint_dir
        self.max_num_checkpoints = max_num_checkpoints
        self.epoch_interval, self.step_interval = epoch_interval, step_interval
        self.epoch_id, self.step_id = 0, -1
        self.load_serial: int | None = None

    def has_done(self, epoch: int, step: int | None = None) -> bool:
        """Return whether the restored checkpoint includes an epoch, or a step of that epoch."""
        if self.load_serial is None:
            return False
        if step is None:
            return epoch < self.epoch_id
        return (epoch, step) <= (self.epoch_id, self.step_id)

    def restore(self, executor: Executor, program: Program, trainer_id: int) -> None:
        """Load the newest undamaged checkpoint, if there is one; log a warning for each checkpoint that is skipped.

        Raises:
            ModelFileError: all existing checkpoints are damaged, or the program has different variables.
        """
        serials = self._serials()
        for serial in reversed(serials):
            folder = self._folder(serial)
            own = folder / f"trainer_{trainer_id}"
            try:
                _check_files(folder)
                position = [int((own / name).read_text()) for name in ("epoch_id", "step_id")]
            except (OSError, ValueError) as error:
                _log.warning("skipping the damaged checkpoint %s: %s", folder, error)
                continue
            io.load_persistables(executor, folder / _MODEL, program)
            self.epoch_id, self.step_id = position
            self.load_serial = serial
            return
        if serials:
            raise ModelFileError(
                f"all checkpoints in {self.checkpoint_dir} are damaged: delete them to start from the beginning"
            )

    def save(self, executor: Executor, program: Program, trainer_id: int, epoch: int, step: int) -> None:
        """Save a checkpoint if one is due after this step; delete the oldest checkpoints beyond the limit."""
        if epoch % self.epoch_interval or step % self.step_interval:
            return
        serials, names = self._serials(), Path(self.checkpoint_dir).glob("checkpoint_*")
        numbers = [int(match[1]) for match in (_NAME.fullmatch(path.name) for path in names) if match]
        folder = self._folder(max(numbers, default=-1) + 1)
        partial = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        own = partial / f"trainer_{trainer_id}"
        own.mkdir(parents=True)
        io.save_persistables(executor, partial / _MODEL, program)
        (own / "epoch_id").write_text(f"{epoch}\n")
        (own / "step_id").write_text(f"{step}\n")
        (partial / _COMPLETE).write_text("".join(_listed(partial)))
        for path in (*partial.rglob("*"), partial):
            sync(path)
        partial.rename(folder)
        sync(folder.parent)
        for serial in serials[: max(0, len(serials) + 1 - self.max_num_checkpoints)]:
            self._remove(serial)

    def end(self) -> None:
        """Delete all checkpoints, because training is complete; the next run starts at its first step."""
        for serial in self._serials():
            self._remove(serial)
        self.load_serial = None

    def _serials(self) -> list[int]:
        """Return the numbers of the complete checkpoints, in order."""
        found = (
            _NAME.fullmatch(path.parent.name) for path in Path(self.checkpoint_dir).glob(f"*/{_COMPLETE}")
        )
        return sorted(int(match[1]) for match in found if match)

    def _folder(self, serial: int) -> Path:
        return Path(self.checkpoint_dir, f"checkpoint_{serial}")

    def _remove(self, serial: int) -> None:
        folder = self._folder(serial)
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        shutil.rmtree(folder.rename(old))


def _listed(folder: Path) -> list[str]:
    """Return a line with CRC-32, size and relative path of each file."""
    return [
        f"{zlib.crc32(path.read_bytes()):08x} {path.stat().st_size} {path.relative_to(folder)}\n"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != _COMPLETE
    ]


def _check_files(folder: Path) -> None:
    """Check the files of a checkpoint. Checkpoints of the original have an empty list and are not checked.

    Raises:
        ModelFileError: a file is missing or has different contents.
    """
    expected = (folder / _COMPLETE).read_text().splitlines(keepends=True)
    wrong = set(expected).difference(_listed(folder)) if expected else set()
    if wrong:
        raise ModelFileError(
            f"{min(wrong).split(maxsplit=2)[-1].strip()} is missing, or differs from its checksum in {_COMPLETE}"
        )
