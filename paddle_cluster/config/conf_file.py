# SPDX-License-Identifier: Apache-2.0
"""Reads conf.py: runs it in an empty namespace and remembers on which line each UPPERCASE name was assigned.

CONF_NAMES has every name that it may assign: its default, what it must be, and who may override it.

conf.py is the user's own Python file: it may compute its values. Names in lower case, and those with a
leading underscore, are its private business. cluster.toml has the same names, for programs that write it.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from paddle_cluster.config import engines, host_settings, kubernetes, monitoring, values
from paddle_cluster.errors import ConfError
from paddle_cluster.system import bounded_file
from paddle_cluster.system.installation import COMMAND
from paddle_cluster.system.signals import StopRequest

LIMIT = 4 << 20  # bytes
CONF_NAME = "conf.py"
TOML = ".toml"
_CONF_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True)
class ConfFile:
    """What a conf.py assigns, or a cluster.toml, or both together.

    Attributes:
        shown: the file's name as messages give it.
        values: UPPERCASE name -> value.
        others: the other names it assigns.
        files: name -> the file that assigns it, where that is not `shown`.
        lines: name -> line of its last assignment at any depth.
        element_lines: name -> lines of the elements, where the value is written as a list or a dictionary.
        remark: what the user should know of several files, or empty.
    """

    shown: str
    values: Mapping[str, object]
    others: tuple[str, ...]
    lines: Mapping[str, int]
    element_lines: Mapping[str, tuple[int, ...]]
    files: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""

    def file(self, name: str) -> str:
        """The file that assigns a name, or would."""
        return self.files.get(name, self.shown)

    def where(self, name: str, index: int | None = None) -> str:
        """`file:line` of a name or of one element of its list, or the file alone when it is not known."""
        elements = self.element_lines.get(name, ())
        line = elements[index] if index is not None and index < len(elements) else self.lines.get(name)
        return f"{self.file(name)}:{line}" if line else self.file(name)

    def advice(self, name: str) -> str:
        """What to do about a name that is unknown, and like no other."""
        if self.file(name).endswith(TOML):
            return f"the names are those of {CONF_NAME}, in lower or in upper case"
        return "write names of your own in lower case"

    def under(self, other: ConfFile) -> ConfFile:
        """This file with another one that goes before it."""
        kept = {name: value for name, value in self.values.items() if name not in other.values}
        return ConfFile(
            self.shown,
            {**kept, **other.values},
            self.others,
            {name: line for name, line in self.lines.items() if name not in other.values} | dict(other.lines),
            {name: lines for name, lines in self.element_lines.items() if name in kept}
            | dict(other.element_lines),
            dict.fromkeys(other.values, other.shown),
            f"{other.shown} goes before {self.shown}, with {', '.join(other.values) or 'nothing'}",
        )


def read_files(paths: Sequence[Path]) -> ConfFile:
    """Read files; a name in a later file overrides the same name in an earlier one.

    Raises:
        ConfError: a file cannot be read, parsed or run; the message names the line.
    """
    if not paths:
        return ConfFile(CONF_NAME, {}, (), {}, {})
    first, *others = map(read_conf, paths)
    return functools.reduce(ConfFile.under, others, first)


def read_conf(path: Path) -> ConfFile:
    """Reads one conf.py, or a file of TOML.

    Raises:
        ConfError: it cannot be read, parsed or run; the message holds the line.
    """
    shown = shown_path(path)
    if path.suffix == TOML:
        return _read_toml(path, shown)
    tree = _parse(path, shown)
    lines, element_lines = _assigned_lines(tree)
    namespace = _run(tree, path, shown)
    values = {name: value for name, value in namespace.items() if _CONF_NAME.fullmatch(name)}
    others = tuple(name for name in namespace if name not in values and not name.startswith("_"))
    return ConfFile(shown, values, others, lines, element_lines)


def shown_path(path: Path) -> str:
    """A path as messages give it: relative to the current directory where it lies below."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else path)


def _source(path: Path, shown: str) -> bytes:
    try:
        return bounded_file.read(path, LIMIT)
    except FileNotFoundError:
        raise ConfError(
            shown,
            "no such file; write one with HOSTS in it, name another with --conf=FILE, or give "
            f"--hosts=HOST[,HOST] (`{COMMAND} init DIR` writes one for this machine)",
        ) from None
    except OSError as error:
        raise ConfError(shown, f"cannot be read: {error.strerror}") from error


def _parse(path: Path, shown: str) -> ast.Module:
    source = _source(path, shown)
    if b"\0" in source:  # Windows editors say "Unicode" for it
        raise ConfError(
            shown, "holds null bytes, as text in UTF-16 does; expected a Python file: save it as UTF-8"
        )
    try:
        return ast.parse(source, str(path))
    except SyntaxError as error:
        where = f"{shown}:{error.lineno}" if error.lineno else shown
        raise ConfError(where, f"{error.msg}{_quoted(error.text)}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfError(shown, f"is no Python file: {error}") from error


def _quoted(line: str | None) -> str:
    return f": {line.strip()[:80]!r}" if line and line.strip() else ""


def _assigned_lines(tree: ast.Module) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    lines: dict[str, int] = {}
    elements: dict[str, tuple[int, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            lines[node.id] = max(node.lineno, lines.get(node.id, 0))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple | ast.Dict):
            parts = node.value.keys if isinstance(node.value, ast.Dict) else node.value.elts
            found = tuple(part.lineno for part in parts if part is not None)
            for target in node.targets:
                if isinstance(target, ast.Name) and len(found) == len(parts):  # no **other
                    elements[target.id] = found
    return lines, elements


def _read_toml(path: Path, shown: str) -> ConfFile:
    """Names in lower case mean the same as in upper case."""
    try:
        text = _source(path, shown).decode("utf-8")
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at line ([0-9]+), column", str(error))
        where = f"{shown}:{at[1]}" if at else shown
        raise ConfError(where, f"is no TOML: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfError(shown, f"is no TOML: {error}") from error
    names = {name: name.upper() if name.islower() else name for name in found}
    twice = next((name for name in found if names[name] != name and names[name] in found), None)
    if twice is not None:
        raise ConfError(shown, f"{twice} and {names[twice]} are the same name; take one out")
    lines, element_lines = dict[str, int](), dict[str, tuple[int, ...]]()
    for name, value in found.items():
        within = text.splitlines()
        begin = _line_of(within, 0, rf"\s*\[*\s*[\"']?{re.escape(name)}[\"']?\s*[=.\]]")
        if begin is None:
            continue
        lines[names[name]] = begin + 1
        numbers, last = [], begin
        for element in value if isinstance(value, list | dict) else ():
            place = _line_of(within, last, rf"(.*[^\w.-])?{re.escape(str(element))}([^\w.-]|$)")
            last = last if place is None else place
            numbers.append(last + 1)
        element_lines[names[name]] = tuple(numbers)
    return ConfFile(shown, {names[name]: value for name, value in found.items()}, (), lines, element_lines)


def _line_of(lines: Sequence[str], start: int, pattern: str) -> int | None:
    """Index of the first line from `start` on that begins like that; the parser does not tell."""
    return next((at for at in range(start, len(lines)) if re.match(pattern, lines[at])), None)


def _run(tree: ast.Module, path: Path, shown: str) -> dict[str, object]:
    namespace: dict[str, object] = {"__name__": "conf", "__file__": str(path)}
    try:
        code = compile(tree, str(path), "exec", dont_inherit=True)
        exec(code, namespace)  # noqa: S102 - the user's own file, on the user's machine, as the user
    except StopRequest:
        raise
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"{shown}:{frames[-1].lineno}" if frames else shown
        raise ConfError(where, f"running it raised {_described(error)}{_remedy(error)}") from error
    return namespace


def _remedy(error: BaseException) -> str:
    if isinstance(error, NameError) and error.name:
        return f'; a text is written in quotes: "{error.name}"'
    if isinstance(error, ModuleNotFoundError):
        return f"; {sys.executable}, which runs it, has no such module: install it there, or do without"
    return ""


def _described(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the user's own class
        text = "(its text cannot be had)"
    return f"{type(error).__name__}: {text}"


REQUIRED = object()


_DAY_S = 86400.0


_seconds = values.seconds(0.1, _DAY_S)


class ConfName(NamedTuple):
    """One name.

    Attributes:
        default: its value when conf.py does not assign it; REQUIRED: it must.
        read: turns a value into its typed form or raises ValueMismatchError.
        flag: the passed-through flag that overrides it, or empty.
        from_environment: whether a variable of the same name overrides it.
    """

    default: object
    read: Callable[[object], Any]
    flag: str = ""
    from_environment: bool = False


CONF_NAMES: Mapping[str, ConfName] = MappingProxyType(
    {
        "HOSTS": ConfName(REQUIRED, values.list_of(values.host, "hosts, such as ['root@10.1.9.7']")),
        "PSERVERS": ConfName(
            None, values.list_of(values.node_reference, "entries of HOSTS or their indices")
        ),
        "TRAINERS": ConfName(
            None, values.list_of(values.node_reference, "entries of HOSTS or their indices")
        ),
        "ROOT_DIR": ConfName("~/.paddle-cluster", values.root_dir),
        "JOB_UMASK": ConfName(0o077, values.umask),
        "PADDLE_NIC": ConfName("", values.nics, "nics", from_environment=True),
        "PADDLE_PORT": ConfName(7164, values.integer(1, 65535), "port", from_environment=True),
        "PADDLE_PORTS_NUM": ConfName(1, values.integer(1, 1024), "ports_num", from_environment=True),
        "PADDLE_PORTS_NUM_FOR_SPARSE": ConfName(
            1, values.integer(0, 1024), "ports_num_for_sparse", from_environment=True
        ),
        "PADDLE_USE_GPU": ConfName("False", values.boolean, "use_gpu", from_environment=True),
        "LD_LIBRARY_PATH": ConfName("", values.text),
        "PYTHON": ConfName("", values.python),
        "HOST_SETTINGS": ConfName({}, host_settings.read),
        "BOOTSTRAP": ConfName(False, values.boolean),
        "WIRE": ConfName("curve", values.wire),
        "SSH_CLIENT": ConfName("fabric", values.ssh_client),
        "SSH_CONFIG": ConfName("~/.ssh/config", values.local_path),
        "SSH_KNOWN_HOSTS": ConfName("~/.ssh/known_hosts", values.local_path),
        "SSH_IDENTITY_FILES": ConfName([], values.list_of(values.local_file, "private key files")),
        "SSH_JUMP": ConfName("", values.jump),
        "CONNECT_TIMEOUT_S": ConfName(10, _seconds),
        "PREFLIGHT_TIMEOUT_S": ConfName(20, _seconds),
        "READY_TIMEOUT_S": ConfName(30, _seconds),
        "STOP_GRACE_S": ConfName(5, values.seconds(0, _DAY_S)),
        "COLLECT_TIMEOUT_S": ConfName(30, _seconds),
        "LEASE_S": ConfName(30, values.seconds(1, _DAY_S)),
        "HEARTBEAT_TIMEOUT_S": ConfName(10, values.seconds(1, _DAY_S)),
        "STEP_TIMEOUT_S": ConfName(600, values.seconds(0, _DAY_S)),
        "RESTART_BACKOFF_S": ConfName(1, values.seconds(0, _DAY_S)),
        "KEEP_JOBS": ConfName(3, values.integer(1, 1_000_000)),
        "LOG_LIMIT_MB": ConfName(256, values.integer(1, 1 << 20)),
        "WARN_SIZE_MB": ConfName(100, values.integer(1, 1 << 20)),
        "COLLECT_LIMIT_GB": ConfName(100, values.integer(1, 1 << 20)),
        "COLLECT_LIMIT_FILES": ConfName(1_000_000, values.integer(1, 10_000_000)),
        **{
            name: ConfName(default, read)
            for name, (default, read) in (
                *monitoring.NAMES.items(),
                *engines.NAMES.items(),
                *kubernetes.NAMES.items(),
            )
        },
    }
)
