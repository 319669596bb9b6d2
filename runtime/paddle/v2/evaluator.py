# SPDX-License-Identifier: Apache-2.0
"""Evaluators: metrics over layers. One takes part wherever all its inputs are in the network.

A declaration registers a configuration; ``metric`` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paddle.v2 import model
from paddle.v2.errors import MissingNameError
from paddle.v2.model import Attrs, EvaluatorConfig

if TYPE_CHECKING:
    from paddle.v2.layer.output import LayerOutput


def classification_error(
    input: LayerOutput,
    label: LayerOutput,
    name: str | None = None,
    weight: LayerOutput | None = None,
    top_k: int | None = None,
    threshold: float | None = None,
) -> None:
    """Share of rows whose label is not among the ``top_k`` largest columns (not on its side of ``threshold``).

    Args:
        input: a column a class, or one column.
        label: class of each row.
        name: given by the user.
        weight: of each row.
        top_k: 1 by default.
        threshold: of one column, 0.5 by default.
    """
    attrs: Attrs = {
        "top_k": 1 if top_k is None else top_k,
        "threshold": 0.5 if threshold is None else threshold,
    }
    _declare("classification_error", name, [input, label], weight, attrs)


def auc(
    input: LayerOutput,
    label: LayerOutput,
    name: str | None = None,
    weight: LayerOutput | None = None,
) -> None:
    """Area under the ROC curve of the last column against a 0/1 label."""
    _declare("auc", name, [input, label], weight, {})


def precision_recall(
    input: LayerOutput,
    label: LayerOutput,
    positive_label: int | None = None,
    weight: LayerOutput | None = None,
    name: str | None = None,
) -> None:
    """Precision, recall (key ``recal``, as in the original) and F1 of one class, or averaged over all classes."""
    attrs: Attrs = {"positive_label": -1 if positive_label is None else positive_label}
    _declare("precision_recall", name, [input, label], weight, attrs)


def sum(input: LayerOutput, name: str | None = None, weight: LayerOutput | None = None) -> None:
    """Sum of all values over the number of rows."""
    _declare("sum", name, [input], weight, {})


def column_sum(input: LayerOutput, name: str | None = None, weight: LayerOutput | None = None) -> None:
    """Mean of the last column."""
    _declare("column_sum", name, [input], weight, {})


def _declare(
    kind: str, name: str | None, inputs: Sequence[LayerOutput], weight: LayerOutput | None, attrs: Attrs
) -> None:
    found = [*inputs, *([] if weight is None else [weight])]
    space = model.current()
    name = space.auto_name(f"{kind}_evaluator", name)
    config = EvaluatorConfig(
        name, kind, tuple(layer.name for layer in found), {**attrs, "weighted": weight is not None}
    )
    space.evaluators.append(config)


_NOT_YET = ("ctc_error", "chunk", "seqtext_printer", "maxframe_printer")
_NOT_PLANNED = ("pnpair", "value_printer", "gradient_printer", "maxid_printer", "detection_map")


def __getattr__(name: str) -> object:
    if name in _NOT_YET:
        raise MissingNameError(f"paddle.evaluator.{name} needs sequence operators, not available yet")
    if name in _NOT_PLANNED or name == "classification_error_printer":
        raise MissingNameError(f"paddle.evaluator.{name} is not available")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
