# SPDX-License-Identifier: Apache-2.0
"""TrainingLog: writes paddle_trainer.INFO, one line per log_period batches, one per pass, and one per test.

A pass or a test without any batch is a warning, and so is a first batch whose words all have one id.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from logging import Logger
from typing import Any

import numpy as np

from paddle.env import JobEnvironment
from paddle.glog import TRAINER, open_log
from paddle.graph.operator import script_call, script_line
from paddle.ops.base.lod import lod_of, plain
from paddle.signatures import misfit
from paddle.v2 import model
from paddle.v2.data_type import DataType, InputType, SequenceType
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.model import EvaluatorConfig
from paddle.v2.network import Network
from paddle.v2.training.metric import Metrics, Part

_log = logging.getLogger(__name__)
_MANY_IDS, _WIDE = 50, 10  # a first batch with as many equal ids of so wide a type is suspicious

NO_BATCH = (
    "the reader returned no batch: each call of a reader must start from the beginning, and each trainer needs its own "
    "part of the data"
)


def trainer_logger(environment: JobEnvironment) -> Logger:
    """Return the logger of the training log. The first call opens its file, but only if GLOG_logtostderr is set."""
    if environment.glog_to_stderr is not None and not logging.getLogger("paddle").handlers:
        open_log(TRAINER, environment)
    return logging.getLogger(__name__)


class TrainingLog:
    """Writes costs and metrics of a pass, and of the batches since the last line, to the training log."""

    def __init__(self, logger: Logger, period: int, evaluators: Sequence[EvaluatorConfig]) -> None:
        self._logger = logger
        self._period = period
        self._evaluators = evaluators
        self.start_pass(0)

    def start_pass(self, pass_id: int) -> None:
        """Begin a pass over the data."""
        self._pass_id = pass_id
        self._batches = self._samples = self._new_samples = 0
        self._cost = self._new_cost = 0.0
        self.metrics, self._new_metrics = Metrics(self._evaluators), Metrics(self._evaluators)

    def batch(self, cost: float, samples: int, parts: Sequence[Part]) -> None:
        """Record a batch, whose ``cost`` is summed over its samples; write a line if it is due."""
        self._batches += 1
        self._samples += samples
        self._new_samples += samples
        self._cost += cost
        self._new_cost += cost
        self.metrics.add(parts)
        self._new_metrics.add(parts)
        if self._period > 0 and self._batches % self._period == 0:
            self._logger.info(
                " Batch=%d samples=%d AvgCost=%g CurrentCost=%g Eval: %s CurrentEval: %s",
                self._batches,
                self._samples,
                self.mean_cost,
                self._new_cost / self._new_samples,
                _text(self.metrics.report()),
                _text(self._new_metrics.report()),
            )
            self._new_samples, self._new_cost = 0, 0.0
            self._new_metrics = Metrics(self._evaluators)

    @property
    def mean_cost(self) -> float:
        """The mean cost of all samples of this pass so far; NaN if there are none."""
        return self._cost / self._samples if self._samples else math.nan

    def finish_pass(self, read: int) -> None:
        """Write the line for the pass; `read` is the number of batches that the reader yielded.

        A first pass without batches is logged as an error, so that it also appears in the job's train.log.
        """
        if not read:
            level = logging.WARNING if self._pass_id else logging.ERROR
            self._logger.log(level, "pass %d: %s", self._pass_id, NO_BATCH)
        text = _text(self.metrics.report())
        self._logger.info(
            " Pass=%d Batch=%d samples=%d AvgCost=%g Eval: %s",
            self._pass_id,
            self._batches,
            self._samples,
            self.mean_cost,
            text,
        )

    def test(self, cost: float, samples: int, metrics: Mapping[str, float]) -> None:
        """Write the line of a test; ``cost`` is per sample."""
        if not samples:
            self._logger.warning("test: %s", NO_BATCH)
        self._logger.info(" Test samples=%d cost=%g Eval: %s", samples, cost, _text(metrics))


def _text(metrics: Mapping[str, float]) -> str:
    return "".join(f" {name}={value:g} " for name, value in metrics.items())


def check_ids(feed: Mapping[str, Any], name: str, kind: InputType) -> None:
    """Warn if all words of a batch have one id: Python 3 finds no bytes among the str keys of a dictionary."""
    if kind.type == DataType.SparseNonValue:
        ids, count = feed[f"{name}.columns"], int(plain(feed[f"{name}.matrix"]).sum())
    elif kind.type == DataType.Index and kind.seq_type:
        ids = plain(feed[name])
        is_alone = len(lod_of(feed[name])[-1]) == 2  # a sentence may repeat its verb for each word
        count = 0 if is_alone else len(ids)
    else:
        return
    if kind.dim >= _WIDE and count >= _MANY_IDS and (ids == ids[0]).all():
        logging.getLogger(__name__).warning(
            "data layer %r: all %d ids of the first batch are %d. If they come from a dictionary of words, check that "
            "files are read as text: gzip.open(path, 'rt'), and open(path) instead of open(path, 'rb')",
            name,
            count,
            ids[0, 0],
        )


def check_image(name: str, kind: InputType, sample: Any, images: Mapping[str, tuple[int, ...]]) -> None:
    """Warn of a sample whose rows do not begin where layers read those of ``images`` (channels, height, width)."""
    if name not in images or kind.type != DataType.Dense or kind.seq_type:
        return
    shape, image = np.shape(sample), images[name]
    is_last = shape == (*image[1:], *image[:1])
    if not {*np.cumprod(shape).tolist()} <= {1, *np.cumprod(image).tolist()}:
        logging.getLogger(__name__).warning(
            "data layer %r: samples have the shape %s, but image layers read them as (channels, height, width) = %s: "
            "%s",
            name,
            shape,
            image,
            "transpose them, as in paddle.image.to_chw(image)"
            if is_last
            else "resize them, or give the data layer their height and width",
        )


def why_not_finite(feed: Mapping[str, Any]) -> str:
    """Return the reason why the cost of a batch is not finite: a sample's values, or the training itself."""
    for name, value in feed.items():
        bad = ~np.isfinite(value) if value.dtype.kind == "f" else np.zeros(0, bool)
        if bad.any():
            at = np.argwhere(bad)[0]
            text = f"data layer {name!r}, row {at[0]} of the batch: item {at[-1]} is NaN, infinite or None"
            return f"{text}; correct or drop such samples in the reader"
    return (
        "training has diverged; try a smaller learning_rate (gradients are summed over the batch) or "
        "gradient_clipping_threshold"
    )


def checked_handler(handler: Callable[[Any], object] | None) -> Callable[[Any], object]:
    """Return an event handler, by default one that ignores events.

    Raises:
        UsageTypeError: it is not a function of one argument.
    """
    if handler is None:
        if re.search(r"event_handler\s*=\s*\w+\(", script_call()):
            _log.warning(
                "train %s: event_handler is None: pass the function itself, without ()", script_line()
            )
        return _ignore
    if not callable(handler):
        raise UsageTypeError(f"event_handler must be callable, got {type(handler).__name__}")
    if problem := misfit(handler, None):
        raise UsageTypeError(f"event_handler must take one argument, the event: {problem}")
    return handler


def warn_of_late_evaluators(network: Network) -> None:
    """Warn of evaluators of a network's layers that were declared after its trainer was created."""
    known = {each.name for each in network.evaluators}
    for each in model.current().evaluators:
        if each.name not in known and set(network.layers).issuperset(each.inputs):
            _log.warning(
                "evaluator %r has no effect: declare it before trainer.SGD is created",
                each.name,
            )


def _ignore(event: object) -> None:
    """Ignore the event: the default event handler."""


def no_sequence(name: str, kind: InputType, items: list[Any], in_list: bool) -> UsageError:
    """Return the error for a sample, or with `in_list` a sub-sequence, that is not a list although its type is one."""
    found: list[tuple[int, Any, int | None]] = [(at, each, None) for at, each in enumerate(items)]
    if in_list:
        found = [(at, part, number) for at, each in enumerate(items) for number, part in enumerate(each)]
    at, wrong, number = next((each for each in found if not isinstance(each[1], Sized)), found[0])
    place = f"sample {at}" if number is None else f"item {number} of sample {at}"
    expected = "a list (a sequence)" if number is None else "a list (a sub-sequence)"
    suffix = "_sequence" if number is None else "_sub_sequence but with _sequence"
    if number is None and kind.seq_type == SequenceType.SUB_SEQUENCE:
        expected, suffix = "a list of lists (sub-sequences)", "_sub_sequence"
    return UsageError(
        f"data layer {name!r}: expected {expected}, got {wrong!r:.60} in {place}; "
        f"give [{wrong!r:.60}], or declare the layer without {suffix}"
    )
