# SPDX-License-Identifier: Apache-2.0
"""Reads conf.py: runs it in an empty namespace and remembers on which line each UPPERCASE name was assigned.

CONF_NAMES has every name that it may assign: its default, what it must be, and who may override it.

conf.py is the user's own Python file: it may compute its values. Names in lower case, and those with a
leading underscore, are its private business.
"""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from launcher.config import host_settings, kubernetes, values
from launcher.errors import ConfError
from launcher.system import bounded_file
from launcher.system.installation import COMMAND
from launcher.system.signals import StopRequest

LIMIT = 4 << 20  # bytes
_CONF_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True)
class ConfFile:
    """What a conf.py assigns.

    Attributes:
        shown: the file's name as messages give it.
        values: UPPERCASE name -> value.
        others: the other names it assigns.
        lines: name -> line of its last assignment at any depth.
        element_lines: name -> lines of the elements, where the value is written as a list or a dictionary.
    """

    shown: str
    values: Mapping[str, object]
    others: tuple[str, ...]
    lines: Mapping[str, int]
    element_lines: Mapping[str, tuple[int, ...]]

    def where(self, name: str, index: int | None = None) -> str:
        """`file:line` of a name or of one element of its list, or the file alone when it is not known."""
        elements = self.element_lines.get(name, ())
        line = elements[index] if index is not None and index < len(elements) else self.lines.get(name)
        return f"{self.shown}:{line}" if line else self.shown


def read_conf(path: Path) -> ConfFile:
    """Reads one conf.py.

    Raises:
        ConfError: it cannot be read, parsed or run; the message holds the line.
    """
    shown = shown_path(path)
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


def _parse(path: Path, shown: str) -> ast.Module:
    try:
        source = bounded_file.read(path, LIMIT)
    except FileNotFoundError:
        raise ConfError(
            shown,
            "no such file; write one with HOSTS in it, or name another with --conf=FILE "
            f"(`{COMMAND} init DIR` writes one for this machine)",
        ) from None
    except OSError as error:
        raise ConfError(shown, f"cannot be read: {error.strerror}") from error
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
        raise ConfError(where, f"running it raised {_described(error)}") from error
    return namespace


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
        "WIRE": ConfName("curve", values.wire),
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
        "COLLECT_LIMIT_GB": ConfName(100, values.integer(1, 1 << 20)),
        "COLLECT_LIMIT_FILES": ConfName(100_000, values.integer(1, 10_000_000)),
        **{name: ConfName(default, read) for name, (default, read) in kubernetes.NAMES.items()},
    }
)
