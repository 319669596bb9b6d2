# SPDX-License-Identifier: Apache-2.0
"""Metrics of evaluators: a batch's contribution, the sum of contributions, and the reported values.

A contribution is an array that is summed elementwise. Exceptions are AUC, whose contributions are histograms of the
bins in use, and pnpair and detection, whose contributions are rows that are evaluated together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paddle.ops.base.lod import LoDArray, plain
from paddle.ops.base.segments import joined
from paddle.ops.detection.detection_map import Marks, by_area, by_points, mark, running
from paddle.ops.metric.chunk_eval import chunk_eval
from paddle.ops.metric.edit_distance import edit_distance
from paddle.v2.model import Attrs, EvaluatorConfig
from paddle.v2.training.printers import PRINTERS
from paddle_node.contract.classes import NamedTuple

Values: TypeAlias = Sequence[NDArray[Any]]
Part: TypeAlias = NDArray[np.float64]
_AUC_BINS = (1 << 24) - 1


class _Kind(NamedTuple):
    measure: Callable[[Values, Attrs], Part]
    merge: Callable[[Part, Part], Part]
    report: Callable[[Part, Attrs], dict[str, float]]
    of_sequences: bool = False


class Metric:
    """Accumulates the metric of one evaluator over batches."""

    def __init__(self, config: EvaluatorConfig) -> None:
        self.config = config
        self._kind = _KINDS["sum" if config.type in PRINTERS else config.type]
        self._part: Part | None = None

    def measure(self, values: Sequence[Any]) -> Part:
        """Compute a batch's contribution; `values` are those of `config.inputs`, as `LoDArray`s for sequences."""
        if self.config.type in PRINTERS:
            PRINTERS[self.config.type](self.config, values)
            return np.zeros(0)
        if not self._kind.of_sequences:
            values = [plain(value) for value in values]
        return self._kind.measure(values, self.config.attrs)

    def add(self, part: Part) -> None:
        """Add a batch's contribution to the metric."""
        self._part = part if self._part is None else self._kind.merge(self._part, part)

    def report(self) -> dict[str, float]:
        """Return the values of the metric by name; empty before the first batch."""
        if self._part is None or self.config.type in PRINTERS:
            return {}
        found = self._kind.report(self._part, self.config.attrs)
        return {
            f"{self.config.name}.{field}" if field else self.config.name: value
            for field, value in found.items()
        }


class Metrics:
    """Accumulates the metrics of all evaluators of a network over batches."""

    def __init__(self, configs: Sequence[EvaluatorConfig]) -> None:
        self._metrics = [Metric(config) for config in configs]

    def measure(self, values: Mapping[str, Any]) -> list[Part]:
        """Compute a batch's contribution to each evaluator's metric."""
        return [
            metric.measure([values.get(name) for name in metric.config.reads]) for metric in self._metrics
        ]

    def add(self, parts: Sequence[Part]) -> None:
        """Add a batch's contributions to all metrics."""
        for metric, part in zip(self._metrics, parts, strict=True):
            metric.add(part)

    def report(self) -> dict[str, float]:
        """Return the values of all metrics by name."""
        return {name: value for metric in self._metrics for name, value in metric.report().items()}


def _weights(values: Values, attrs: Attrs, rows: int) -> NDArray[np.float64]:
    if attrs.get("weighted"):
        return values[-1].reshape(-1).astype(np.float64)
    return np.ones(rows)


def _add(left: Part, right: Part) -> Part:
    return left + right


def _ratio(part: Part, attrs: Attrs) -> dict[str, float]:
    return {"": float(part[0] / part[1]) if part[1] else 0.0}


def _classification_error(values: Values, attrs: Attrs) -> Part:
    output, label = values[0], values[1].reshape(-1)
    weights = _weights(values, attrs, len(label))
    if output.shape[1] == 1:
        wrong = (output[:, 0] > attrs["threshold"]) != (label > 0)
    elif attrs["top_k"] == 1:
        wrong = output.argmax(axis=1) != label
    else:
        # The label is among the k largest if fewer than k columns beat it.
        own = np.take_along_axis(output, label[:, None].astype(np.int64), axis=1)
        wrong = (output > own).sum(axis=1) >= attrs["top_k"]
    return np.array([weights[wrong].sum(), weights.sum()])


def _sum(values: Values, attrs: Attrs) -> Part:
    weights = _weights(values, attrs, len(values[0]))
    return np.array([(values[0].astype(np.float64).sum(axis=1) * weights).sum(), weights.sum()])


def _column_sum(values: Values, attrs: Attrs) -> Part:
    weights = _weights(values, attrs, len(values[0]))
    return np.array([(values[0][:, -1].astype(np.float64) * weights).sum(), weights.sum()])


def _auc(values: Values, attrs: Attrs) -> Part:
    score, positive = values[0][:, -1].astype(np.float64), values[1].reshape(-1) > 0
    weights = _weights(values, attrs, len(positive))
    bins = np.clip(score * _AUC_BINS, 0, _AUC_BINS).astype(np.int64).astype(np.float64)
    return _histogram(np.stack([bins, weights * positive, weights * ~positive]))


def _histogram(rows: Part) -> Part:
    bins, place = np.unique(rows[0], return_inverse=True)
    sides = [np.bincount(place, side, len(bins)) for side in rows[1:]]
    return np.stack([bins, *sides])


def _merge_auc(left: Part, right: Part) -> Part:
    return _histogram(np.concatenate([left, right], axis=1))


def _report_auc(part: Part, attrs: Attrs) -> dict[str, float]:
    positives, negatives = part[1][::-1], part[2][::-1]
    above = np.cumsum(positives)
    area = (negatives * (above - positives / 2)).sum()
    total = positives.sum() * negatives.sum()
    return {"": float(area / total) if total else 0.0}


def _precision_recall(values: Values, attrs: Attrs) -> Part:
    output, label = values[0], values[1].reshape(-1).astype(np.int64)
    classes = max(output.shape[1], 2)
    weights = _weights(values, attrs, len(label))
    chosen = (output[:, 0] > 0.5).astype(np.int64) if output.shape[1] == 1 else output.argmax(axis=1)
    hit = chosen == label
    true = np.bincount(label[hit], weights[hit], classes)
    false = np.bincount(chosen[~hit], weights[~hit], classes)
    missed = np.bincount(label[~hit], weights[~hit], classes)
    return np.stack([true, false, missed])


def _report_precision_recall(part: Part, attrs: Attrs) -> dict[str, float]:
    chosen = attrs["positive_label"]
    assert isinstance(chosen, int)
    if chosen >= 0:
        precision, recall, f1 = _scores(*part[:, chosen])
        return {"precision": precision, "recal": recall, "F1-score": f1}
    of_classes = np.array([_scores(*column) for column in part.T])
    macro = of_classes[:, :2].mean(axis=0)
    micro = _scores(*part.sum(axis=1))
    return {
        "macro-average-precision": float(macro[0]),
        "macro-average-recall": float(macro[1]),
        "macro-average-F1-score": _f1(float(macro[0]), float(macro[1])),
        "micro-average-precision": micro[0],
        "micro-average-recall": micro[1],
        "micro-average-F1-score": micro[2],
    }


def _scores(true: float, false: float, missed: float) -> tuple[float, float, float]:
    precision = float(true / (true + false)) if true + false else 1.0
    recall = float(true / (true + missed)) if true + missed else 1.0
    return precision, recall, _f1(precision, recall)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _chunk(values: Sequence[Any], attrs: Attrs) -> Part:
    """Return the numbers of predicted, true and correctly predicted chunks."""
    settings: dict[str, Any] = {
        key: attrs[key] for key in ("num_chunk_types", "chunk_scheme", "excluded_chunk_types")
    }
    counts = chunk_eval(plain(values[0]), values[1], **settings)[3:]
    return np.array([int(count[0]) for count in counts], np.float64)


def _report_chunk(part: Part, attrs: Attrs) -> dict[str, float]:
    found, wanted, right = part
    precision, recall = (float(right / count) if count else 0.0 for count in (found, wanted))
    return {"precision": precision, "recall": recall, "F1-score": _f1(precision, recall)}


def _ctc_error(values: Sequence[Any], attrs: Attrs) -> Part:
    """Return the sum of distances over lengths, and the number of sequences."""
    scores, labels = (LoDArray(each.data, (joined(each.lod),)) for each in values)
    best = scores.data.argmax(axis=1)
    blank = scores.shape[1] - 1
    starts = np.zeros(len(best), bool)
    starts[scores.lod[-1][:-1][np.diff(scores.lod[-1]) > 0]] = True
    said = (best != blank) & (starts | (best != np.concatenate([[-1], best[:-1]])))
    ends = np.concatenate([[0], said.cumsum()])[scores.lod[-1]]
    found = LoDArray(best[said], (ends,))
    distances = edit_distance(found, labels, normalized=False)[0].ravel()
    longer = np.maximum(np.maximum(np.diff(ends), np.diff(labels.lod[-1])), 1)
    return np.array([(distances / longer).sum(), len(distances)])


def _pnpair(values: Values, attrs: Attrs) -> Part:
    """Return query, label, score and weight of each row."""
    score, label, query = (each.reshape(len(each), -1)[:, -1].astype(np.float64) for each in values[:3])
    return np.stack([query, label, score, _weights(values, attrs, len(score))])


def _report_pnpair(part: Part, attrs: Attrs) -> dict[str, float]:
    right = wrong = 0.0
    for query in np.unique(part[0]):
        _, label, score, weight = part[:, part[0] == query]
        order = np.sign(label[:, None] - label) * np.sign(score[:, None] - score)
        of_pair = np.triu(weight[:, None] + weight, 1) / 2
        right += float(of_pair[order > 0].sum())
        wrong += float(of_pair[order < 0].sum())
    return {"": right / (wrong if wrong > 0 else 1.0)}


def _detection(values: Sequence[Any], attrs: Attrs) -> Part:
    """Return rows (0, class, number of objects, 0), and for each detected box (1, class, score, whether correct)."""
    found, label = plain(values[0]), values[1]
    # From class, box and whether it is difficult to the order of Fluid's labels.
    objects = plain(label)[:, [0, 5, 1, 2, 3, 4]]
    true: Marks = {}
    columns: list[tuple[float, float, float, float]] = []
    for number, (start, end) in enumerate(pairwise(label.lod[-1])):
        image = objects[start:end]
        mark(found[found[:, 0] == number][:, 1:], image, true, {}, dict(attrs))
        easy = image if attrs["evaluate_difficult"] else image[image[:, 1] == 0]
        columns += [(0.0, each, 1.0, 0.0) for each in easy[:, 0].tolist()]
    columns += [(1.0, each, score, is_one) for each, marks in true.items() for score, is_one in marks]
    return np.array(columns, np.float64).reshape(-1, 4).T


def _report_detection(part: Part, attrs: Attrs) -> dict[str, float]:
    average = by_points if attrs["ap_type"] == "11point" else by_area
    objects, boxes = part[:, part[0] == 0], part[:, part[0] == 1]
    precisions = []
    for each in np.intersect1d(objects[1], boxes[1]):
        mine = boxes[2:, boxes[1] == each].T
        right = running([(score, int(is_one)) for score, is_one in mine])
        recall = right / objects[2, objects[1] == each].sum()
        precisions.append(average(right / np.arange(1, len(right) + 1), recall))
    return {"": 100.0 * float(np.mean(precisions)) if precisions else 0.0}


def _beside(left: Part, right: Part) -> Part:
    return np.concatenate([left, right], axis=1)


_KINDS: Mapping[str, _Kind] = {
    "classification_error": _Kind(_classification_error, _add, _ratio),
    "sum": _Kind(_sum, _add, _ratio),
    "column_sum": _Kind(_column_sum, _add, _ratio),
    "auc": _Kind(_auc, _merge_auc, _report_auc),
    "chunk": _Kind(_chunk, _add, _report_chunk, of_sequences=True),
    "ctc_error": _Kind(_ctc_error, _add, _ratio, of_sequences=True),
    "detection_map": _Kind(_detection, _beside, _report_detection, of_sequences=True),
    "pnpair": _Kind(_pnpair, _beside, _report_pnpair),
    "precision_recall": _Kind(_precision_recall, _add, _report_precision_recall),
}
