# SPDX-License-Identifier: Apache-2.0
"""The jobs of `paddle train`, a function each: train, test, time and checkgrad.

`Periods` does their periodic work after batches and passes: progress dots, statistics of parameters, tests and saving.
"""

from __future__ import annotations

import sys
import time as clock
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import Logger
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.trainer import pass_directory
from paddle.trainer.session import Session
from paddle.v2 import event as events
from paddle.v2.errors import UsageError
from paddle.v2.inference import Inference
from paddle.v2.layer.output import LayerOutput
from paddle.v2.parameters import Parameters
from paddle.v2.trainer import SGD
from paddle_node.contract.flags import Value


class Periods:
    """An event handler that does the work requested by flags after every n-th batch or pass.

    Args:
        flags: flags of `paddle train`.
        config: the configuration file, copied to the parameters' directory.
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


_WARM_UP = 10
_TOLERANCE = 0.01
_LEAST_STEP = 1e-4


def train(session: Session, log: Logger, *, is_local: bool) -> None:
    """Train all passes; `Periods` does the periodic work that flags request."""
    flags = session.flags
    trainer = session.trainer(is_local=is_local)
    log.info("trainer mode: Normal")

    def test() -> None:
        trainer.test(session.test_batches, session.columns)

    handler = Periods(
        trainer,
        session.parameters,
        flags,
        Path(str(flags["config"])),
        test if session.has_tests else None,
        log,
        is_first=not int(flags["trainer_id"]),
    )
    passes = int(flags["num_passes"]) - int(flags["start_pass"])
    with warnings.catch_warnings():
        if passes <= 0:  # --num_passes=0 only loads and saves
            warnings.filterwarnings("ignore", "num_passes=0")
        trainer.train(session.train_batches, max(passes, 0), handler, session.columns)
    trainer.close()


def test(session: Session, log: Logger, *, is_local: bool) -> None:
    """Evaluate the parameters in each directory that the flags name, or write the network's outputs to files.

    If predict_output_dir or feat_file is set, the outputs are written there, as text or float32, and no test is made.
    """
    log.info("trainer mode: Testing")
    writers = {name: writer for name, writer in _WRITERS.items() if session.flags[name]}
    for directory in _tested(session):
        if directory is not None:
            if session.flags["test_wait"]:
                pass_directory.wait(directory, log.info)
            session.load(directory)
        for name, writer in writers.items():
            writer(session, Path(str(session.flags[name])))
        if not session.has_cost and not writers:
            session.evaluate()
        elif writers.keys() <= {"predict_file"}:
            trainer = session.trainer(is_local=True)
            trainer.test(session.test_batches, session.columns)


def time(session: Session, log: Logger, *, is_local: bool) -> None:
    """Train on ten batches, then log the time that the next test_period batches take."""
    flags, trainer = session.flags, session.trainer(is_local=is_local)
    measured = int(flags["test_period"]) or _WARM_UP
    batches = session.train_batches()
    first = next(batches, None)
    if first is None:
        raise UsageError("the data provider has no samples, and --job=time needs at least one batch")
    began: list[float] = []

    def reader() -> Iterator[list[object]]:
        log.info("Burning time...")
        for number in range(_WARM_UP + measured):
            if number == _WARM_UP:
                log.info("Burning time end.")
            following = next(batches, None) if flags["feed_data"] and number >= _WARM_UP else first
            if following is None:
                return
            yield list(following)

    def handler(event: object) -> None:
        if isinstance(event, events.EndIteration):
            began.append(clock.perf_counter())

    trainer.train(reader, 1, handler, session.columns)
    trainer.close()
    steps = np.diff(began[_WARM_UP - 1 :]) * 1e3
    if not steps.size:
        raise UsageError(
            f"--job=time: a pass has only {len(began)} batches, and the first {_WARM_UP} are not measured; omit "
            "feed_data to use the first batch again"
        )
    log.info(
        "FwdBwd batches=%d samples=%d total=%.3fms avg=%.3fms max=%.3fms min=%.3fms",
        steps.size,
        steps.size * len(first),
        steps.sum(),
        steps.mean(),
        steps.max(),
        steps.min(),
    )


def checkgrad(session: Session, log: Logger, *, is_local: bool) -> None:
    """Compare the gradients of one batch with finite differences of its cost.

    Each parameter is moved along its gradient, in both directions, until the cost changes by the fraction checkgrad_eps
    of its value. Values are float32, so a fraction below 1e-4 is raised to 1e-4.
    """
    machine, feed = session.machine(), session.feed()
    share = max(float(session.flags["checkgrad_eps"]), _LEAST_STEP)
    cost, gradients = session.loss(machine, feed)
    for name, gradient in gradients.items():
        square = float(np.sum(np.square(gradient, dtype=np.float64)))
        if not square:
            log.info("%20s has no gradient", name)
            continue
        step, value, found = share * cost / square, np.array(machine.newest(name)), []
        for sign in (1, -1):
            machine.replace(name, (value.reshape(-1) + sign * step * gradient.reshape(-1)).astype(np.float32))
            found.append(session.loss(machine, feed)[0])
        machine.replace(name, value)
        true, analytic = (found[0] - found[1]) / 2, step * square
        difference = abs(true - analytic) / abs(analytic)
        log.info(
            "%20s step=%-11.6g cost1=%-11.6g cost2=%-11.6g true_delta=%-11.6g analytic_delta=%-11.6g diff=%.6g%s",
            name,
            step,
            *found,
            true,
            analytic,
            difference,
            " ***" if difference > _TOLERANCE else "",
        )


def _tested(session: Session) -> list[Path | None]:
    """Return the directories to test: those of a list, those of passes, or the initial one, which is already loaded."""
    flags = session.flags
    if flags["model_list"]:
        try:
            lines = Path(str(flags["model_list"])).read_text(encoding="utf-8").split()
        except OSError as error:
            raise UsageError(f"cannot read --model_list={flags['model_list']}: {error.strerror}") from error
        return [Path(line) for line in lines]
    first, end = int(flags["test_pass"]), int(flags["num_passes"])
    if first >= 0:
        folder = str(flags["save_dir"]) or pass_directory.SAVE_DIR
        return [pass_directory.pass_directory(folder, pass_id) for pass_id in range(first, end)]
    if not flags["init_model_path"]:
        raise UsageError("--job=test needs --init_model_path, --test_pass with --save_dir, or --model_list")
    return [None]


def _rows(session: Session, layers: Sequence[LayerOutput]) -> Iterator[list[NDArray[Any]]]:
    """Yield the values of some layers for each batch of test data, one array (rows, columns) per layer."""
    with session.entered():
        inference = Inference(session.parameters, layers)
    for batch in session.test_batches():
        for result in inference.iter_infer(batch, session.columns):
            values = map(_shown, result)
            yield [value.reshape(len(value), -1) for value in values]


def _predict(session: Session, folder: Path) -> None:
    """Write a line for each row of the outputs, with a number and a semicolon for each column."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"rank-{int(session.flags['trainer_id']):05d}").open("w", encoding="ascii") as file:
        for columns in _rows(session, session.outputs):
            for row in zip(*columns, strict=True):
                file.write("".join(f"{cell:g};" for each in row for cell in each) + "\n")


def _append_features(session: Session, path: Path) -> None:
    """Append each row of the outputs as float32 numbers, those of all outputs one after another."""
    with path.open("ab") as file:
        for columns in _rows(session, session.outputs):
            file.write(np.concatenate(columns, axis=1, dtype=np.float32).tobytes())


def _write_pairs(session: Session, path: Path) -> None:
    """Write a line with score, label and query for each row that a pnpair_evaluator reads."""
    space = session.config.configuration.space
    found = [item.inputs[:3] for item in (space.evaluators if space else ()) if item.type == "pnpair"]
    if not found:
        raise UsageError("--predict_file needs a pnpair_evaluator, and the configuration has none")
    with path.open("w", encoding="ascii") as file:
        for names in found:
            assert space is not None
            for columns in _rows(session, [LayerOutput(space.layers[name]) for name in names]):
                for score, label, query in zip(*(each[:, -1] for each in columns), strict=True):
                    file.write(f"{score:g} {int(label)} {int(query)}\n")


_WRITERS: Mapping[str, Callable[[Session, Path], None]] = {
    "predict_output_dir": _predict,
    "feat_file": _append_features,
    "predict_file": _write_pairs,
}


def _shown(fields: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return a layer's printed values: its ids if it has any, otherwise its values."""
    return fields["id"] if "id" in fields else fields["value"]


Job = Callable[..., None]
JOBS: Mapping[str, Job] = MappingProxyType(
    {"train": train, "test": test, "checkgrad": checkgrad, "time": time}
)
"""The values of `--job`."""
