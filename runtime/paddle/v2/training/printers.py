# SPDX-License-Identifier: Apache-2.0
"""Evaluators that print a batch's layer values to stderr, or write them as words to a file."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paddle.ops.base.lod import LoDArray, plain
from paddle.v2.model import EvaluatorConfig

Print: TypeAlias = Callable[[EvaluatorConfig, Sequence[Any]], None]


def _values(config: EvaluatorConfig, values: Sequence[Any]) -> None:
    what = "grad" if config.attrs.get("gradient") else "value"
    for layer, value in zip(config.inputs, values, strict=True):
        shown = "none is computed" if value is None else np.array2string(plain(value), threshold=sys.maxsize)
        _say(config, f"layer={layer} {what} matrix:\n{shown}")


def _largest_columns(config: EvaluatorConfig, values: Sequence[Any]) -> None:
    for layer, value in zip(config.inputs, values, strict=True):
        rows = plain(value)
        lines = [_ranked(row, np.arange(len(row)), _count(config)) for row in rows.reshape(len(rows), -1)]
        _say(config, f"layer={layer} row max id vector:\n" + "\n".join(lines))


def _largest_rows(config: EvaluatorConfig, values: Sequence[Any]) -> None:
    for layer, value in zip(config.inputs, values, strict=True):
        rows = plain(value).reshape(len(value), -1)[:, 0]
        ends = value.lod[-1] if isinstance(value, LoDArray) else np.arange(len(rows) + 1)
        lines = [
            f"{_ranked(rows[first:end], np.arange(end - first), _count(config))} total {end - first} frames"
            for first, end in pairwise(ends)
        ]
        _say(config, f"layer={layer} sequence max frames:\n" + "\n".join(lines))


def _errors(config: EvaluatorConfig, values: Sequence[Any]) -> None:
    output, label = plain(values[0]), plain(values[1]).reshape(-1)
    if output.shape[1] == 1:
        wrong = (output[:, 0] > config.attrs["threshold"]) != (label > 0)
    else:
        wrong = output.argmax(axis=1) != label
    _say(config, "Classification Error: " + " ".join(map(str, wrong.astype(int))))


def _words(config: EvaluatorConfig, values: Sequence[Any]) -> None:
    attrs = config.attrs
    names = plain(values[-1]).reshape(-1) if attrs["named"] else None
    ids = np.asarray(plain(values[0])).reshape(-1)
    lines = []
    if "num_results" not in attrs:
        ends = values[0].lod[-1] if isinstance(values[0], LoDArray) else np.arange(len(ids) + 1)
        for at, (first, end) in enumerate(pairwise(ends)):
            text = _text(config, ids[first:end])
            lines.append(text if names is None else f"{names[at]}\t{text}")
    else:
        found = _generated(config, ids)
        for at, chances in enumerate(plain(values[1])):
            lines.append(str(at if names is None else names[at]))
            lines += [
                f"{rank}\t{chance:.6g}\t{_text(config, next(found))}" for rank, chance in enumerate(chances)
            ]
    with Path(str(attrs["result_file"])).open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _generated(config: EvaluatorConfig, ids: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the sentences that `beam_search` has concatenated."""
    attrs: Mapping[str, Any] = config.attrs
    first = 0
    while first < len(ids):
        if attrs["num_results"] > 1:  # its length, its words, and -1
            end = first + 1 + int(ids[first])
            yield ids[first + 1 : end]
            first = end + 1
        else:
            sentence = ids[first : first + attrs["max_length"]]
            ends = np.flatnonzero(sentence == attrs["eos_id"])
            sentence = sentence[: ends[0] + 1] if len(ends) else sentence
            yield sentence
            first += len(sentence)


def _text(config: EvaluatorConfig, ids: NDArray[Any]) -> str:
    file = str(config.attrs["dict_file"])
    words = [_dictionary(file)[each] if file else str(each) for each in ids]
    return str(config.attrs["between"]).join(words)


@functools.cache
def _dictionary(file: str) -> list[str]:
    return [line.rstrip("\r") for line in Path(file).read_text("utf-8").split("\n")]


def _ranked(row: NDArray[Any], ids: NDArray[Any], count: int) -> str:
    order = np.argsort(-row, kind="stable")[:count]
    return ", ".join(f"{ids[at]} : {row[at]:.6g}" for at in order)


def _count(config: EvaluatorConfig) -> int:
    return int(config.attrs["num_results"])  # type: ignore[arg-type]


def _say(config: EvaluatorConfig, text: str) -> None:
    sys.stderr.write(f"{config.name}: {text}\n")


PRINTERS: Mapping[str, Print] = {
    "value_printer": _values,
    "gradient_printer": _values,
    "maxid_printer": _largest_columns,
    "maxframe_printer": _largest_rows,
    "classification_error_printer": _errors,
    "seqtext_printer": _words,
}
"""Type of an evaluator -> the function that prints a batch of the values in `EvaluatorConfig.reads`."""
