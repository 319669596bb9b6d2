# SPDX-License-Identifier: Apache-2.0
"""Evaluators: metrics over layers. One takes part wherever all its inputs are in the network.

A declaration registers a configuration; ``metric`` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from paddle.signatures import function
from paddle.v2 import model
from paddle.v2.errors import MissingNameError, UsageError
from paddle.v2.model import Attrs, EvaluatorConfig, InputConfig, LayerConfig

if TYPE_CHECKING:
    from paddle.v2.layer.output import LayerOutput

CHUNK_SCHEMES = ("plain", "IOB", "IOE", "IOBES")


def _metric(signature: str, says: str, **defaults: float) -> Callable[..., None]:
    """Return the evaluator of a row; `defaults` are what None means for its own arguments."""
    kind = signature.partition("(")[0]

    def declare(given: dict[str, Any]) -> None:
        layers = [given[each] for each in ("input", "label", "weight") if given.get(each) is not None]
        attrs = {each: fill if given[each] is None else given[each] for each, fill in defaults.items()}
        weighted = given["weight"] is not None
        _register(kind, given["name"], [layer.name for layer in layers], {**attrs, "weighted": weighted})

    return function(signature, says, declare)


classification_error = _metric(
    "classification_error(input, label, name=None, weight=None, top_k=None, threshold=None)",
    """Share of rows whose label is not among the ``top_k`` largest columns (not on its side of ``threshold``).

    Args:
        input: a column a class, or one column.
        label: class of each row.
        weight: of each row.
        top_k: 1 by default.
        threshold: of one column, 0.5 by default.
    """,
    top_k=1,
    threshold=0.5,
)
auc = _metric(
    "auc(input, label, name=None, weight=None)",
    "Area under the ROC curve of the last column against a 0/1 label.",
)
precision_recall = _metric(
    "precision_recall(input, label, positive_label=None, weight=None, name=None)",
    "Precision, recall (key ``recal``, as in the original) and F1 of one class, or averaged over all classes.",
    positive_label=-1,
)
sum = _metric("sum(input, name=None, weight=None)", "Sum of all values over the number of rows.")
column_sum = _metric("column_sum(input, name=None, weight=None)", "Mean of the last column.")


def chunk(
    input: LayerOutput,
    label: LayerOutput,
    chunk_scheme: str,
    num_chunk_types: float,
    name: str | None = None,
    excluded_chunk_types: Sequence[int] | None = None,
) -> None:
    """Precision, recall and F1 of the chunks that tags spell out, such as names in sentences.

    Args:
        input: a layer of tags, such as crf_decoding; a tag is type * (places of the scheme) + place.
        label: the true tags.
        chunk_scheme: plain, IOB, IOE or IOBES.
        num_chunk_types: the tag `num_chunk_types` * places is outside of all chunks; 4.0 is 4.
        excluded_chunk_types: types that do not count.
    """
    if chunk_scheme not in CHUNK_SCHEMES:
        raise UsageError(
            f"chunk: chunk_scheme must be one of {', '.join(CHUNK_SCHEMES)}, got {chunk_scheme!r}"
        )
    space = model.current()
    # A layer of its own for the ids: with a label, crf_decoding has another value beside them.
    tags = space.auto_name("evaluated_ids")
    space.add_layer(LayerConfig(tags, "ids", input.size, (InputConfig(input.name),)))
    attrs: Attrs = {
        "chunk_scheme": chunk_scheme,
        "num_chunk_types": int(num_chunk_types),
        "excluded_chunk_types": tuple(excluded_chunk_types or ()),
    }
    _register("chunk", name, [tags, label.name], attrs)


def ctc_error(input: LayerOutput, label: LayerOutput, name: str | None = None) -> None:
    """Edit distance between the best labels without places and the true ones, over the longer's length.

    Args:
        input: a column a class; the last one is the blank.
        label: true classes of each sequence.
    """
    _register("ctc_error", name, [input.name, label.name], {})


def _register(kind: str, name: str | None, inputs: Sequence[str], attrs: Attrs) -> None:
    space = model.current()
    name = space.auto_name(f"{kind}_evaluator", name)
    space.evaluators.append(EvaluatorConfig(name, kind, tuple(inputs), attrs))


_NOT_YET = ("seqtext_printer", "maxframe_printer")
_NOT_PLANNED = ("pnpair", "value_printer", "gradient_printer", "maxid_printer", "detection_map")


def __getattr__(name: str) -> object:
    if name in _NOT_YET:
        raise MissingNameError(f"paddle.evaluator.{name} needs sequence operators, not available yet")
    if name in _NOT_PLANNED or name == "classification_error_printer":
        raise MissingNameError(f"paddle.evaluator.{name} is not available")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
