# SPDX-License-Identifier: Apache-2.0
"""Reads the user's environment variables for processes from <package>/.env, HOST_SETTINGS, --env_file and --env.

The last definition takes precedence. Values may be secret: they leave this module only for the environment of the job's
processes. All other code, including messages, sees only the names. RESERVED maps the job's own variables to the reasons
why users must not set them.

In a file, a line is NAME=VALUE, optionally after `export`; `#` begins a comment at the start of a line and after
whitespace. A value in '...' is taken unchanged; in "..." it may span several lines, and each escape in _ESCAPED stands
for one character. Nothing is executed or expanded: `$` is an ordinary character.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.values import VARIABLE
from paddle_cluster.errors import ConfError
from paddle_cluster.system.state_dir import read_bounded
from paddle_node.contract import names
from paddle_node.contract.classes import regex

WORKSPACE_FILE = ".env"
LONGEST = 131_071  # bytes of NAME=VALUE: the longest string that Linux accepts in an environment
MOST = 1 << 20  # bytes in total: half of Linux's limit for arguments and environment with an 8 MiB stack
ALL_GPUS = "all"

_DATA = "PADDLE_DATA_HOME"
_GPUS = "CUDA_VISIBLE_DEVICES"
_PATH = "PYTHONPATH"

_RANKS = """
    RANK LOCAL_RANK NODE_RANK WORLD_SIZE LOCAL_WORLD_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
    OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_NODE_RANK PADDLE_TRAINER_ID
    PADDLE_TRAINERS_NUM PADDLE_TRAINERS TRAINING_ROLE PADDLE_TRAINING_ROLE PADDLE_CLUSTER_TRAIN
"""
_PLACES = """
    MASTER_ADDR MASTER_PORT POD_IP PADDLE_CURRENT_IP PADDLE_CURRENT_ENDPOINT PADDLE_TRAINER_ENDPOINTS
    PADDLE_PSERVERS_IP_PORT_LIST PADDLE_PSERVERS_SPARSE_IP_PORT_LIST PADDLE_PSERVERS PADDLE_PSERVER_IPS
    PADDLE_PORT PADDLE_PSERVER_PORT PADDLE_PSERVER_EPS PSERVERS SERVER_ENDPOINT TRAINERS
"""
_LOGS = "GLOG_logtostderr GLOG_log_dir"

_REASONS = {
    " ".join(names.MARKS): "the launcher uses it to find and authenticate the job's processes",
    _RANKS: (
        "it is derived from PSERVERS, TRAINERS and --nproc_per_node, and a different value would make "
        "the job inconsistent"
    ),
    _PLACES: "the launcher sets it from the nodes' addresses, PADDLE_NIC and the free ports",
    _LOGS: "the logs are collected from the directory that it names",
    names.CHECKPOINT_DIR: "give --keep_as=NAME, or use a different variable for a directory of your own",
    names.WIRE: "give --wire instead",
    "PADDLE_PYTHON": "set PYTHON or HOST_SETTINGS in conf.py instead",
}

RESERVED: Mapping[str, str] = MappingProxyType(
    {name: reason for names, reason in _REASONS.items() for name in names.split()}
)


_INIT = "PADDLE_INIT_"


class Variables:
    """The environment variables that the user adds to processes; their values are never shown."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    @property
    def names(self) -> tuple[str, ...]:
        """Return the variables' names, sorted."""
        return tuple(sorted(self._values))

    @property
    def rules_gpus(self) -> bool:
        """Return whether the user sets CUDA_VISIBLE_DEVICES, which selects the GPUs that a process sees."""
        return _GPUS in self._values

    @property
    def all_gpus(self) -> bool:
        """Return whether the user lets every process see all GPUs of its machine."""
        return self._values.get(_GPUS) == ALL_GPUS

    @property
    def gpus(self) -> int:
        """Return the number of GPUs in the user's CUDA_VISIBLE_DEVICES; 0 if it is not set."""
        return len(self._values.get(_GPUS, "").replace(",", " ").split())

    def revealed(self, python_path: str) -> dict[str, str]:
        """Return names and values; to be used only for the environment of a process.

        Args:
            python_path: path to insert before the user's PYTHONPATH.
        """
        values = dict(self._values)
        if self.all_gpus:
            del values[_GPUS]  # if unset, all are visible
        if values.get(_PATH):
            values[_PATH] = f"{python_path}:{values[_PATH]}"
        elif _PATH in values:
            values[_PATH] = python_path
        return values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variables) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Variables({', '.join(f'{name}=***' for name in self.names)})"


def read(
    arguments: Arguments,
    environ: Mapping[str, str],
    is_local: bool,
    own: Mapping[int, Sequence[tuple[str, str, str]]] = MappingProxyType({}),
) -> tuple[Variables, dict[int, Variables]]:
    """Combine the user's environment variables from all their sources.

    Args:
        is_local: whether the nodes are this machine, so that the locations of data sets apply to them, too.
        own: node ID -> (name, value, where) of variables for the processes of that node only.

    Returns:
        The variables for all processes; and by node ID, those for the processes of nodes that have their own variables.

    Raises:
        ConfError: a file or a variable is invalid; the message contains the location, and never a value.
    """
    beside = (
        [(_DATA, os.path.abspath(os.path.expanduser(environ[_DATA])), _DATA)]
        if is_local and environ.get(_DATA)
        else []
    )
    for path in _workspace_file(arguments):
        beside += read_file(path, str(path))
    given = list(_given(arguments, environ))
    return _checked([*beside, *given]), {
        node_id: _checked([*beside, *found, *given]) for node_id, found in own.items() if found
    }


def _checked(found: Sequence[tuple[str, str, str]]) -> Variables:
    """Return variables from (name, value, where) tuples, in the same order."""
    values, sizes = dict[str, str](), dict[str, int]()
    for name, value, where in found:
        problem = refusal(name)
        if problem:
            raise ConfError(where, f"{name} cannot be set: {problem}")
        size = len(os.fsencode(f"{name}={value}"))
        if size > LONGEST:
            raise ConfError(
                where,
                f"{name}: name and value take {size} bytes, but Linux allows {LONGEST}; move the value into a file",
            )
        values[name], sizes[name] = value, size
        if sum(sizes.values()) > MOST:
            raise ConfError(
                where,
                f"{name}: all variables together exceed {MOST} bytes; move data into files",
            )
    return Variables(values)


def files(arguments: Arguments) -> tuple[Path, ...]:
    """Return the paths of the files from which variables are read; these files are never sent to nodes."""
    return (*_workspace_file(arguments), *arguments["env_file"])


def _workspace_file(arguments: Arguments) -> tuple[Path, ...]:
    package = arguments["job_dispatch_package"]
    return (package / WORKSPACE_FILE,) if package and os.path.isfile(package / WORKSPACE_FILE) else ()


def _given(arguments: Arguments, environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for path in arguments["env_file"]:
        yield from read_file(path, str(path))
    for text in arguments["env"]:
        yield _of_option(text, environ)


def _of_option(text: str, environ: Mapping[str, str]) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    if VARIABLE.fullmatch(name) is None:
        hint = (
            ""
            if equals
            else " (is it a value without its NAME=? To pass it to your script, put it after --.)"
        )
        got = f"got {name[:80]!r}" if equals else f"got {len(text)} other characters"
        raise ConfError(
            "--env", f"expected NAME or NAME=VALUE with a name of letters, digits and _, {got}{hint}"
        )
    if equals:
        return name, value, f"--env {name}"
    if name not in environ:
        raise ConfError(
            f"--env {name}",
            f"{name} is not in your environment; export it first, or give the value: --env {name}=VALUE",
        )
    return name, environ[name], f"--env {name}"


def refusal(name: str) -> str:
    """Return the reason why a user must not set a variable; "" if the user may."""
    if name.startswith(_INIT):
        return f"give the flag --{name.removeprefix(_INIT).lower()}=VALUE instead"
    return RESERVED.get(name, "")


LIMIT = 8 << 20  # bytes
_HEAD = regex(r"[ \t]*(?:export[ \t]+)?([^\s=#'\"]+)[ \t]*=[ \t]*")
_SINGLE = regex(r"'([^'\n]*)'")
_DOUBLE = regex(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = regex(r"[^\n]*")
_COMMENT = regex(r"(?:^|[ \t]+)#.*")
_REST = regex(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_ESCAPE = regex(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def read_file(path: Path, shown: str) -> list[tuple[str, str, str]]:
    """Parse a file of variables, and return them in its order.

    Args:
        shown: the file's name in messages.

    Returns:
        (name, value, "file:line") per variable.

    Raises:
        ConfError: the file cannot be read, or a line does not define a variable.
    """
    try:
        text = read_bounded(path, LIMIT).decode("utf-8-sig")
    except (FileNotFoundError, IsADirectoryError) as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else "cannot be read: a directory"
        raise ConfError(shown, f"{what}; --env_file expects a file of NAME=VALUE lines") from None
    except OSError as error:
        raise ConfError(shown, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfError(shown, f"expected UTF-8, but byte {error.start} is invalid") from None
    return parse_file(text.replace("\r\n", "\n"), shown)


def parse_file(text: str, shown: str) -> list[tuple[str, str, str]]:
    """Parse a text of variables; see `read_file` for results and errors."""
    found = []
    position, line = 0, 1
    while position < len(text):
        where = f"{shown}:{line}"
        blank = _REST.match(text, position)
        if blank is not None:
            end = blank.end()
        else:
            name, value, end = _variable(text, position, where)
            found.append((name, value, where))
        line += text.count("\n", position, end)
        position = end
    return found


def _variable(text: str, position: int, where: str) -> tuple[str, str, int]:
    """Return the name, the value, and the position of the next line."""
    head = _HEAD.match(text, position)
    if head is None or "\n" in head[0]:
        raise ConfError(where, "expected NAME=VALUE, a comment or an empty line")
    name = head[1]
    if VARIABLE.fullmatch(name) is None:
        raise ConfError(
            where,
            f"{name[:80]!r} is not a valid name: expected letters, digits and _, not starting with a digit",
        )
    value, end = _value(text, head.end(), name, where)
    if "\0" in value:
        raise ConfError(where, f"{name}: must not contain a NUL byte")
    return name, value, end


def _value(text: str, position: int, name: str, where: str) -> tuple[str, int]:
    quote = text[position : position + 1]
    if quote not in ("'", '"'):
        bare = _BARE.match(text, position)
        assert bare is not None  # it can match an empty text
        return _COMMENT.sub("", bare[0]).strip(" \t"), min(bare.end() + 1, len(text))
    quoted = (_SINGLE if quote == "'" else _DOUBLE).match(text, position)
    if quoted is None:
        hint = " on this line" if quote == "'" else " in the rest of the file"
        raise ConfError(where, f"{name}: the value has no closing {quote}{hint}")
    rest = _REST.match(text, quoted.end())
    if rest is None:
        raise ConfError(where, f"{name}: only a comment may follow the closing {quote}")
    value = quoted[1] if quote == "'" else _ESCAPE.sub(_unescape, quoted[1])
    return value, rest.end()


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[0])
