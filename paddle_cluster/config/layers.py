# SPDX-License-Identifier: Apache-2.0
"""The value of each row of the table: from conf.py, then the environment, then the command line; the last counts.

Everything that is wrong in them is gathered and told at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paddle_cluster.config import values
from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.conf_file import ConfFile
from paddle_cluster.config.options import BY_KEY, CONF_NAMES, REQUIRED, Option
from paddle_cluster.config.spelling import nearest
from paddle_cluster.errors import ConfError

DEFAULT = "default"


class Layers:
    """The three layers of one job.

    Attributes:
        origins: key of a row -> where its value comes from, of those that were read.
    """

    def __init__(self, conf: ConfFile, arguments: Arguments, environ: Mapping[str, str]) -> None:
        self.conf = conf
        self.origins: dict[str, str] = {}
        self._arguments = arguments
        self._environ = environ
        self._problems: list[tuple[str, str]] = []

    def read(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of rows by their keys; unknown names and wrong values in any layer are problems.

        Raises:
            ConfError: there are some.
        """
        for name in self.conf.values:
            if name not in CONF_NAMES:
                near = nearest(name, tuple(CONF_NAMES))
                hint = f"did you mean {near}?" if near else "write names of your own in lower case"
                self.add(self.conf.where(name), f"unknown name {name}; {hint}")
        found = {key: self._read(key, BY_KEY[key]) for key in keys}
        self.raise_any()
        return found

    def add(self, where: str, message: str) -> None:
        """Something is wrong there."""
        self._problems.append((where, message))

    def report(self, name: str, error: values.ValueMismatchError) -> None:
        """The value of a name in the files is wrong."""
        element = "" if error.index is None else f"[{error.element or error.index}]"
        self.add(self.conf.where(name, error.index), f"{name}{element}: {error}")

    def raise_any(self) -> None:
        """Raise ConfError with all problems, one line each, where there are some."""
        if not self._problems:
            return
        (where, first), *more = self._problems
        raise ConfError(where, "\n".join([first, *(f"{place}: {message}" for place, message in more)]))

    def _read(self, key: str, row: Option) -> Any:
        value: Any = None
        self.origins[key] = DEFAULT
        given = self._arguments.given.get(row.name)
        try:
            if row.conf in self.conf.values:
                self.origins[key] = self.conf.where(key)
                value = row.read(self.conf.values[key])
            elif row.default is REQUIRED and given is None:
                self.add(self.conf.shown, self._missing(key))
            else:
                value = row.unsaid
        except values.ValueMismatchError as error:
            self.report(key, error)
        overrides = (
            (f"environment variable {key}", self._environ.get(key) if row.from_environment else None),
            (f"--{row.flag}", self._arguments.flag(row.flag) if row.flag else None),
            (f"--{row.name}", given),
        )
        for where, told in overrides:
            if told is None:
                continue
            self.origins[key] = where
            try:
                if told is not given:
                    value = row.read(values.from_text(told, row.default))
                else:
                    value = row.read(told) if row.split else told
            except values.ValueMismatchError as error:
                self.add(where, str(error))
        return value

    def _missing(self, name: str) -> str:
        near = next((other for other in self.conf.others if other.upper() == name), None)
        hint = f" ({near} is assigned; names are in upper case)" if near else ""
        return f"{name} is missing{hint}; expected for example {name} = ['root@10.1.9.7', 'root@10.1.18.7']"
