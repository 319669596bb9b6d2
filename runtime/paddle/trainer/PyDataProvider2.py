# SPDX-License-Identifier: Apache-2.0
"""Data providers of `paddle train`: ``from paddle.trainer.PyDataProvider2 import *``.

`@provider` turns a generator function ``process(settings, file_name)`` into a class: an instance has the settings, and
its ``generator(settings, file_name)`` yields samples whose columns are in the order of ``settings.input_types``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from logging import Logger, getLogger
from typing import Any

import numpy as np

from paddle.errors import did_you_mean
from paddle.reader import pickled
from paddle.v2.data_type import (
    DataType,
    InputType,
    SequenceType,
    dense_array,
    dense_vector,
    dense_vector_sequence,
    dense_vector_sub_sequence,
    integer_value,
    integer_value_sequence,
    sparse_binary_vector,
    sparse_binary_vector_sequence,
    sparse_binary_vector_sub_sequence,
    sparse_float_vector,
    sparse_float_vector_sequence,
    sparse_float_vector_sub_sequence,
)
from paddle.v2.errors import UsageError, UsageTypeError

dense_slot = dense_vector
index_slot = integer_value
sparse_non_value_slot = sparse_binary_vector
sparse_value_slot = sparse_vector = sparse_float_vector
integer_sequence = integer_value_sequence

Generate = Callable[[Any, Any], Iterator[Any]]


def integer_value_sub_sequence(dim: int) -> InputType:
    """Return the type of sequences of sequences (lists of lists) of integers in [0, dim)."""
    return integer_value(dim, SequenceType.SUB_SEQUENCE)


integer_sub_sequence = integer_value_sub_sequence
sparse_vector_sequence = sparse_float_vector_sequence
sparse_vector_sub_sequence = sparse_float_vector_sub_sequence


class CacheType:
    """The method by which a provider caches samples between passes."""

    NO_CACHE = 0
    CACHE_PASS_IN_MEM = 1


class InputOrderWrapper:
    """A generator wrapper that converts samples from dicts to lists, in the order of the given names."""

    def __init__(self, generator: Generate, input_order: Sequence[str]) -> None:
        self.generator, self.input_order = generator, input_order

    def __call__(self, obj: Any, filename: Any) -> Iterator[list[Any]]:
        """Yield the samples of a file."""
        for item in self.generator(obj, filename):
            if not isinstance(item, Mapping):
                raise UsageTypeError(
                    f"a provider whose input_types is a dict must yield dicts, got {item!r:.80} from {filename}"
                )
            missing = [name for name in self.input_order if name not in item]
            if missing:
                raise UsageError(
                    f"a sample of {filename} has no value for data layer {missing[0]!r}, only for {list(item)}"
                )
            yield [item[name] for name in self.input_order]


class SingleSlotWrapper:
    """A generator wrapper that allows a provider with one column to yield the column itself."""

    def __init__(self, generator: Generate) -> None:
        self.generator = generator

    def __call__(self, obj: Any, filename: Any) -> Iterator[Any]:
        """Yield the samples of a file."""
        for item in self.generator(obj, filename):
            yield item if isinstance(item, Mapping) else [item]


class CheckInputTypeWrapper:
    """A generator wrapper that checks that samples are lists if the input types are a list."""

    def __init__(self, generator: Generate, input_types: Sequence[InputType], logger: Logger) -> None:
        self.generator, self.input_types, self.logger = generator, input_types, logger

    def __call__(self, obj: Any, filename: Any) -> Iterator[Any]:
        """Yield the samples of a file."""
        for item in self.generator(obj, filename):
            if len(self.input_types) > 1 and not isinstance(item, (list, tuple)):
                self.logger.error("a provider with %d columns yields %r", len(self.input_types), item)
                raise UsageTypeError(
                    f"a provider with {len(self.input_types)} columns must yield a list or tuple of that "
                    f"length, got {item!r:.80}"
                )
            yield item


class CheckWrapper:
    """A generator wrapper that checks samples against the input types: logs a mismatch, then skips or raises."""

    def __init__(
        self, generator: Generate, input_types: Sequence[InputType], check_fail_continue: bool, logger: Logger
    ) -> None:
        self.generator, self.input_types = generator, input_types
        self.check_fail_continue, self.logger = check_fail_continue, logger

    def __call__(self, obj: Any, filename: Any) -> Iterator[Any]:
        """Yield the samples of a file."""
        for number, item in enumerate(self.generator(obj, filename)):
            try:
                self._check(item)
            except (ValueError, TypeError) as error:
                self.logger.warning("%s, sample %d: %s", filename, number, error)
                if not self.check_fail_continue:
                    raise UsageError(
                        f"sample {number} of {filename} does not fit its input types: {error}"
                    ) from error
                continue
            yield item

    def _check(self, item: Any) -> None:
        if len(item) != len(self.input_types):
            raise ValueError(
                f"a sample has {len(item)} columns; expected {len(self.input_types)}: {item!r:.80}"
            )
        for kind, column in zip(self.input_types, item, strict=True):
            callback = partial(self.loop_callback, kind)
            if kind.seq_type == SequenceType.NO_SEQUENCE:
                callback(column)
            for inner in column if kind.seq_type == SequenceType.SUB_SEQUENCE else [column]:
                if kind.seq_type != SequenceType.NO_SEQUENCE:
                    self.loop_check(callback, inner)

    @staticmethod
    def loop_callback(input_type: InputType, each: Any) -> None:
        """Check one item against its type.

        Raises:
            ValueError: the item does not match.
        """
        if input_type.type == DataType.Dense:
            if np.size(each) != input_type.dim:
                raise ValueError(f"expected {input_type.dim} numbers, got {np.size(each)}: {each!r:.80}")
            return
        columns = [each] if input_type.type == DataType.Index else each
        if input_type.type == DataType.SparseValue:
            columns = [pair[0] for pair in each]
        wrong = [column for column in columns if not 0 <= int(column) < input_type.dim]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not in [0, {input_type.dim})")

    @staticmethod
    def loop_check(callback: Callable[[Any], None], item: Any) -> None:
        """Check every item of a sequence against the type of items."""
        for each in item:
            callback(each)


class DataProvider:
    """A data source's settings, which hooks and generator functions read and change.

    Attributes:
        input_types: InputType of each column; after `__init__` in the order of `input_order`.
        declared: names in a dict of input types, including those of unused columns.
        generator: yields the samples of a file, called with the settings and the file's name.
    """

    def __init__(self, made_by: Mapping[str, Any], file_list: Sequence[str], **kwargs: Any) -> None:
        self.logger = getLogger("paddle.provider")
        self.file_list = list(file_list)
        self.input_types: Any = None  # of a hook: a dict, a list or one type
        self.input_order: list[str] = list(kwargs.get("input_order", ()))
        self.pool_size: int = made_by["pool_size"]
        self.min_pool_size: int = made_by["min_pool_size"]
        self.can_over_batch_size: bool = made_by["can_over_batch_size"]
        self.calc_batch_size: Callable[[Any], int] | None = made_by["calc_batch_size"]
        self.cache: int = made_by["cache"]
        self.should_shuffle: bool | None = _truth(made_by["should_shuffle"])
        self.generator: Generate = partial(_yielded, made_by["generator"])
        for name, value in made_by["others"].items():
            setattr(self, name, value)
        if made_by["init_hook"] is not None:
            made_by["init_hook"](self, file_list=file_list, **kwargs)
        types = made_by["input_types"] or self.input_types or getattr(self, "slots", None)
        self.declared: list[str] = list(types) if isinstance(types, Mapping) else []
        self.input_types = self._ordered(types)
        if len(self.input_types) > 1 and not isinstance(types, Mapping):
            self.generator = CheckInputTypeWrapper(self.generator, self.input_types, self.logger)
        if made_by["check"]:
            self.generator = CheckWrapper(
                self.generator, self.input_types, made_by["check_fail_continue"], self.logger
            )

    def _ordered(self, types: Any) -> list[InputType]:
        """Return the types in the order of the columns of samples."""
        if not types:
            raise UsageError(
                "a data provider has no input_types: give them to @provider, or set settings.input_types in init_hook"
            )
        if isinstance(types, Mapping):
            self.input_order = [name for name in self.input_order if name in types] or list(types)
            self.generator = InputOrderWrapper(self.generator, self.input_order)
            return [types[name] for name in self.input_order]
        if not isinstance(types, (list, tuple)):
            types = [types]
        if len(types) == 1:
            self.generator = SingleSlotWrapper(self.generator)
        return list(types)


def provider(
    input_types: Any = None,
    should_shuffle: bool | str | None = None,
    pool_size: int = -1,
    min_pool_size: int = -1,
    can_over_batch_size: bool = True,
    calc_batch_size: Callable[[Any], int] | None = None,
    cache: int = CacheType.NO_CACHE,
    check: bool = False,
    check_fail_continue: bool = False,
    init_hook: Callable[..., None] | None = None,
    **outter_kwargs: Any,
) -> Callable[[Generate], Callable[..., DataProvider]]:
    """Turn a generator function ``process(settings, file_name)`` into a data provider.

    Args:
        input_types: a type for each column, a dict from data layers to types, or one type; or `init_hook` sets them.
        should_shuffle: whether samples are shuffled in each pass; None means only in training.
        pool_size: number of samples in memory from which a batch is drawn; -1 means all.
        min_pool_size: has no effect: the pool is filled before a batch is drawn, so samples are always shuffled.
        can_over_batch_size: whether a sample may make a batch larger than `batch_size`.
        calc_batch_size: returns a sample's contribution to the size of a batch; 1 by default.
        cache: CacheType.CACHE_PASS_IN_MEM reads files in the first pass only.
        check: whether to compare every sample with its types.
        check_fail_continue: whether to skip samples that do not match, instead of raising an error.
        init_hook: called once with the settings, `file_list`, `is_train` and the arguments of the data source.
        outter_kwargs: further attributes of the settings.
    """
    made_by = {name: value for name, value in locals().items() if name != "outter_kwargs"}
    for name in outter_kwargs:
        if hint := did_you_mean(name, made_by):
            getLogger("paddle.provider").warning(
                "@provider has no argument %r, so it only becomes an attribute of the settings%s",
                name,
                hint,
            )
    made_by["others"] = outter_kwargs

    def decorate(generator: Generate) -> Callable[..., DataProvider]:
        def make(file_list: Sequence[str] | None = None, **kwargs: Any) -> DataProvider:
            if file_list is None:
                raise UsageError(
                    f"@provider {make.__name__}: only `paddle train` can call a data provider; paddle.v2 takes a "
                    "reader, which is a function without arguments that yields samples"
                )
            return DataProvider({**made_by, "generator": generator}, file_list, **kwargs)

        make.__name__ = getattr(generator, "__name__", "provider")
        make.__doc__ = generator.__doc__
        make.is_provider = True  # type: ignore[attr-defined]
        return make

    return decorate


def deserialize_args(args: Any) -> Any:
    """Parse arguments from JSON or, as the original writes them, from a pickle, which is read as data."""
    if not isinstance(args, (str, bytes)):
        return args
    raw = args.encode("latin-1", "replace") if isinstance(args, str) else args
    return pickled.loads(raw) if raw[:1] in (b"(", b"\x80") else json.loads(args)


def _yielded(generator: Generate, obj: Any, filename: Any) -> Iterator[Any]:
    """Return the samples of a file; a function without ``yield`` is refused."""
    found: object = generator(obj, filename)
    if not isinstance(found, Iterable):
        name = getattr(generator, "__name__", "process")
        raise UsageTypeError(
            f"the data provider {name!r} must yield samples, but it returned {found!r:.80} for {filename}"
        )
    return iter(found)


def _truth(given: bool | str | None) -> bool | None:
    if not isinstance(given, str):
        return given
    if given.lower() not in ("1", "t", "true", "on", "0", "f", "false", "off"):
        raise UsageError(f"@provider: should_shuffle must be True or False, got {given!r}")
    return given.lower() in ("1", "t", "true", "on")


__all__ = [
    "CacheType", "CheckInputTypeWrapper", "CheckWrapper", "DataProvider", "DataType", "InputOrderWrapper", "InputType",
    "SequenceType", "SingleSlotWrapper", "dense_array", "dense_slot", "dense_vector", "dense_vector_sequence",
    "dense_vector_sub_sequence", "deserialize_args", "index_slot", "integer_sequence", "integer_sub_sequence",
    "integer_value", "integer_value_sequence", "integer_value_sub_sequence", "provider", "sparse_binary_vector",
    "sparse_binary_vector_sequence", "sparse_binary_vector_sub_sequence", "sparse_float_vector",
    "sparse_float_vector_sequence", "sparse_float_vector_sub_sequence", "sparse_non_value_slot", "sparse_value_slot",
    "sparse_vector", "sparse_vector_sequence", "sparse_vector_sub_sequence",
]  # fmt: skip
