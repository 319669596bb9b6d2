# SPDX-License-Identifier: Apache-2.0
"""Periodic work of `paddle train` after batches and passes: dots, statistics of parameters, tests and saving."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from logging import Logger
from pathlib import Path

import numpy as np

from paddle.flags import Value
from paddle.trainer import pass_directory
from paddle.v2 import event as events
from paddle.v2.parameters import Parameters
from paddle.v2.trainer import SGD


class Periods:
    """An event handler for the work that flags request after every n-th batch or pass.

    Args:
        flags: flags of `paddle train`.
        config: the configuration file, copied beside the parameters.
        test: tests the network on the test data; None without test data.
        is_first: whether this is trainer 0, the only one that saves and prints statistics.
    """

    def __init__(
        self,
        trainer: SGD,
        parameters: Parameters,
        flags: Mapping[str, Value],
        config: Path,
        test: Callable[[], None] | None,
        log: Logger,
        *,
        is_first: bool,
    ) -> None:
        self._trainer, self._parameters, self._flags, self._config = trainer, parameters, flags, config
        self._test, self._log, self._is_first = test, log, is_first
        self._parts = 0

    def __call__(self, event: object) -> None:
        """Handle an event of the trainer."""
        if isinstance(event, events.EndForwardBackward):
            self._show_dot(event.batch_id + 1)
            self._show_parameters(event.batch_id + 1)
        elif isinstance(event, events.EndIteration):
            self._end_batch(event.pass_id, event.batch_id + 1)
        elif isinstance(event, events.EndPass):
            self._end_pass(event.pass_id)

    def _show_dot(self, batches: int) -> None:
        if int(self._flags["dot_period"]) > 0:
            text = "." if self._is_due("dot_period", batches) else ""
            sys.stderr.write(text + ("\n" if self._is_due("log_period", batches) else ""))
            sys.stderr.flush()

    def _end_batch(self, pass_id: int, batches: int) -> None:
        if self._is_due("test_period", batches):
            self._run_test()
        every = int(self._flags["saving_period_by_batches"])
        if every and batches > every * (self._parts + 1):
            self._parts += 1
            self._save(pass_directory.pass_directory(self._save_dir, pass_id, self._parts))

    def _end_pass(self, pass_id: int) -> None:
        self._parts = 0
        if not int(self._flags["test_period"]):
            self._run_test()
        period = int(self._flags["saving_period"])
        if not period or pass_id % period:
            return
        self._save(pass_directory.pass_directory(self._save_dir, pass_id))
        if self._flags["save_only_one"] and self._is_first:
            pass_directory.remove(
                pass_directory.pass_directory(self._save_dir, pass_id - period), self._log.info
            )

    def _run_test(self) -> None:
        if self._test is not None:
            self._test()

    @property
    def _save_dir(self) -> str:
        return str(self._flags["save_dir"]) or pass_directory.SAVE_DIR

    def _save(self, directory: Path) -> None:
        if not self._is_first:
            return
        self._log.info("Saving parameters to %s", directory)
        with self._trainer.to_save() as parameters:
            pass_directory.save(parameters, directory, self._config)

    def _show_parameters(self, batches: int) -> None:
        if not self._is_first or not self._is_due("show_parameter_stats_period", batches):
            return
        for name in self._parameters.names():
            value = np.abs(self._parameters.get(name))
            gradient = np.abs(self._parameters.get_grad(name))
            self._log.info(
                "%-20s avg_abs_val=%-11.6g max_val=%-11.6g avg_abs_grad=%-11.6g max_grad=%-11.6g",
                name,
                value.mean(),
                value.max(),
                gradient.mean(),
                gradient.max(),
            )

    def _is_due(self, flag: str, batches: int) -> bool:
        period = int(self._flags[flag])
        return period > 0 and batches % period == 0
