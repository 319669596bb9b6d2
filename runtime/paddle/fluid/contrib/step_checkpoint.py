# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of `Trainer`, in the original's layout.

DIR/checkpoint_N/ has the persistable variables in __model__/, and the epoch and step of each trainer in trainer_RANK/.
It is written under another name and renamed when complete. A larger N is later.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from paddle.fluid import io
from paddle.fluid.errors import FluidError, ModelFileError
from paddle.fluid.executor import Executor
from paddle.fluid.program.program import Program

_MODEL, _COMPLETE = "__model__", "_SUCCESS"
_NAME = re.compile(r"checkpoint_([0-9]+)")


class CheckpointConfig:
    """Where and when `Trainer` saves checkpoints.

    Attributes:
        epoch_id: epoch of the checkpoint that was restored.
        step_id: last step in it.
        load_serial: its number N; None: training began from the start.
    """

    def __init__(
        self,
        checkpoint_dir: str | None = None,
        max_num_checkpoints: int = 3,
        epoch_interval: int = 1,
        step_interval: int = 10,
    ) -> None:
        """Set the rule.

        Args:
            checkpoint_dir: None: the current directory.
            max_num_checkpoints: older ones are deleted.
            epoch_interval: save in every n-th epoch.
            step_interval: save after every n-th step of these.

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
        """Return whether the restored checkpoint includes an epoch, or a step of it."""
        if self.load_serial is None:
            return False
        if step is None:
            return epoch < self.epoch_id
        return (epoch, step) <= (self.epoch_id, self.step_id)

    def restore(self, executor: Executor, program: Program, trainer_id: int) -> None:
        """Load the last complete checkpoint, if there is one.

        Raises:
            ModelFileError: it lacks this trainer's epoch or step, or a variable.
        """
        serials = self._serials()
        if not serials:
            return
        folder = Path(self.checkpoint_dir, f"checkpoint_{serials[-1]}")
        io.load_persistables(executor, folder / _MODEL, program)
        own = folder / f"trainer_{trainer_id}"
        try:
            self.epoch_id, self.step_id = (int((own / name).read_text()) for name in ("epoch_id", "step_id"))
        except (OSError, ValueError) as error:
            raise ModelFileError(
                f"{own}: cannot read the epoch and step of trainer {trainer_id} ({error}): delete {folder} to start "
                "from the beginning"
            ) from None
        self.load_serial = serials[-1]

    def save(self, executor: Executor, program: Program, trainer_id: int, epoch: int, step: int) -> None:
        """Save a checkpoint if one is due after this step."""
        if epoch % self.epoch_interval or step % self.step_interval:
            return
        serials = self._serials()
        folder = Path(self.checkpoint_dir, f"checkpoint_{serials[-1] + 1 if serials else 0}")
        partial = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        own = partial / f"trainer_{trainer_id}"
        own.mkdir(parents=True)
        io.save_persistables(executor, partial / _MODEL, program)
        (own / "epoch_id").write_text(f"{epoch}\n")
        (own / "step_id").write_text(f"{step}\n")
        (partial / _COMPLETE).touch()
        partial.rename(folder)
        for serial in serials[: len(serials) + 1 - self.max_num_checkpoints]:
            shutil.rmtree(folder.with_name(f"checkpoint_{serial}"))

    def remove_all(self) -> None:
        """Delete all checkpoints: training has ended."""
        for serial in self._serials():
            shutil.rmtree(Path(self.checkpoint_dir, f"checkpoint_{serial}"))

    def _serials(self) -> list[int]:
        """Return the numbers of the complete checkpoints, in order."""
        found = (
            _NAME.fullmatch(path.parent.name) for path in Path(self.checkpoint_dir).glob(f"*/{_COMPLETE}")
        )
        return sorted(int(match[1]) for match in found if match)
