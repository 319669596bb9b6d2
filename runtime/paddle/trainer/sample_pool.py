# SPDX-License-Identifier: Apache-2.0
"""SampleSource: draws the samples of a data source from a pool into batches.

A pool is filled with samples of all files in turn, and a batch draws samples from it at random. If the pool is as
large as the data, which is the default, this shuffles each pass.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from paddle.errors import did_you_mean
from paddle.trainer.PyDataProvider2 import CacheType, DataProvider
from paddle.trainer_config_helpers.configuration import DataSource
from paddle.v2.data_type import InputType
from paddle.v2.errors import UsageError, python2_hint

Sample = Sequence[Any]
Batches = Iterator[list[Sample]]


class SampleSource:
    """A data source: a provider and the files that it reads.

    Attributes:
        name: name of the provider, with its module.
        declared: names of the data layers for which the provider has a type, used or not.
        types: name of a data layer -> type of its column, in the order of columns; a network for prediction may omit
            the last columns.
    """

    def __init__(self, source: DataSource, input_order: Sequence[str], *, is_train: bool, seed: int) -> None:
        """Load the provider's module and let its `init_hook` run.

        Raises:
            UsageError: the file, module or provider does not exist, or its types do not match the data layers.
        """
        self._files = _listed(source.files)
        make = _provider(source)
        arguments = {"is_train": is_train, **source.arguments}
        try:
            provider = make(self._files, input_order=list(input_order), **arguments)
        except TypeError as error:
            if "argument" in str(error):
                error.add_note(
                    "init_hook receives the settings, file_list, is_train, input_order and the args of "
                    f"define_py_data_sources2 ({', '.join(source.arguments) or 'none'}): end its "
                    "parameters with **kwargs"
                )
            raise
        self._provider = provider
        self.name, self._file = f"{source.module}.{source.provider}", f"{source.module}.py"
        self._listed_in = f", listed in {source.files}" if isinstance(source.files, str) else ""
        names = provider.input_order
        if len(names) > len(provider.input_types):
            raise UsageError(
                f"{self.name} has {len(provider.input_types)} input types for the data layers "
                f"{names}; give input_types as a dict, or call inputs(...) with the layers in their order"
            )
        self.types: Mapping[str, InputType] = dict(zip(names, provider.input_types, strict=False))
        self.declared = provider.declared or list(self.types)
        shuffles = provider.should_shuffle
        self._shuffles = is_train if shuffles is None else bool(shuffles)
        self._random = random.Random(seed)  # noqa: S311 - the order of samples
        self._cache: list[Sample] | None = None

    def batches(self, batch_size: int) -> Batches:
        """Yield the batches of one pass over the data source."""
        weigh, may_exceed = self._provider.calc_batch_size or _one, self._provider.can_over_batch_size
        batch: list[Sample] = []
        weight = 0
        for sample in self._shuffled() if self._shuffles else self._samples():
            more = int(weigh(sample))
            if batch and not may_exceed and weight + more > batch_size:
                yield batch
                batch, weight = [], 0
            batch.append(sample)
            weight += more
            if weight >= batch_size:
                yield batch
                batch, weight = [], 0
        if batch:
            yield batch

    def _shuffled(self) -> Iterator[Sample]:
        """Yield all samples, each drawn from a pool."""
        size = self._provider.pool_size
        pool: list[Sample] = []
        samples = self._samples()
        while True:
            pool.extend(samples if size < 0 else islice(samples, max(size, 1) - len(pool)))
            if not pool:
                return
            at = self._random.randrange(len(pool))
            pool[at], pool[-1] = pool[-1], pool[at]
            yield pool.pop()

    def _samples(self) -> Iterator[Sample]:
        """Yield the samples of all files: one file after the other, or in turn at random if they are shuffled."""
        if self._cache is not None:
            yield from self._cache
            return
        keeps = self._provider.cache == CacheType.CACHE_PASS_IN_MEM
        kept: list[Sample] = []
        opened = [self._of_file(name) for name in self._files]
        while opened:
            at = self._random.randrange(len(opened)) if self._shuffles else 0
            sample = next(opened[at], None)
            if sample is None:
                del opened[at]
                continue
            if keeps:
                kept.append(sample)
            yield sample
        if keeps:
            self._cache = kept

    def _of_file(self, name: str) -> Iterator[Sample]:
        """Yield the samples of one file; an error of the provider names the file.

        Raises:
            UsageError: the file cannot be opened.
        """
        try:
            yield from self._provider.generator(self._provider, name)
        except UsageError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.filename == name:
                base = "" if Path(name).is_absolute() else f". Paths are relative to {Path.cwd()}"
                raise UsageError(
                    f"cannot read the data file {name!r}{self._listed_in}: {error.strerror}{base}"
                ) from error
            error.add_note(f"{self.name} failed on the data file {name!r}{python2_hint(error, self._file)}")
            raise


def _one(sample: Sample) -> int:
    return 1


def _listed(files: str | Sequence[str]) -> list[str]:
    """Return the paths in a list file, or those of a list unchanged."""
    if not isinstance(files, str):
        return list(files)
    try:
        lines = Path(files).read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
    except OSError as error:
        raise UsageError(
            f"define_py_data_sources2: cannot read the list file {files!r}: {error.strerror}. It "
            "must list the paths of data files, one per line"
        ) from error
    return [line.strip() for line in lines if line.strip()]


def _provider(source: DataSource) -> Callable[..., DataProvider]:
    try:
        module = importlib.import_module(source.module)
    except SyntaxError as error:
        raise UsageError(
            f"cannot read the data provider {source.module}: {error}{python2_hint(error, f'{source.module}.py')}"
        ) from error
    except ModuleNotFoundError as error:
        if error.name != source.module:
            if hint := python2_hint(error, f"{source.module}.py"):
                raise UsageError(f"cannot import the data provider {source.module}: {error}{hint}") from error
            raise
        raise UsageError(
            f"the data provider's module {source.module!r} does not exist: put {source.module}.py "
            "into the configuration's directory"
        ) from error
    found = getattr(module, source.provider, None)
    if found is None:
        hint = did_you_mean(source.provider, dir(module))
        raise UsageError(f"the module {source.module} has no data provider {source.provider!r}{hint}")
    if not getattr(found, "is_provider", False):
        raise UsageError(
            f"{source.module}.{source.provider} is not a provider: decorate it with @provider(...)"
        )
    return found  # type: ignore[no-any-return]
