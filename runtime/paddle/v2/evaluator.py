# SPDX-License-Identifier: Apache-2.0
"""Evaluators: metrics over layers. An evaluator runs in every network that contains all its inputs.

A declaration registers a configuration; ``metric`` computes it, and ``printers`` has the evaluators that print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle.signatures import function
from paddle.v2 import model
from paddle.v2.errors import UsageError
from paddle.v2.model import Attrs, EvaluatorConfig, InputConfig, LayerConfig

if TYPE_CHECKING:
    from paddle.v2.layer.output import LayerOutput

LAYERS_OF = ("input", "label", "query_id", "weight")
AP_TYPES = ("11point", "Integral")
CHUNK_SCHEMES = ("plain", "IOB", "IOE", "IOBES")


def _metric(text: str, says: str, **defaults: float) -> Callable[..., None]:
    """Return the evaluator of a table row; `defaults` replace None in its arguments."""
    kind = text.partition("(")[0]

    def declare(given: dict[str, Any]) -> None:
        layers = [given[each] for each in LAYERS_OF if given.get(each) is not None]
        attrs = {each: fill if given[each] is None else given[each] for each, fill in defaults.items()}
        weighted = given["weight"] is not None
        _register(kind, given["name"], [layer.name for layer in layers], {**attrs, "weighted": weighted})

    return function(text, says, declare)


classification_error = _metric(
    "classification_error(input, label, name=None, weight=None, top_k=None, threshold=None)",
    """Share of rows whose label is not among the ``top_k`` largest columns (not on its side of ``threshold``).

    Args:
        input: one column per class, or a single column.
        label: class of each row.
        weight: of each row.
        top_k: 1 by default.
        threshold: of a single column, 0.5 by default.
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
sum = _metric("sum(input, name=None, weight=None)", "Sum of all values divided by the number of rows.")
column_sum = _metric("column_sum(input, name=None, weight=None)", "Mean of the last column.")


def chunk(
    input: LayerOutput,
    label: LayerOutput,
    chunk_scheme: str,
    num_chunk_types: float,
    name: str | None = None,
    excluded_chunk_types: Sequence[int] | None = None,
) -> None:
    """Declare precision, recall and F1 of the chunks encoded by tags, such as names in sentences. Args:
    input: a layer of tags, such as crf_decoding; with n positions in the scheme, a tag is type * n + position.
    label: the true tags.
    chunk_scheme: plain, IOB, IOE or IOBES.
    num_chunk_types: the number of chunk types; the tag `num_chunk_types` * n is outside of all chunks. 4.0 is 4.
    excluded_chunk_types: chunk types that do not count.
    """
    if chunk_scheme not in CHUNK_SCHEMES:
        raise UsageError(
            f"chunk: chunk_scheme must be one of {', '.join(CHUNK_SCHEMES)}, got {chunk_scheme!r}"
        )
    tags = _ids_of(input)
    attrs: Attrs = {
        "chunk_scheme": chunk_scheme,
        "num_chunk_types": int(num_chunk_types),
        "excluded_chunk_types": tuple(excluded_chunk_types or ()),
    }
    _register("chunk", name, [tags, label.name], attrs)


def ctc_error(input: LayerOutput, label: LayerOutput, name: str | None = None) -> None:
    """Declare the edit distance between the labels of the best CTC path and the true ones, divided by the longer
    length.

    Args:
        input: one column per class; the last one is the blank.
        label: the true classes of each sequence.
    """
    _register("ctc_error", name, [input.name, label.name], {})


pnpair = _metric(
    "pnpair(input, label, query_id, weight=None, name=None)",
    """Ratio of row pairs of a query that the last column orders like their labels to pairs that it does not.

    Args:
        input: scores.
        label: of each row; pairs of equal labels do not count.
        query_id: rows with the same number are compared.
        weight: of each row; a pair has the mean of two.
    """,
)


def _printer(text: str, says: str, **attrs: Any) -> Callable[..., None]:
    """Return the printing evaluator of a table row: it prints each batch's values and has no metric."""
    kind = text.partition("(")[0]

    def declare(given: dict[str, Any]) -> None:
        inputs = given["input"] if isinstance(given["input"], (list, tuple)) else [given["input"]]
        layers = [*inputs, *([given["label"]] if "label" in given else [])]
        own = {each: given[each] for each in ("num_results", "threshold") if given.get(each) is not None}
        _register(kind, given["name"], [layer.name for layer in layers], {**attrs, **own})

    return function(text, says, declare)


value_printer = _printer(
    "value_printer(input, name=None)", "Print the values of layers, batch by batch, to stderr."
)
gradient_printer = _printer(
    "gradient_printer(input, name=None)",
    "Print the gradients of the cost with respect to layers, batch by batch, to stderr.",
    gradient=True,
)
maxid_printer = _printer(
    "maxid_printer(input, num_results=None, name=None)",
    "Print the columns with the `num_results` (1) largest values of each row, and the values, to stderr.",
    num_results=1,
)
maxframe_printer = _printer(
    "maxframe_printer(input, num_results=None, name=None)",
    "Print which `num_results` (1) rows of each sequence of a layer of size 1 are the "
    "largest, and their values, to stderr.",
    num_results=1,
)
classification_error_printer = _printer(
    "classification_error_printer(input, label, threshold=0.5, name=None)",
    "Print to stderr whether the class of each row is wrong (1) or right (0); see `classification_error`.",
    top_k=1,
)


def seqtext_printer(
    input: LayerOutput,
    result_file: str,
    id_input: LayerOutput | None = None,
    dict_file: str | None = None,
    delimited: bool | None = None,
    name: str | None = None,
) -> None:
    """Declare an evaluator that writes each sequence of ids as a line of words; an existing file is overwritten.

    A line is "words", with `id_input` "id TAB words"; with several results of `beam_search` it is
    "rank TAB log-probability TAB words" below a line with the id, or the number of the sample.

    Args:
        input: a layer of ids, such as max_id or beam_search.
        result_file: the path of the file; its folder must exist.
        id_input: integers that identify the samples.
        dict_file: a file with one word per line, starting with word 0; None writes the ids.
        delimited: whether words are separated by blanks.
        name: the name of the evaluator.

    Raises:
        UsageError: a file cannot be written or read.
    """
    try:
        if dict_file is not None:
            Path(dict_file).read_bytes()
        Path(result_file).write_text("", "utf-8")
    except OSError as error:
        raise UsageError(f"seqtext_printer: cannot open {error.filename}: {error.strerror}") from error
    attrs: Attrs = {
        "result_file": str(result_file),
        "dict_file": str(dict_file or ""),
        "between": "" if delimited is False else " ",
        "named": id_input is not None,
    }
    inputs = [_ids_of(input)]
    if input.layer_type == "beam_search":
        attrs = {**attrs, **{key: input.config.attrs[key] for key in ("eos_id", "max_length", "num_results")}}
        inputs.append(input.name)
    _register("seqtext_printer", name, [*inputs, *([] if id_input is None else [id_input.name])], attrs)


def detection_map(
    input: LayerOutput,
    label: LayerOutput,
    overlap_threshold: float = 0.5,
    background_id: int = 0,
    evaluate_difficult: bool = False,
    ap_type: str = "11point",
    name: str | None = None,
) -> None:
    """Declare the mean average precision, in percent, of the boxes from `detection_output`, over all batches of a pass.

    Classes without objects, or of which nothing is found, do not count.

    Args:
        input: a `detection_output` layer.
        label: the label layer of `multibox_loss`.
        overlap_threshold: a box detects an object of its class if they overlap by more than this.
        background_id: has no effect, because `detection_output` omits the background.
        evaluate_difficult: whether difficult objects count.
        ap_type: "11point", the mean of the best precisions at recalls 0, 0.1, ... 1, or "Integral".
        name: the name of the evaluator.
    """
    if ap_type not in AP_TYPES:
        raise UsageError(f"detection_map: ap_type must be one of {', '.join(AP_TYPES)}, got {ap_type!r}")
    attrs: Attrs = {
        "overlap_threshold": float(overlap_threshold),
        "evaluate_difficult": bool(evaluate_difficult),
        "ap_type": ap_type,
    }
    _register("detection_map", name, [input.name, label.name], attrs)


def evaluator_base(
    input: LayerOutput | Sequence[LayerOutput],
    type: str,
    label: LayerOutput | None = None,
    weight: LayerOutput | None = None,
    name: str | None = None,
    chunk_scheme: str | None = None,
    num_chunk_types: int | None = None,
    classification_threshold: float | None = None,
    positive_label: int | None = None,
    dict_file: str | None = None,
    result_file: str | None = None,
    num_results: int | None = None,
    delimited: bool | None = None,
    top_k: int | None = None,
    excluded_chunk_types: Sequence[int] | None = None,
    overlap_threshold: float | None = None,
    background_id: int | None = None,
    evaluate_difficult: bool | None = None,
    ap_type: str | None = None,
) -> None:
    """Declare an evaluator by its type in the original's configurations, such as "last-column-auc".

    `input` may hold all layers in this order: the ids of "seq_text_printer", input, label, the query of "pnpair",
    weight. Other arguments are those of the evaluator.

    Raises:
        UsageError: the type is unknown, or the evaluator does not have a given argument.
    """
    given = {
        key: value for key, value in locals().items() if key not in ("input", "type") and value is not None
    }
    if type not in _TYPES:
        raise UsageError(f"evaluator_base: unknown type {type!r}; expected one of {', '.join(_TYPES)}")
    declare, names = _TYPES[type]
    layers = list(input) if isinstance(input, (list, tuple)) else [input]
    if type == "seq_text_printer" and len(layers) == 1:
        names = names[1:]
    if names == ("input",):
        given["input"] = layers if len(layers) > 1 else layers[0]
    else:
        given.update(zip(names, layers, strict=False))
    if "classification_threshold" in given:
        given["threshold"] = given.pop("classification_threshold")
    wrong = sorted(given.keys() - signature(declare).parameters.keys())
    if wrong:
        raise UsageError(f"evaluator_base: {type!r} has no argument {', '.join(wrong)}")
    declare(**given)


_WITH_LABEL = ("input", "label", "weight")
_TYPES: Mapping[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "classification_error": (classification_error, _WITH_LABEL),
    "last-column-auc": (auc, _WITH_LABEL),
    "pnpair": (pnpair, LAYERS_OF),
    "precision_recall": (precision_recall, _WITH_LABEL),
    "ctc_edit_distance": (ctc_error, _WITH_LABEL),
    "chunk": (chunk, _WITH_LABEL),
    "sum": (sum, ("input", "weight")),
    "last-column-sum": (column_sum, ("input", "weight")),
    "value_printer": (value_printer, ("input",)),
    "gradient_printer": (gradient_printer, ("input",)),
    "max_id_printer": (maxid_printer, ("input",)),
    "max_frame_printer": (maxframe_printer, ("input",)),
    "seq_text_printer": (seqtext_printer, ("id_input", "input")),
    "classification_error_printer": (classification_error_printer, _WITH_LABEL),
    "detection_map": (detection_map, _WITH_LABEL),
}
"""Type in configurations -> the evaluator, and the roles of its layers in order."""


def _ids_of(input: LayerOutput) -> str:
    """Declare a layer with the ids of a layer, which may have a value besides; return its name."""
    space = model.current()
    name = space.auto_name("evaluated_ids")
    space.add_layer(LayerConfig(name, "ids", input.size, (InputConfig(input.name),)))
    return name


def _register(kind: str, name: str | None, inputs: Sequence[str], attrs: Attrs) -> None:
    space = model.current()
    name = space.auto_name(f"{kind}_evaluator", name)
    space.evaluators.append(EvaluatorConfig(name, kind, tuple(inputs), attrs))
