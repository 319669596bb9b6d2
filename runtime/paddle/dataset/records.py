# SPDX-License-Identifier: Apache-2.0
"""Files of samples: functions that write a reader's samples to numbered files, and read each trainer's own part.

As in the original, the files contain pickles, but nothing is unpickled: they are parsed as data, and samples can
contain the types that `reader.pickled` lists.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from paddle.dataset.download import DatasetError
from paddle.errors import ConfigError
from paddle.reader import pickled, pickling
from paddle.reader.decorator import Reader
from paddle.reader.minibatch import batch
from paddle.reader.recordio import Writer

Dumper = Callable[[list[Any], BinaryIO], object]
Loader = Callable[[BinaryIO], list[Any]]

logger = logging.getLogger(__name__)


def dump(samples: list[Any], file: BinaryIO) -> None:
    """Write samples to a binary file; the default dumper of `split`.

    Raises:
        TypeError: a sample contains an unsupported type.
    """
    try:
        file.write(pickling.dumps(samples))
    except TypeError as error:
        raise TypeError(f"split: {error}. Pass a different writer as dumper=") from error


def load(file: BinaryIO) -> list[Any]:
    """Read the samples that `dump` wrote to a binary file; the default loader of `cluster_files_reader`."""
    try:
        samples = pickled.loads(file.read())
        if not isinstance(samples, list):
            raise TypeError(f"expected a list of samples, got {type(samples).__name__}")
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError) as error:
        raise DatasetError(
            file.name, f"dataset: {file.name} was not written by common.split: {error}"
        ) from error
    return samples


def split(
    reader: Reader[Any], line_count: int, suffix: str = "%05d.pickle", dumper: Dumper = dump
) -> list[str]:
    """Write the samples of a reader to files of `line_count` samples each; the last one may be shorter.

    Args:
        reader: the reader of the samples.
        line_count: the number of samples per file.
        suffix: the path of the files, with one %d for their number, from 0.
        dumper: called with (samples, binary file).

    Returns:
        The paths of the files; each was renamed into place when complete.
    """
    paths = []
    for number, samples in enumerate(batch(reader, line_count)()):
        paths.append(_numbered(suffix, number))
        part = Path(f"{paths[-1]}.part")
        try:
            with part.open("wb") as file:
                dumper(samples, file)
            part.replace(paths[-1])
        finally:
            part.unlink(missing_ok=True)
    return paths


def cluster_files_reader(
    files_pattern: str, trainer_count: int, trainer_id: int, loader: Loader = load
) -> Reader[Any]:
    """Return a reader of one trainer's files: the sorted paths with index % trainer_count == trainer_id.

    Args:
        files_pattern: a glob pattern.
        trainer_count: the number of trainers in the job.
        trainer_id: the number of the trainer, from 0.
        loader: called with a binary file; returns its samples.
    """
    if not 0 <= trainer_id < trainer_count:
        raise ConfigError(
            f"cluster_files_reader: trainer_id must be from 0 to {trainer_count - 1}, got {trainer_id}"
        )

    def read() -> Iterator[Any]:
        paths = sorted(glob.glob(files_pattern))
        if not paths:
            raise DatasetError(
                files_pattern, f"cluster_files_reader: no file matches {os.path.abspath(files_pattern)}"
            )
        for path in paths[trainer_id::trainer_count]:
            logger.info("append file: %s", path)
            with open(path, "rb") as file:
                yield from loader(file)

    return read


def convert(output_path: str, reader: Reader[Any], line_count: int, name_prefix: str) -> list[str]:
    """Write the samples of a reader to recordio files `<output_path>/<name_prefix>-00000` and so on, as v2 does.

    `reader.creator.recordio` reads these files.

    Args:
        output_path: the folder, created if missing.
        reader: the reader of the samples.
        line_count: the number of samples per file.
        name_prefix: the prefix of the file names.

    Returns:
        The paths of the files; each was renamed into place when complete.
    """
    os.makedirs(output_path, exist_ok=True)
    paths = []
    for number, samples in enumerate(batch(reader, line_count)()):
        paths.append(os.path.join(output_path, f"{name_prefix}-{number:05d}"))
        with Writer(paths[-1]) as writer:
            for sample in samples:
                writer.write(pickling.dumps(sample))
    return paths


def converting(line_count: int, **parts: Callable[[], Reader[Any]]) -> Callable[[str], None]:
    """Return the function `convert` of a data set: prefix of file names -> the function that returns the reader."""

    def convert_parts(path: str) -> None:
        """Convert the data set to recordio files in the folder `path`, which `reader.creator.recordio` reads."""
        for name_prefix, part in parts.items():
            convert(path, part(), line_count, name_prefix)

    return convert_parts


def _numbered(suffix: str, number: int) -> str:
    try:
        return suffix % number
    except (TypeError, ValueError) as error:
        raise ConfigError(f"split: suffix must contain one number, such as %05d, got {suffix!r}") from error
