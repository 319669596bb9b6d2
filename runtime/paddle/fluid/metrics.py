# SPDX-License-Identifier: Apache-2.0
"""Metrics that are accumulated over minibatches in Python, by update, eval and reset (DetectionMAP: in a program)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidError, FluidTypeError, answering
from paddle.fluid.executor import Executor
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.detection.boxes import detection_map
from paddle.fluid.layers.metric_op import warn_of_curve
from paddle.fluid.layers.tensor import cast, concat, fill_constant
from paddle.fluid.program.program import Program, program_guard
from paddle.fluid.program.variable import Variable
from paddle.graph import unique_name

__all__ = [
    "Accuracy", "Auc", "ChunkEvaluator", "CompositeMetric", "DetectionMAP", "EditDistance", "MetricBase", "Precision",
    "Recall",
]  # fmt: skip


class MetricBase(ABC):
    """Base class of metrics. Attributes without a leading underscore are counts, which `reset` sets to 0."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or type(self).__name__

    def reset(self) -> None:
        """Reset the metric: set all numbers and arrays to 0, and other attributes to None, as the original does."""
        for name, value in self.get_config().items():
            if isinstance(value, (np.ndarray, np.generic)):
                setattr(self, name, np.zeros_like(value))
            else:
                setattr(self, name, type(value)(0) if isinstance(value, (int, float)) else None)

    def get_config(self) -> dict[str, Any]:
        """Return the metric's counts as a dict, by name."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @abstractmethod
    def eval(self) -> Any:
        """Compute the metric over all minibatches since the last reset."""


class CompositeMetric(MetricBase):
    """A group of metrics of the same predictions, updated together."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[Any] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric, which `update` and `eval` then include."""
        if not isinstance(metric, MetricBase):
            raise FluidTypeError(f"add_metric: expected a metric, got {metric!r}")
        self._metrics.append(metric)

    def reset(self) -> None:
        """Reset all metrics of the group."""
        for metric in self._metrics:
            metric.reset()

    def update(self, preds: Any, labels: Any) -> None:
        """Update all metrics of the group with a minibatch's predictions and labels."""
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[Any]:
        """Return a list of the metrics' values, in the order in which the metrics were added."""
        return [metric.eval() for metric in self._metrics]


class Precision(MetricBase):
    """Computes precision: the fraction of true positives among the predicted positives."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fp = 0

    def update(self, preds: npt.ArrayLike, labels: npt.ArrayLike) -> None:
        """Add a minibatch of predictions, which are rounded to 0 or 1, and labels (0 or 1)."""
        positive, true = _rounded(preds) == 1, np.asarray(labels).reshape(-1) == 1
        self.tp += int((positive & true).sum())
        self.fp += int((positive & ~true).sum())

    def eval(self) -> float:
        """Return the precision; 0 if there are no predicted positives."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 0.0


class Recall(MetricBase):
    """Computes recall: the fraction of true positives among the actual positives."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fn = 0

    def update(self, preds: npt.ArrayLike, labels: npt.ArrayLike) -> None:
        """Add a minibatch of predictions, which are rounded to 0 or 1, and labels (0 or 1)."""
        positive, true = _rounded(preds) == 1, np.asarray(labels).reshape(-1) == 1
        self.tp += int((positive & true).sum())
        self.fn += int((~positive & true).sum())

    def eval(self) -> float:
        """Return the recall; 0 if there are no actual positives."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 0.0


class Accuracy(MetricBase):
    """Computes the accuracy over all minibatches, as the mean of their accuracies weighted by their sizes."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value = 0.0
        self.weight = 0.0

    def update(self, value: Any, weight: float | None = None) -> None:
        """Add the accuracy of a minibatch of `weight` samples, which must be given."""
        if weight is None:
            raise FluidTypeError(
                "Accuracy.update: weight is missing: pass the size of the batch, as in update(value, weight=len(batch))"
            )
        if weight < 0:
            raise FluidError(f"Accuracy: weight must not be negative, got {weight}")
        self.value += float(np.asarray(value).reshape(-1)[0]) * weight
        self.weight += weight

    def eval(self) -> float:
        """Return the weighted mean of all accuracies since the last reset.

        Raises:
            FluidError: no minibatch was added.
        """
        if not self.weight:
            raise FluidError(
                "Accuracy: no sample has been counted yet; call update(value, weight=batch_size) first"
            )
        return self.value / self.weight


class ChunkEvaluator(MetricBase):
    """Computes precision, recall and F1 score from the counts that `layers.chunk_eval` returns."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks = 0
        self.num_label_chunks = 0
        self.num_correct_chunks = 0

    def update(self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any) -> None:
        """Add a minibatch's numbers of predicted, labeled and correctly predicted chunks."""
        self.num_infer_chunks += int(np.asarray(num_infer_chunks).reshape(-1)[0])
        self.num_label_chunks += int(np.asarray(num_label_chunks).reshape(-1)[0])
        self.num_correct_chunks += int(np.asarray(num_correct_chunks).reshape(-1)[0])

    def eval(self) -> tuple[float, float, float]:
        """Return the precision, recall and F1 score of all chunks since the last reset."""
        right = self.num_correct_chunks
        precision = right / self.num_infer_chunks if self.num_infer_chunks else 0.0
        recall = right / self.num_label_chunks if self.num_label_chunks else 0.0
        return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


class EditDistance(MetricBase):
    """Computes the mean edit distance, and the fraction of sequences with errors; see `layers.edit_distance`."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.total_distance = 0.0
        self.seq_num = 0
        self.instance_error = 0

    def update(self, distances: npt.ArrayLike, seq_num: int) -> None:
        """Add the distances of a minibatch, (n, 1) or (n,), and its number of sequences."""
        each = np.asarray(distances)
        self.total_distance += float(each.sum())
        self.seq_num += int(np.asarray(seq_num).reshape(-1)[0])
        self.instance_error += int((each != 0).sum())

    def eval(self) -> tuple[float, float]:
        """Return the mean distance and the fraction of sequences with errors since the last reset.

        Raises:
            FluidError: no sequence was added.
        """
        if not self.seq_num:
            raise FluidError("EditDistance: no batch has been counted yet; call update first")
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


class Auc(MetricBase):
    """Computes the area under the ROC curve from histograms of the predicted probabilities."""

    def __init__(self, name: str | None = None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        super().__init__(name)
        warn_of_curve(curve)
        self._thresholds = num_thresholds
        self.stat_pos = np.zeros(num_thresholds + 1, np.int64)
        self.stat_neg = np.zeros(num_thresholds + 1, np.int64)

    def update(self, preds: npt.ArrayLike, labels: npt.ArrayLike) -> None:
        """Add a minibatch of probabilities (N, 2), whose column 1 is used, and of labels 0 or 1."""
        places = (np.asarray(preds)[:, 1] * self._thresholds).astype(int)
        true = np.asarray(labels).reshape(-1) == 1
        np.add.at(self.stat_pos, places[true], 1)
        np.add.at(self.stat_neg, places[~true], 1)

    def eval(self) -> float:
        """Return the area under the curve; 0 if the labels so far contain only one class."""
        positive, negative = (np.cumsum(each[::-1]) for each in (self.stat_pos, self.stat_neg))
        if not positive[-1] or not negative[-1]:
            return 0.0
        heights = (positive + np.concatenate([[0], positive[:-1]])) / 2
        return float((np.diff(negative, prepend=0) * heights).sum() / positive[-1] / negative[-1])


class DetectionMAP:
    """Computes the mean average precision (mAP) of detections, in variables that each run of the main program updates.

    Args:
        input: (rows, 6) label, score and box, one sequence per image; see `multiclass_nms`.
        gt_label: (objects, 1), one sequence per image, as for the next two arguments.
        gt_box: (objects, 4).
        gt_difficult: (objects, 1), 0 or 1.
        class_num: number of classes.

    For the other arguments, see `layers.detection_map`.
    """

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        if class_num is None:
            raise FluidError("DetectionMAP: class_num (the number of classes) is required")
        self.helper = LayerHelper("map_eval")
        columns = [gt_label, gt_box] if gt_difficult is None else [gt_label, gt_difficult, gt_box]
        label = concat([*(cast(each, gt_box.dtype) for each in columns[:-1]), gt_box], axis=1)
        states = [
            self._state("accum_pos_count", "int32", (class_num, 1)),
            self._state("accum_true_pos", "float32", (-1, 2), 1),
            self._state("accum_false_pos", "float32", (-1, 2), 1),
        ]
        self.has_state = self._state("has_state", "int32", (1,))

        def mean(**counted: Any) -> Variable:
            return detection_map(
                input,
                label,
                class_num,
                background_label,
                overlap_threshold=overlap_threshold,
                evaluate_difficult=evaluate_difficult,
                ap_version=ap_version,
                **counted,
            )

        self.cur_map = mean()
        self.accum_map = mean(has_state=self.has_state, input_states=states, out_states=states)
        fill_constant([1], "int32", 1, out=self.has_state)

    def get_map_var(self) -> tuple[Variable, Variable]:
        """Return two variables (1,): the mAP of the minibatch, and the mAP since the last reset."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Executor, reset_program: Program | None = None) -> None:
        """Reset the counts, by an operator that is appended to `reset_program` (or a new program) and run."""
        program = reset_program or Program()
        with program_guard(program):
            state = self.has_state
            twin = program.current_block().create_var(state.name, state.shape, state.dtype, persistable=True)
            fill_constant([1], "int32", 0, out=twin)
        executor.run(program)

    def _state(self, suffix: str, dtype: str, shape: tuple[int, ...], lod_level: int = 0) -> Variable:
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_global_variable(name, shape, dtype, persistable=True)
        state.lod_level = lod_level
        block = self.helper.startup_program.global_block()
        twin = block.create_var(name, shape, dtype, persistable=True)
        first = tuple(max(size, 1) for size in shape)
        attrs = {"shape": first, "dtype": dtype, "value": 0.0}
        block.append_op("fill_constant", outputs={"Out": twin}, attrs=attrs)
        return state


def _rounded(preds: npt.ArrayLike) -> npt.NDArray[np.int64]:
    rounded: npt.NDArray[np.int64] = np.rint(np.asarray(preds)).astype(np.int64)
    return rounded.reshape(-1)


class WeightedAverage:
    """Computes the weighted mean of numbers or of arrays of one shape."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Discard all values added so far."""
        self._sum: Any = None
        self._weight = 0.0

    def add(self, value: Any, weight: float) -> None:
        """Add a number or an array with the given weight."""
        scaled = np.asanyarray(value) * weight
        self._sum = scaled if self._sum is None else self._sum + scaled
        self._weight += weight

    def eval(self) -> Any:
        """Return the weighted mean of all values since the last reset.

        Raises:
            FluidError: no value was added.
        """
        if self._sum is None or not self._weight:
            raise FluidError("WeightedAverage: no values have been added yet; call add first")
        return self._sum / self._weight


__getattr__ = answering(__name__)
