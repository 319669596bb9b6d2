# SPDX-License-Identifier: Apache-2.0
"""A name's value: from the files of the configuration, then the environment, then the command line; the last counts.

Everything that is wrong in them is gathered and told at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paddle_cluster.config import values
from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.conf_file import CONF_NAMES, REQUIRED, ConfFile, ConfName
from paddle_cluster.config.spelling import nearest
from paddle_cluster.errors import ConfError

DEFAULT = "default"


class Layers:
    """The three layers of one job.

    Attributes:
        origins: name -> where its value comes from, of those that were read.
    """

    def __init__(self, conf: ConfFile, arguments: Arguments, environ: Mapping[str, str]) -> None:
        self.conf = conf
        self.origins: dict[str, str] = {}
        self._arguments = arguments
        self._environ = environ
        self._problems: list[tuple[str, str]] = []

    def read(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of names; unknown names and wrong values in any layer are problems.

        Raises:
            ConfError: there are some.
        """
        for name in self.conf.values:
            if name not in CONF_NAMES:
                near = nearest(name, tuple(CONF_NAMES))
                hint = f"did you mean {near}?" if near else self.conf.advice(name)
                self.add(self.conf.where(name), f"unknown name {name}; {hint}")
        found = {name: self._read(name, CONF_NAMES[name]) for name in names}
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

    def _read(self, name: str, entry: ConfName) -> Any:
        value: Any = None
        self.origins[name] = DEFAULT
        try:
            if name in self.conf.values:
                self.origins[name] = self.conf.where(name)
                value = entry.read(self.conf.values[name])
            elif entry.default is REQUIRED and self._arguments.hosts is None:
                self.add(self.conf.shown, self._missing(name))
            elif entry.default not in (None, REQUIRED):
                value = entry.read(entry.default)
        except values.ValueMismatchError as error:
            self.report(name, error)
        overrides = (
            (f"environment variable {name}", self._environ.get(name) if entry.from_environment else None),
            (f"--{entry.flag}", self._arguments.flag(entry.flag) if entry.flag else None),
            ("--hosts", self._arguments.hosts if name == "HOSTS" else None),
        )
        for where, given in overrides:
            if given is None:
                continue
            self.origins[name] = where
            try:
                told = values.from_text(given, entry.default) if isinstance(given, str) else given
                value = entry.read(told)
            except values.ValueMismatchError as error:
                self.add(where, str(error))
        return value

    def _missing(self, name: str) -> str:
        near = next((other for other in self.conf.others if other.upper() == name), None)
        hint = f" ({near} is assigned; names are in upper case)" if near else ""
        return f"{name} is missing{hint}; expected for example {name} = ['root@10.1.9.7', 'root@10.1.18.7']"
