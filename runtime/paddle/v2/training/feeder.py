# SPDX-License-Identifier: Apache-2.0
"""DataFeeder converts batches of samples to a network's input arrays; Batches iterates over the batches of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Number
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paddle.ops.base.lod import LoDArray, offsets_of, plain
from paddle.v2.data_type import NO_WORD, DataType, InputType, SequenceType
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.emitter import frame_of
from paddle.v2.model import LayerConfig
from paddle.v2.training.training_log import check_ids, check_image, no_sequence
from paddle_node.contract.classes import dataclass

Feed: TypeAlias = dict[str, Any]
Sample: TypeAlias = Sequence[Any]
Feeding: TypeAlias = Mapping[str, int] | Sequence[str] | None
Place: TypeAlias = Callable[[int], str]
"""Describes the position of a data layer's item in a batch, given its number."""
MISSING = "Yield one item per data layer, or name the columns: feeding={layer: column}"
_WIDE = 10  # of fewer columns, all samples of a batch can repeat two


class DataFeeder:
    """Converts samples to a network's input arrays, given the column of each data layer.

    Without ``feeding``, columns are in the order in which the network's data layers were declared. With ``checks_ids``,
    a first batch gets a warning if all ids of a data layer are equal, or if samples of ``images``, the (channels,
    height, width) of data layers, have their channels last. ``advice`` is for samples without columns. ``layers``, the
    configurations of layers, are for messages.
    """

    def __init__(
        self,
        data_types: Sequence[tuple[str, InputType]],
        feeding: Feeding = None,
        *,
        checks_ids: bool = False,
        advice: str = "if the reader yields single samples, wrap it in paddle.batch(reader, 32); otherwise write each "
        "sample as a tuple, such as (x, y) or (x,); compose, not chain, combines readers",
        missing: str = MISSING,
        images: Mapping[str, tuple[int, ...]] | None = None,
        layers: Mapping[str, LayerConfig] | None = None,
    ) -> None:
        self._configs = layers or {}
        self._checks_ids, self._advice, self._missing = checks_ids, advice, missing
        self._images = images or {}
        names = [name for name, _ in data_types]
        columns = _columns(names, feeding)
        self._layers = [(name, kind, columns[name]) for name, kind in data_types]
        self._width = max(columns[name] for name in names) + 1 if names else 0

    def __call__(self, batch: Sequence[Sample]) -> Feed:
        """Return the feed of a batch: float32 (N, dim), int64 (N, 1), and two arrays for a sparse layer.

        Layers of sequences get `LoDArray`s with the rows of all samples.

        Raises:
            UsageError: a sample does not fit a layer's type; names the layer and the sample.
            UsageTypeError: the argument is not a batch of samples.
        """
        if not isinstance(batch, (list, tuple)):
            raise UsageTypeError(
                "a batch must be a list or tuple of samples, such as those of paddle.batch, got "
                f"{type(batch).__name__}"
            )
        if not batch:
            raise UsageError("a batch must contain at least one sample")
        if not isinstance(batch[0], (list, tuple)):
            raise self._no_columns(batch[0])
        feed: Feed = {}
        for name, kind, column in self._layers:
            try:
                items = [sample[column] for sample in batch]
            except (IndexError, KeyError, TypeError):
                at = next(i for i, sample in enumerate(batch) if not _has(sample, column))
                if isinstance(batch[at], Number) and (isinstance(batch, tuple) or isinstance(batch[0], list)):
                    raise self._no_columns(batch[at]) from None
                raise UsageError(
                    f"sample {at} has no column {column} for data layer {name!r}; the data layers are "
                    f"{[layer for layer, _, _ in self._layers]}. {self._missing}"
                ) from None
            try:
                _convert(feed, name, kind, items)
            except UsageError as error:
                if len(self._layers) == 1 and _are_items(name, kind, batch):
                    raise self._no_columns(batch[0], f", itself a value of data layer {name!r}") from None
                text = f"{error}{self._configs[name].created if name in self._configs else ''}"
                if len(batch[0]) > self._width:
                    columns = {layer: at for at, (layer, _, _) in enumerate(self._layers, 1)}
                    text += f"; a sample has {len(batch[0])} items, but the network has {len(columns)} data layers"
                    text += f": drop the others, or give feeding={columns}"
                raise UsageError(text) from error.__cause__
        if self._checks_ids:
            self._checks_ids = False
            for name, kind, column in self._layers:
                check_ids(feed, name, kind)
                check_image(name, kind, batch[0][column], self._images)
        return feed

    def _no_columns(self, sample: Any, why: str = "") -> UsageTypeError:
        return UsageTypeError(
            f"a sample must be a tuple or list with one item per data layer, got {type(sample).__name__}{why}; "
            f"{self._advice}"
        )

    def convert(self, dat: Sequence[Sample], argument: Feed | None = None) -> Feed:
        """Return the feed of a batch: name -> value. If `argument` is given, its contents are replaced by the feed."""
        feed = self(dat)
        if argument is None:
            return feed
        argument.clear()
        argument.update(feed)
        return argument


@dataclass(slots=True)
class _Read:
    """A batch of a reader, and its feed once it was converted; or the error instead of a batch."""

    batch: Any = None
    feed: Feed | None = None
    error: Exception | None = None


class Batches:
    """An iterator over batches: `feed` converts the current batch, and `count` is the number of batches so far.

    `look_ahead` reads the next batch early. Batches and errors still appear in order: an error from the reader, or
    about a sample that does not fit a layer, is raised when its batch is due.
    """

    def __init__(self, batches: Iterable[Any], feeder: Callable[[Any], Feed]) -> None:
        self._batches, self._feeder = iter(batches), feeder
        self._now = _Read()
        self._ahead: _Read | None = None
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            Exception: the reader's error.
        """
        self._now, self._ahead = self._ahead or self._read(), None
        if self._now.error is not None:
            raise self._now.error
        self.count += 1
        return self._now.batch

    def feed(self) -> Feed:
        """Return the feed of the current batch.

        Raises:
            UsageError, UsageTypeError: a sample does not fit.
        """
        if self._now.feed is None:
            self._now.feed = self._feeder(self._now.batch)
        return self._now.feed

    def look_ahead(self) -> Feed | None:
        """Read the next batch early; return its feed, or None if there is none or reading it raised an error."""
        self._ahead = self._read()
        if self._ahead.error is None:
            try:
                self._ahead.feed = self._feeder(self._ahead.batch)
            except Exception:  # noqa: BLE001  samples are the user's: `feed` raises it again at its time
                return None
        return self._ahead.feed

    def _read(self) -> _Read:
        try:
            return _Read(next(self._batches))
        except Exception as error:  # noqa: BLE001  whatever the reader raises: it is raised at its time
            return _Read(error=error)


def ids_in(feed: Feed, sources: Sequence[str]) -> NDArray[np.int64]:
    """Return the distinct ids in fed values, in ascending order, (n,) int64."""
    return np.unique(np.concatenate([plain(feed[source]).reshape(-1) for source in sources]))


def _sample(at: int) -> str:
    return f"sample {at} of the batch"


def _convert(feed: Feed, name: str, kind: InputType, items: list[Any]) -> None:
    if kind.seq_type == SequenceType.NO_SEQUENCE:
        _CONVERT[kind.type](feed, name, kind, items, _sample)
    else:
        _sequences(feed, name, kind, items)


def _are_items(name: str, kind: InputType, batch: Sequence[Sample]) -> bool:
    """Return whether each sample of a batch is a value of a data layer, not a row of columns."""
    try:
        _convert({}, name, kind, list(batch))
    except (ValueError, TypeError):
        return False
    return any(len(sample) > 1 for sample in batch)


def _has(sample: Any, column: int) -> bool:
    return isinstance(sample, (list, tuple)) and len(sample) > column


def _columns(names: list[str], feeding: Feeding) -> dict[str, int]:
    if feeding is None:
        return {name: index for index, name in enumerate(names)}
    if isinstance(feeding, Mapping):
        columns = dict(feeding)
    elif isinstance(feeding, (list, tuple)):
        columns = {name: index for index, name in enumerate(feeding)}
    else:
        raise UsageTypeError(f"feeding must be a dict, list or tuple, got {type(feeding).__name__}")
    missing = [name for name in names if name not in columns]
    if missing:
        unknown = [name for name in columns if name not in names]
        hint = f"correct {unknown}, which are not names of data layers" if unknown else "add their columns"
        raise UsageError(f"feeding does not name the data layers {missing}; it names {list(columns)}; {hint}")
    for name in names:
        if not isinstance(columns[name], (int, np.integer)) or columns[name] < 0:
            raise UsageError(
                f"feeding: the column of data layer {name!r} must be a non-negative integer, got "
                f"{columns[name]!r}"
            )
    return columns


def _sequences(feed: Feed, name: str, kind: InputType, items: list[Any]) -> None:
    levels: list[list[int]] = []
    flat = items
    for _ in range(kind.seq_type):
        try:
            lengths, inner = [len(item) for item in flat], list(chain.from_iterable(flat))
        except TypeError as error:
            raise no_sequence(name, kind, items, bool(levels)) from error
        levels.append(lengths)
        flat = inner
    if not flat:
        raise UsageError(f"data layer {name!r}: all sequences of a batch are empty: yield at least one item")

    def place(at: int) -> str:
        found: list[str] = []
        for lengths in reversed(levels):
            ends = np.cumsum(lengths)
            owner = int(np.searchsorted(ends, at, "right"))
            found.append(f"{'sub-sequence' if found else 'item'} {at - int(ends[owner]) + lengths[owner]}")
            at = owner
        return ", ".join([_sample(at), *reversed(found)])

    rows: Feed = {}
    _CONVERT[kind.type](rows, name, kind, flat, place)
    for key, value in rows.items():
        feed[key] = value if key == f"{name}.columns" else LoDArray(value, offsets_of(levels))


def _dense(feed: Feed, name: str, kind: InputType, items: list[Any], place: Place) -> None:
    try:
        whole = np.array(items, np.float32)
        value = whole.reshape(len(items), -1)
    except (ValueError, TypeError) as error:
        at = next((i for i, item in enumerate(items) if _count(item) != kind.dim), 0)
        raise UsageError(
            f"data layer {name!r}, {place(at)}: expected a vector of {kind.dim} numbers, got {items[at]!r:.60}"
        ) from error
    if kind.has_own_shape and whole.ndim > 2:
        height, width = whole.shape[-2:]
        feed[frame_of(name)] = np.array([-1, value.shape[1] // (height * width), height, width])
    elif value.shape[1] != kind.dim:
        raise UsageError(
            f"data layer {name!r}: expected {kind.dim} numbers per sample, got {value.shape[1]}: {items[0]!r:.60}; "
            "check the order of the columns (in v2: feeding)"
        )
    feed[name] = value


def _count(item: Any) -> int | None:
    """Return the number of numbers in an item; None if it is not an array of numbers."""
    try:
        return np.array(item, np.float32).size
    except (ValueError, TypeError):
        return None


def _index(feed: Feed, name: str, kind: InputType, items: list[Any], place: Place) -> None:
    value: NDArray[Any] | None
    try:
        value = np.array(items)
    except ValueError:  # lists of several lengths
        value = None
    if value is None or value.dtype.kind not in "iub" or value.ndim != 1:
        at, wrong = next((i, item) for i, item in enumerate(items) if not _is_integer(item))
        hint = "give the number itself, or declare a list of numbers as integer_value_sequence"
        if isinstance(wrong, str):
            hint = "look up words in a dictionary, such as word_dict[word]; int() converts digits"
        elif isinstance(wrong, (float, np.floating)):
            hint = "yield int(label), or declare a number that is not a class as dense_vector(1), and yield [value]"
        text = f"data layer {name!r}, {place(at)}: expected one integer in [0, {kind.dim}), got {wrong!r:.60}"
        raise UsageError(f"{text}; {hint}")
    ids = value.astype(np.int64).reshape(-1, 1)
    if kind.dim > 1:  # integer_value(1) declares no range: scripts use it for plain numbers
        _check_range(ids.ravel(), kind, name, place, may_be=NO_WORD)
    feed[name] = ids


def _is_integer(item: Any) -> bool:
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind in "iub"
    return isinstance(item, (int, np.integer, np.bool_))


def _sparse_binary(feed: Feed, name: str, kind: InputType, items: list[Any], place: Place) -> None:
    counts, flat = _flatten(name, items)
    columns = _int_array(name, flat)
    if kind.dim >= _WIDE and {*counts} == {kind.dim} and {*columns} <= {0, 1}:
        raise UsageError(
            f"data layer {name!r}: expected the indices of the columns that are 1, such as [2, 9], got vectors of "
            f"{kind.dim} numbers: list the indices, or declare the layer as dense_vector({kind.dim})"
        )
    _sparse(feed, name, kind, counts, columns, np.ones(len(columns), np.float32), place)


def _sparse_float(feed: Feed, name: str, kind: InputType, items: list[Any], place: Place) -> None:
    counts, flat = _flatten(name, items)
    try:
        columns = _int_array(name, [pair[0] for pair in flat])
        values = np.array([pair[1] for pair in flat], np.float32)
    except (TypeError, IndexError, ValueError) as error:
        wrong = next((f"got {pair!r:.60}" for pair in flat if _count(pair) != 2), error)
        raise UsageError(f"data layer {name!r}: samples must be lists of (column, value): {wrong}") from error
    _sparse(feed, name, kind, counts, columns, values, place)


def _flatten(name: str, items: list[Any]) -> tuple[list[int], list[Any]]:
    try:
        return [len(item) for item in items], list(chain.from_iterable(items))
    except TypeError as error:
        raise UsageError(f"data layer {name!r}: each sample must be a list of columns: {error}") from error


def _int_array(name: str, flat: list[Any]) -> NDArray[np.int64]:
    value = np.array(flat) if flat else np.zeros(0, np.int64)
    if value.dtype.kind not in "iu" or value.ndim != 1:
        raise UsageError(f"data layer {name!r}: columns must be integers, got {flat[0]!r:.60}")
    return value.astype(np.int64)


def _sparse(
    feed: Feed,
    name: str,
    kind: InputType,
    counts: list[int],
    columns: NDArray[np.int64],
    values: NDArray[np.float32],
    place: Place,
) -> None:
    owners = np.repeat(np.arange(len(counts)), counts)
    _check_range(columns, kind, name, lambda at: place(int(owners[at])))
    used, column = np.unique(columns, return_inverse=True)
    # Operators need at least one row; a zero column changes nothing.
    used = used if len(used) else np.zeros(1, np.int64)
    matrix = np.zeros((len(counts), len(used)), np.float32)
    np.add.at(matrix, (owners, column), values)
    feed[f"{name}.columns"] = used.reshape(-1, 1)
    feed[f"{name}.matrix"] = matrix


def _check_range(
    ids: NDArray[np.int64], kind: InputType, name: str, place: Place, may_be: int | None = None
) -> None:
    bad = ids.view(np.uint64) >= kind.dim  # as unsigned numbers, negative ids are huge
    if may_be is not None:
        bad &= ids != may_be
    if bad.any():
        at = int(bad.argmax())
        raise UsageError(
            f"data layer {name!r}, {place(at)}: {ids[at]} is not in [0, {kind.dim}), the range of its type: "
            "numbers count from 0, so the type needs the largest number plus 1"
        )


_CONVERT: Mapping[int, Callable[[Feed, str, InputType, list[Any], Place], None]] = {
    DataType.Dense: _dense,
    DataType.Index: _index,
    DataType.SparseNonValue: _sparse_binary,
    DataType.SparseValue: _sparse_float,
}
