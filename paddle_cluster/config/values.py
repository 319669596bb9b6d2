# SPDX-License-Identifier: Apache-2.0
"""Validators of configured values. Each takes any object, and returns a typed value or raises ValueMismatchError.

Texts (from the environment or the command line) and Python values (from conf.py) use the same functions. The end of the
module finds the known name that a misspelled one resembles.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import pwd
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TypeVar

from paddle_node.contract.classes import regex

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
_NIC = regex(r"(?![0-9.]+$)[A-Za-z0-9_.][A-Za-z0-9_.:@-]{0,14}")
_INTEGER = regex(r"-?[0-9]{1,12}")
_JOB_ID = regex(r"JOB\d.*|[0-9a-f]{6}")  # or a text that may be the end of one
_KEPT = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PORTS = regex(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_LARGEST_PORT = 65535
VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")  # the syntax of an environment variable's name
_MAX_SHOWN = 80
MOST_COUNTED = 100_000
_SIMILAR = 0.65  # the prefix PADDLE_ alone reaches 0.6
_CLOSE = 0.85
_FUZZY_FROM = 6  # shorter names can be legitimately similar: --mode and --model
_PREFIX_FROM = 8


class ValueMismatchError(ValueError):
    """Raised for an invalid value; the message states what was expected.

    Attributes:
        index: index of the invalid element of a list or dictionary, or None.
        element: its name in messages, or empty for its index.
    """

    index: int | None = None
    element: str = ""


def mismatch(expected: str, got: object) -> ValueMismatchError:
    """Return the error for an invalid value `got`; `expected` is a phrase that describes valid values."""
    is_quoted = isinstance(got, str) and got.isdecimal() and expected.startswith("an integer")
    return ValueMismatchError(f"expected {expected}, got {show(got)}" + "; remove the quotes" * is_quoted)


def show(value: object) -> str:
    """Format a value and its type for a message, short enough for one line."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - an integer of 5000 digits, the user's own __repr__
        text = f"(cannot be shown: {type(error).__name__})"
    if len(text) > _MAX_SHOWN:
        text = text[: _MAX_SHOWN - 3] + "..."
    kinds = {str: "the string ", bool: "", int: "", float: "", type(None): ""}
    return kinds.get(type(value), f"the {type(value).__name__} ") + text


def integer(low: int, high: int) -> Callable[[object], int]:
    """Return a validator of integers within [low, high]; True and False are rejected."""
    expected = f"an integer from {low} to {high}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise mismatch(expected, value)
        return value

    return read


def whole(least: int) -> Callable[[object], int]:
    """Return a validator of decimal integers that are at least `least`."""

    def read(value: object) -> int:
        digits = str(value)
        if not (digits.isascii() and digits.isdigit()) or not least <= int(digits) <= MOST_COUNTED:
            raise ValueMismatchError(
                f"expected a whole number from {least} to {MOST_COUNTED}, got {digits!r}"
            )
        return int(digits)

    return read


def seconds(low: float, high: float) -> Callable[[object], float]:
    """Return a validator of finite numbers of seconds within [low, high]."""
    expected = f"a number of seconds from {low:g} to {high:g}"

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise mismatch(expected, value)
        if not low <= value <= high:  # also rejects nan
            raise mismatch(expected, value)
        return float(value)

    return read


def boolean(value: object) -> bool:
    """Accept True, False, 1, 0 or one of gflags' Boolean words, case-insensitively."""
    word = str(value).lower() if isinstance(value, str | bool | int) else ""
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise mismatch("True or False (also yes, no, 1, 0)", value)


def umask(value: object) -> int:
    """Accept a umask that leaves the owner all permissions and denies others write access."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in (0o077, 0o027, 0o022):
        wanted = "0o077 (only you), 0o027 (your group can read) or 0o022 (everyone can read), with 0o before the digits"
        raise mismatch(wanted, value)
    return value


def one_of(kind: type[E]) -> Callable[[object], E]:
    """Return a validator of the values of an enumeration."""
    expected = " or ".join(repr(str(word)) for word in kind)

    def read(value: object) -> E:
        if value not in tuple(kind):
            raise mismatch(expected, value)
        return kind(str(value))

    return read


def text(value: object, expected: str = "a string without control characters") -> str:
    """Accept a string on one line, possibly empty."""
    if not isinstance(value, str) or not value.isprintable():
        raise mismatch(expected, value)
    return value


def utf8(token: str) -> str:
    """Decode a token's bytes as UTF-8 with surrogate escapes, so that a launcher in any locale can restore them."""
    return os.fsencode(token).decode("utf-8", "surrogateescape")


def comma_separated(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """Split a string into its parts between commas."""
    return tuple(filter(None, given.split(","))) if isinstance(given, str) else given


def patterns(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """Accept patterns of files in the directory of --keep_as, separated by commas."""
    found = comma_separated(given)
    for each in map(PurePosixPath, found):
        if each.is_absolute() or ".." in each.parts:
            raise ValueMismatchError(
                f"expected patterns relative to the directory of --keep_as, such as *.pt, got {str(each)!r}"
            )
    return found


def is_line(given: str) -> bool:
    """Return whether a text contains no control characters; undecodable bytes are allowed."""
    return all(character.isprintable() or "\udc80" <= character <= "\udcff" for character in given)


def inside(given: str) -> str:
    """Accept a path inside the workspace; return its shortest form."""
    path = PurePosixPath(os.path.normpath(given))
    if (
        path.is_absolute()
        or ".." in path.parts
        or str(path) == "."
        or given.startswith("-")
        or not is_line(given)
    ):
        raise ValueMismatchError(
            f"expected a path inside the workspace, relative to it, such as {path.name or 'train.py'}, got {given!r}"
        )
    return str(path)


def directories(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """Accept directories of the workspace, separated by commas; return their shortest forms."""
    return tuple(map(inside, comma_separated(given)))


def directory_there(given: str) -> str:
    """Accept the path of a directory that already exists on the nodes; its existence is not checked here."""
    if not is_line(given) or ".." in PurePosixPath(given).parts or given.startswith("-"):
        raise ValueMismatchError(
            "expected a directory on the nodes (absolute, beginning with ~, or relative to "
            f"ROOT_DIR), got {given!r}"
        )
    return given


def directory_name(given: str) -> str:
    """Accept a name that can also be a directory name on nodes; only the default is empty."""
    if given and not _KEPT.fullmatch(given):
        raise ValueMismatchError(
            f"expected a name of letters, digits, '.', '_' and '-', such as run7; got {given!r}"
        )
    return given


def job_name(given: str) -> str:
    """Accept a name for a job that cannot be mistaken for a job ID; only the default is empty."""
    if given and (not _KEPT.fullmatch(given) or _JOB_ID.fullmatch(given)):
        raise ValueMismatchError(
            "expected a name of letters, digits, '.', '_' and '-', such as resnet, that is not a "
            f"job id or the last six characters of one; got {given!r}"
        )
    return given


def nics(value: object) -> str:
    """Accept names of network interfaces separated by commas, or an empty text."""
    if not isinstance(value, str) or (value and not all(_NIC.fullmatch(part) for part in value.split(","))):
        raise mismatch("the name of a network interface such as 'eth0', or '' to choose one", value)
    return value


def root_dir(value: object) -> str:
    """Accept a directory on the nodes: absolute, or below a home directory."""
    expected = "a directory on the nodes, absolute or beginning with ~, such as '/home/paddle'"
    if not isinstance(value, str) or not value.startswith(("/", "~")) or not value.isprintable():
        raise mismatch(expected, value)
    return value.rstrip("/") or "/"


def python(value: object) -> str:
    """Accept a Python on the nodes: a command name, an absolute path, or empty for the default."""
    expected = "a command such as 'python3.11', without arguments, or a path such as '/opt/conda/bin/python'"
    is_command = isinstance(value, str) and (value.startswith("/") or not {*"/ "} & {*value})
    if not isinstance(value, str) or not is_command or not value.isprintable() or value[:1] in ("-", "~"):
        raise mismatch(expected, value)
    if value.endswith("/bin/activate"):
        raise ValueMismatchError(f"{value} is a script for `source`; give {value[:-8]}python")
    return value


def local_path(value: object) -> Path:
    """Accept the path of a file on the submitting machine; ~ is the user's home directory."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise mismatch("the path of a file on this machine", value)
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise mismatch("a path whose ~USER names a user of this machine", value) from None


@functools.cache  # the database of users is read from a file, or a server
def home() -> Path:
    """Return the home directory that `ssh` uses, which ignores $HOME."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def ssh_path(value: object) -> Path:
    """Accept the path of a file of `ssh`; ~ is the home directory that `ssh` uses."""
    is_below_home = isinstance(value, str) and value.startswith("~/")
    path = local_path(f"{home()}{str(value)[1:]}" if is_below_home else value)
    if os.path.isdir(path):  # unlike is_dir, it returns False if a directory above is not readable
        raise mismatch("the path of a file, not of a directory", value)
    return path


def ssh_config(value: object) -> Path:
    """Accept an SSH configuration; only the default one may be missing."""
    path = ssh_path(value)
    return path if value == "~/.ssh/config" else local_file(str(path))


def local_file(value: object) -> Path:
    """Accept the path of an existing file on the submitting machine; ~ is the user's home directory."""
    path = local_path(value)
    if path.is_dir() or not path.exists():
        raise mismatch("a file that exists on this machine", value)
    return path


def list_of(read: Callable[[object], T], what: str) -> Callable[[object], tuple[T, ...]]:
    """Return a validator of lists and tuples with elements that `read` accepts; `what` names them in messages."""

    def read_list(value: object) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise ValueMismatchError(f"{mismatch(f'a list of {what}', value)}{_as_list(value)}")
        read_elements = []
        for index, element in enumerate(value):
            try:
                read_elements.append(read(element))
            except ValueMismatchError as error:
                error.index = index
                raise
        return tuple(read_elements)

    return read_list


def _as_list(value: object) -> str:
    """Return advice for a value that is not a list but contains the elements of one, or ""."""
    if isinstance(value, str) and value.strip():
        return f"; write {value.replace(',', ' ').split()}"
    if isinstance(value, Mapping):
        part = "values" if any(isinstance(one, list | tuple | dict) for one in value.values()) else "keys"
        return f"; write its {part} as a list"
    return "; write it in brackets, with its elements in order" if isinstance(value, Iterable) else ""


def ip_address(value: object) -> str:
    """Accept an IP address of this machine."""
    try:
        return str(ipaddress.ip_address(str(value)))
    except ValueError:
        raise mismatch("an IP address of this machine, such as '127.0.0.1'", value) from None


def ports(value: object) -> range:
    """Accept a port, a range such as '7000-7099', or 0 for any port."""
    given = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    found = _PORTS.fullmatch(given)
    first = int(found[1]) if found else -1
    last = int(found[2] or first) if found else -1
    if given == "0":
        return range(0)
    if not 1 <= first <= last <= _LARGEST_PORT:
        raise mismatch("a port, a range such as '7000-7099', or 0 for any port", value)
    return range(first, last + 1)


def shown_ports(given: range) -> str:
    """Format a range of ports as in conf.py, such as '7000-7099'."""
    return f"{given[0]}-{given[-1]}" if len(given) > 1 else str(given[0])


def slurm_option(value: object) -> str:
    """Accept one option of salloc and sbatch with its value."""
    if not isinstance(value, str) or not value.isprintable() or not re.match(r"-[A-Za-z-]", value):
        raise mismatch("an option with its value in one string, such as '--partition=gpu'", value)
    return value


def node_reference(value: object) -> str | int:
    """Accept a reference to a node of HOSTS: its text in the list, or its 0-based index."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise mismatch("an entry of HOSTS or its index, such as 0", value)
    return value


def from_text(text: str, like: object) -> object:
    """Convert a text from the environment or the command line to the type of the default value `like`."""
    wants_integer = isinstance(like, int) and not isinstance(like, bool)
    return int(text) if wants_integer and _INTEGER.fullmatch(text) else text


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that is most similar to a misspelled one; None if none is similar."""
    from difflib import get_close_matches  # few command lines contain an error

    bare = {each.lstrip("-"): each for each in known}  # dashes are not a similarity
    return next(
        (bare[each] for each in get_close_matches(name.lstrip("-"), bare, n=1, cutoff=_SIMILAR)), None
    )


def near_miss(name: str, ours: str, fuzzy_from: int = _FUZZY_FROM) -> bool:
    """Return whether a name is probably a misspelling of `ours` rather than an option of another program.

    A name is a misspelling if it differs in case, has `-` for `_` or two swapped letters, or is long and is incomplete
    or has one or two wrong letters. Names shorter than `fuzzy_from` must have the right letters.
    """
    bare, target = name.replace("-", "").replace("_", "").lower(), ours.replace("_", "")
    if bare == target or _is_swap(bare, target):
        return True
    if len(target) < fuzzy_from or len(bare) > 2 * len(target):
        return False
    if len(bare) >= _PREFIX_FROM and target.startswith(bare):
        return True
    from difflib import SequenceMatcher

    return SequenceMatcher(None, bare, target).ratio() >= _CLOSE


def _is_swap(one: str, other: str) -> bool:
    """Return whether two adjacent letters are swapped."""
    if len(one) != len(other):
        return False
    wrong = [index for index in range(len(one)) if one[index] != other[index]]
    return len(wrong) == 2 and wrong[1] == wrong[0] + 1 and one[wrong[0]] == other[wrong[1]]
