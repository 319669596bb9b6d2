# SPDX-License-Identifier: Apache-2.0
"""Executes conf.py in an empty namespace, then applies the environment and the command line to its values.

conf.py is the user's own Python file and may compute its values. Lowercase names and those with a leading underscore
are private to it. The line of each assignment to an UPPERCASE name is recorded for messages.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os.path import isabs, lexists
from pathlib import Path
from types import FrameType
from typing import Any

from paddle_cluster.config import values
from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.options import BY_KEY, CONF_NAMES, LONG, REQUIRED, Option
from paddle_cluster.errors import ConfError
from paddle_cluster.system.installation import COMMAND, CONF_FILE, IS_CHECKOUT
from paddle_cluster.system.signals import StopRequest, announced
from paddle_cluster.system.state_dir import read_bounded
from paddle_node.contract.classes import dataclass, field, regex

LIMIT = 4 << 20  # bytes
SLOW_S = 10.0  # a file that runs longer is reported
AGAIN_S = 30.0
CONF_NAME = "conf.py"
_CONSTANTS = {"true": "True", "false": "False", "null": "None"}
_NOT_PYTHON = (".yaml", ".yml", ".toml", ".json", ".ini", ".txt")
CONF_VARIABLE = "PADDLE_CLUSTER_CONF"
DEFAULT = "default"
_MEANT = {
    name: advice
    for names, advice in {
        "port ssh_ports": "write sshd's port as host:port in HOSTS; PADDLE_PORT is the port of the pservers",
        "host hostlist nodelist cluster_node_ips": "did you mean HOSTS?",
        "user username login ssh_username": "write user@host in HOSTS",
        "key keyfile key_file ssh_keys pem identity": "give SSH_IDENTITY_FILES, a list of private keys",
        "gpus ngpus slots procs": "give --nproc_per_node=N; a hostfile gives each host its own slots=N",
        "env envs environment variables": "give --env=NAME=VALUE or --env_file=FILE; for one host, HOST_SETTINGS",
        "workers worker servers master masters ips nodes": "list all in HOSTS; PSERVERS and TRAINERS select from them",
        "workdir work_dir workspace": "give the workspace with -p DIR; ROOT_DIR is where nodes store it",
    }.items()
    for name in names.split()
}
"""Names that users expect in conf.py -> what to write instead."""
_CONF_NAME = regex(r"[A-Z][A-Z0-9_]*")
_JOINED = regex(rb"""(?:[rRuU]?(?:"[^"',\s]+"|'[^"',\s]+')\s*){2,}""")  # two strings without a comma
_IS_PYTHON = (
    "this file is Python, with lines such as HOSTS = ['user@host'] and ROOT_DIR = '/data'; give a hostfile or "
    "inventory with --hostfile=FILE"
)
_CODING = regex(rb"(?:[ \t\f]*(?:#.*)?\r?\n)?[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263


@dataclass(frozen=True)
class ConfFile:
    """The names that a conf.py assigns, with their values and lines.

    Attributes:
        shown: the file's name in messages.
        values: UPPERCASE name -> value.
        others: the other names that it assigns.
        lines: name -> line of its last assignment at any depth.
        element_lines: name -> lines of the elements, if the value is written as a list or a dictionary.
        unused: those of `others` that the file never reads.
        skipped: name -> line of an assignment that no run of the file executes, or that is local to a function, if the
            file does not use the name.
    """

    shown: str = CONF_NAME
    values: Mapping[str, object] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)
    element_lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)

    def where(self, name: str, index: int | None = None) -> str:
        """Return "file:line" of a name or of an element of its value, for messages; only the file if unknown."""
        elements = self.element_lines.get(name, ())
        line = elements[index] if index is not None and index < len(elements) else self.lines.get(name)
        return f"{self.shown}:{line}" if line else self.shown


def conf_path(arguments: Arguments, environ: Mapping[str, str]) -> Path | None:
    """Return the path of the conf.py to use: from --conf, the variable, the checkout, or next to the workspace.

    Returns:
        The path, or None if there is no conf.py and the options name the hosts.
    """
    given = arguments["conf"] or environ.get(CONF_VARIABLE)
    if given:
        return Path(given)
    folders = [CONF_FILE.parent if IS_CHECKOUT else Path()]
    if not IS_CHECKOUT and arguments["job_dispatch_package"] is not None:
        folders.insert(0, arguments["job_dispatch_package"].absolute().parent)
    found = next((path for folder in folders if lexists(path := folder / CONF_NAME)), None)
    has_hosts = (
        arguments["hosts"]
        or arguments["hostfile"]
        or f"--engine={arguments['engine']}" in LONG["hosts"].against
    )
    return found or (None if has_hosts else folders[-1] / CONF_NAME)


def read_conf(path: Path) -> ConfFile:
    """Execute a conf.py and return its assignments.

    Raises:
        ConfError: the file cannot be read, parsed or executed; the message contains the line.
    """
    shown = shown_path(path)
    source = _source(path, shown)
    tree = _parse(source, path, shown)
    lines, element_lines = _assigned_lines(tree, shown, source.splitlines())
    namespace = _run(tree, path, shown)
    assigned = {name: value for name, value in namespace.items() if _CONF_NAME.fullmatch(name)}
    others = tuple(name for name in namespace if name not in assigned and not name.startswith("_"))
    loaded = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | loaded
    used.update(name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names)
    skipped = {name: line for name, line in _skipped(tree) if name not in used}
    unused = tuple(name for name in others if name in lines and name not in loaded)
    return ConfFile(shown, assigned, others, lines, element_lines, unused, skipped)


def _skipped(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield names and lines of assignments in classes, functions and `if __name__ == ...`, and of `NAME: value`."""
    for part in tree.body:
        is_local = isinstance(part, ast.ClassDef | ast.FunctionDef)
        is_main = isinstance(part, ast.If) and "'__main__'" in ast.unparse(part.test)
        is_bare = isinstance(part, ast.AnnAssign) and part.value is None
        for node in ast.walk(part) if is_local or is_main or is_bare else ():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, node.lineno


def shown_path(path: Path) -> str:
    """Return a path as messages show it: relative if it is inside the current directory."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else path)


def _source(path: Path, shown: str) -> bytes:
    if path.suffix in _NOT_PYTHON:
        raise ConfError(
            shown,
            "is not a Python file. For --conf, write a conf.py with HOSTS = ['user@host', ...] "
            f"(`{COMMAND} help configuration`); to give a list of hosts, use --hostfile=FILE",
        )
    try:
        return read_bounded(path, LIMIT)
    except FileNotFoundError:
        other = next((one.name for end in _NOT_PYTHON if (one := path.with_suffix(end)).exists()), "")
        raise ConfError(
            shown,
            f"no such file{f', and {other} is not read' * bool(other)}. Write one that sets HOSTS, name a different "
            "file with --conf=FILE, or give "
            f"--hosts=HOST[,HOST] (`{COMMAND} init DIR` writes one for this machine)",
        ) from None
    except OSError as error:
        inside = path / CONF_NAME
        hint = "give a Python file that your user can read, with --conf=FILE"
        if lexists(inside):
            hint = f"did you mean --conf={shown_path(inside)}?"
        raise ConfError(shown, f"cannot be read: {error.strerror}; {hint}") from error


def _parse(source: bytes, path: Path, shown: str) -> ast.Module:
    if b"\0" in source:  # called "Unicode" by Windows editors
        raise ConfError(shown, "contains null bytes, as UTF-16 text does; expected a Python file in UTF-8")
    _check_encoding(source, shown)
    try:
        return ast.parse(source, str(path))
    except SyntaxError as error:
        where = f"{shown}:{error.lineno}" if error.lineno else shown
        raise ConfError(where, f"{error.msg}{_quoted(error.text)}; {_IS_PYTHON}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfError(shown, f"is not valid Python: {error}") from error


def _check_encoding(source: bytes, shown: str) -> None:
    """Refuse bytes that are not UTF-8, unless the file names another encoding: the parser accepts them in comments."""
    try:
        source.decode()
    except UnicodeDecodeError as error:
        named = _CODING.match(source)
        if named and not named[1].lower().replace(b"_", b"-").startswith((b"utf-8", b"utf8")):
            return  # the parser decodes it
        line = source.count(b"\n", 0, error.start) + 1
        raise ConfError(
            f"{shown}:{line}",
            f"byte 0x{source[error.start]:02x} is not UTF-8; save the file in UTF-8, or name its encoding in the "
            "first line, such as # -*- coding: latin-1 -*-",
        ) from error


def _quoted(line: str | None) -> str:
    return f": {line.strip()[:80]!r}" if line and line.strip() else ""


def _check_commas(parts: Sequence[ast.expr | None], shown: str, source: Sequence[bytes]) -> None:
    """Refuse a host written as two strings: Python joins two strings without a comma between them."""
    for part in parts:
        if isinstance(part, ast.Constant) and (
            part.end_lineno != part.lineno
            or _JOINED.fullmatch(source[part.lineno - 1][part.col_offset : part.end_col_offset])
        ):
            raise ConfError(f"{shown}:{part.lineno}", f"HOSTS: a comma is missing in {part.value!r:.80}")


def _assigned_lines(
    tree: ast.Module, shown: str, source: Sequence[bytes]
) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    lines: dict[str, int] = {}
    elements: dict[str, tuple[int, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            lines[node.id] = max(node.lineno, lines.get(node.id, 0))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple | ast.Dict):
            parts = node.value.keys if isinstance(node.value, ast.Dict) else node.value.elts
            found = tuple(part.lineno for part in parts if part is not None)
            for target in node.targets:
                if isinstance(target, ast.Name) and len(found) == len(parts):  # excludes **other
                    elements[target.id] = found
                if isinstance(target, ast.Name) and target.id == "HOSTS":
                    _check_commas(parts, shown, source)
    return lines, elements


def _run(tree: ast.Module, path: Path, shown: str) -> dict[str, object]:
    namespace: dict[str, object] = {"__name__": "conf", "__file__": str(path)}
    try:
        code = compile(tree, str(path), "exec", dont_inherit=True)
        with announced(lambda frame: _still_running(frame, path, shown), SLOW_S, AGAIN_S):
            exec(code, namespace)  # noqa: S102 - the user's own file, on the user's machine, as the user
    except StopRequest:
        raise
    except BaseException as error:
        import traceback  # imports tokenize, and most jobs need neither

        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"{shown}:{frames[-1].lineno}" if frames else shown
        raise ConfError(where, f"running it raised {_described(error)}{_remedy(error, path)}") from error
    return namespace


def _still_running(frame: FrameType | None, path: Path, shown: str) -> str:
    while frame is not None and frame.f_code.co_filename != str(path):
        frame = frame.f_back
    where = shown if frame is None else f"{shown}:{frame.f_lineno}"
    return f"{where}: this file is still running, and the job waits for it. Ctrl+C stops it; check for endless loops"


def _remedy(error: BaseException, path: Path) -> str:
    if isinstance(error, NameError) and error.name in CONF_NAMES:
        return f"; assign it first, with a single '=': {error.name} = ..."
    if isinstance(error, NameError) and error.name in _CONSTANTS:
        return f"; in Python, write {_CONSTANTS[error.name]}"
    if isinstance(error, NameError) and error.name in sys.stdlib_module_names:
        return f"; import the module first: import {error.name}"
    if isinstance(error, NameError) and error.name:
        return f'; put a string in quotes: "{error.name}"'
    if isinstance(error, KeyError) and _CONF_NAME.fullmatch(str(error.args[0])):
        return f"; if it is an environment variable, set it first: export {error.args[0]}=... (sudo and cron remove it)"
    if isinstance(error, SystemExit):
        return "; remove the call to exit"
    if isinstance(error, EOFError):
        return "; conf.py cannot read input: use an environment variable instead"
    if isinstance(error, FileNotFoundError) and not isabs(str(error.filename or "/")):
        return f"; the path is relative to the current directory {Path.cwd()}"
    if isinstance(error, ModuleNotFoundError):
        top = path.absolute().parent / (error.name or "").partition(".")[0]
        if top.is_dir() or top.with_suffix(".py").is_file():
            return f"; modules in {top.parent} are not found: move what {path.name} needs from {top.name} into it"
        return (
            f"; {sys.executable}, which runs {path.name}, does not have this module: install it there, or, if it is "
            f"your own file, move its definitions into {path.name}"
        )
    return ""


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the user's own class
        text = "(its message is not available)"
    return f"{type(error).__name__}: {text}"


class Layers:
    """The three layers of a job's settings, in increasing precedence: conf.py, the environment, the command line.

    All errors in the layers are collected and reported together.

    Attributes:
        origins: key of a row -> the source of its value, for the rows that were read.
    """

    def __init__(self, conf: ConfFile, arguments: Arguments, environ: Mapping[str, str]) -> None:
        self.conf = conf
        self.origins: dict[str, str] = {}
        self.arguments = arguments
        self.environ = environ
        self._problems: list[tuple[str, str]] = []

    def read(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values of the given rows by key; record unknown names and invalid values in every layer.

        Raises:
            ConfError: a name is unknown or a value is invalid.
        """
        for name in self.conf.values:
            if name not in CONF_NAMES and name in self.conf.lines:  # others are imported
                near = values.nearest(name, tuple(CONF_NAMES))
                hint = f"did you mean {near}?" if near else "write names of your own in lower case"
                prefix, _, rest = name.partition("_")
                rests = tuple(one.partition("_")[2] for one in CONF_NAMES if one.startswith(f"{prefix}_"))
                if near and len(rests) > 1 and not values.nearest(rest, rests):
                    hint = f"`{COMMAND} help configuration` lists the names that begin with {prefix}_"
                from paddle_cluster.config.advice import IN_CONF, filled

                hint = _MEANT.get(name.lower()) or filled(IN_CONF.get(name.lower(), hint), "")
                if name.lower() in LONG:
                    hint = f"it is an option of the command line: --{name.lower()}"
                    hint += f"={self.conf.values[name]}" if type(self.conf.values[name]) is int else ""
                self.add(self.conf.where(name), f"unknown name {name}; {hint}")
        for name in self.conf.unused:
            row = CONF_NAMES.get(name.upper())
            if row and row.default is not REQUIRED and row.conf not in self.conf.values:
                self.add(self.conf.where(name), f"{name} has no effect; did you mean {name.upper()}?")
        for name, line in self.conf.skipped.items():
            if name in CONF_NAMES and name not in self.conf.values:
                text = f"this line does not set {name}; write {name} = ... at the top level of the file, unindented"
                self.add(f"{self.conf.shown}:{line}", text)
        found = {key: self._read(key, BY_KEY[key]) for key in keys}
        self.raise_any()
        return found

    def add(self, where: str, message: str) -> None:
        """Record an error and its location, for `raise_any`."""
        self._problems.append((where, message))

    def report(self, name: str, error: values.ValueMismatchError) -> None:
        """Record an invalid value of a name in conf.py, with the line of the assignment, for `raise_any`."""
        element = "" if error.index is None else f"[{error.element or error.index}]"
        self.add(self.conf.where(name, error.index), f"{name}{element}: {error}")

    def raise_any(self) -> None:
        """Raise ConfError with one line per recorded error, if there are any."""
        if not self._problems:
            return
        (where, first), *more = self._problems
        raise ConfError(where, "\n".join([first, *(f"{place}: {message}" for place, message in more)]))

    def _read(self, key: str, row: Option) -> Any:
        value: Any = None
        self.origins[key] = DEFAULT
        given = self.arguments.given.get(row.name)
        try:
            if row.conf in self.conf.values:
                self.origins[key] = self.conf.where(key)
                value = row.read(self.conf.values[key])
            elif row.default is REQUIRED and given is None:
                if key not in self.conf.skipped:  # reported with its line
                    self.add(self.conf.shown, self._missing(key))
            else:
                value = row.absent_value
        except values.ValueMismatchError as error:
            self.report(key, error)
        overrides = (
            (f"environment variable {key}", self.environ.get(key) if row.from_environment else None),
            (f"--{row.flag}", self.arguments.flag(row.flag) if row.flag else None),
            (f"--{row.name}", given),
        )
        for where, raw in overrides:
            if raw is None:
                continue
            self.origins[key] = where
            try:
                if raw is not given:
                    value = row.read(values.from_text(raw, row.default))
                else:
                    value = row.read(raw) if row.split else raw
            except values.ValueMismatchError as error:
                self.add(where, str(error))
        return value

    def _missing(self, name: str) -> str:
        near = next((other for other in self.conf.others if other.upper() == name), None)
        hint = f" ({near} is assigned; names are in upper case)" if near else ""
        return (
            f"{name} is missing{hint}; expected something like {name} = ['root@10.1.9.7', 'root@10.1.18.7']"
        )
