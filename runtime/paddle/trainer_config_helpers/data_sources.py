# SPDX-License-Identifier: Apache-2.0
"""The data sources of a configuration: list files and a data provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle.reader import pickled
from paddle.trainer_config_helpers.configuration import DataSource, current
from paddle.v2.errors import UsageTypeError

__all__ = ["define_py_data_sources2"]

Files = str | Sequence[str]


def define_py_data_sources2(
    train_list: Files | None, test_list: Files | None, module: Any, obj: Any, args: Any = None
) -> None:
    """Declare the data provider and the files that it reads.

    Args:
        train_list: a file with one path per line, or the paths; None means no training data.
        test_list: the file that lists the test data, as `train_list` does.
        module: Python module that contains the provider; or two modules, for training and for tests.
        obj: name of the provider in the module; or two names, for training and for tests.
        args: arguments of its `init_hook`, as a dict; or two dicts, for training and for tests.
    """
    (train_module, test_module), (train_obj, test_obj) = _pair(module), _pair(obj)
    train_args, test_args = _pair(args)
    configuration = current()
    configuration.train = _source(train_list, train_module, train_obj, train_args)
    configuration.test = _source(test_list, test_module, test_obj, test_args)


def _source(files: Files | None, module: str, provider: str, arguments: Any) -> DataSource | None:
    if files is None:
        return None
    if isinstance(arguments, (str, bytes)):  # which old scripts pickled
        arguments = pickled.loads(arguments.encode("latin-1") if isinstance(arguments, str) else arguments)
    if arguments is not None and not isinstance(arguments, Mapping):
        raise UsageTypeError(
            f"define_py_data_sources2: args must be a dict, got {arguments!r:.80}; init_hook "
            "receives its items by name"
        )
    return DataSource(files, module, provider, dict(arguments or {}))


def _pair(given: Any) -> tuple[Any, Any]:
    if isinstance(given, (list, tuple)) and len(given) == 2:
        return given[0], given[1]
    return given, given
