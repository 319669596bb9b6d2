# SPDX-License-Identifier: Apache-2.0
"""The program that trainers run: parses --entry, checks that a workspace contains it, and parses PROGRESS.

An entry is written like the arguments of `python`: `train.py`, or `-mpackage.module`. Anything else is an executable
program. PROGRESS has regular expressions that find numbers in log lines, or names of predefined ones.
"""

from __future__ import annotations

import codecs
import glob
import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle_cluster.config.values import ValueMismatchError, inside, list_of, mismatch, nearest
from paddle_cluster.errors import WorkspaceError
from paddle_node.contract.classes import dataclass, regex
from paddle_node.contract.text import module_files

DEFAULT = "train.py"
_MODULE = regex(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
SCRIPTS = (".py", ".sh")
_PYTHON_SUFFIXES = (".py", ".pyz")
_PROGRAM_HEADS = (b"#!", b"\x7fELF")
_SHELL = regex(r"#!\s*\S*(?:sh|env (?:-\S+ )*\w*sh)\b")
_HEAD_BYTES = 256


@dataclass(frozen=True)
class Entry:
    """The program that the trainers run, given by exactly one of the attributes.

    Attributes:
        path: relative to the workspace.
        module: the name, as after `python -m`.
    """

    path: str = ""
    module: str = ""

    @property
    def text(self) -> str:
        """Return the entry as it is written after --entry."""
        return f"-m{self.module}" if self.module else self.path

    def __str__(self) -> str:
        return self.text

    @property
    def is_program(self) -> bool:
        """Return whether the entry is executed without Python."""
        return not self.module and not self.path.endswith(_PYTHON_SUFFIXES)

    def argv(self, python: str) -> tuple[str, ...]:
        """Return the command line that starts the entry in the job directory."""
        if self.module:
            return python, "-u", "-m", self.module
        if self.is_program:
            return (f"./{self.path}",)  # without a slash, it would be searched in PATH
        return python, "-u", self.path


def read(text: str) -> Entry:
    """Parse the value of --entry and return the entry.

    Raises:
        ValueMismatchError: the value is neither a path inside a workspace nor a module.
    """
    if text.startswith("-m"):
        module = text[2:].strip()
        if _MODULE.fullmatch(module) is None:
            raise ValueMismatchError(
                f"expected -m with a module, such as --entry=-mpackage.train, got {text!r}"
            )
        return Entry(module=module)
    return Entry(path=inside(text))


def check(entry: Entry, package: Path) -> None:
    """Check that a workspace contains the entry and that it can run.

    Raises:
        WorkspaceError: the check failed; the message says what to do.
    """
    if entry.module:
        _check_module(entry.module, package)
        return
    file = package / entry.path
    if file.is_dir():
        raise WorkspaceError(f"{file} is a directory; give a file in it, or a package as --entry=-mPACKAGE")
    if not file.is_file():
        words = entry.path.split()  # of "ws/train.py", "python train.py --lr 0.1" or "train"
        names = [text.rpartition("/")[2] for word in words for text in (word, f"{word}.py")]
        name = next((name for name in names if (package / name).is_file()), "")
        below = [file for one in names for file in package.glob(f"*/{glob.escape(one)}")] if not name else []
        name = name or (str(below[0].relative_to(package)) if len(below) == 1 else "")
        scripts = [file.name for file in package.iterdir() if file.suffix in SCRIPTS]
        name = name or nearest(entry.path, scripts) or ("".join(scripts) if len(scripts) == 1 else "")
        if not name:
            for notebook in sorted(package.glob("*.ipynb"))[:1]:
                _check_program(notebook)
        raise WorkspaceError(
            f"{package} has no file {entry.path}; "
            + (
                f"did you mean --entry={shlex.quote(name)}{_after(words, name)}?"
                if name
                else "add it, or name a different file with --entry=FILE"
            )
        )
    if entry.is_program:
        _check_program(file)
    else:
        _check_content(file)


def _after(words: Sequence[str], name: str) -> str:
    """Return the arguments that follow a script in a command line, as they are given to the launcher."""
    at = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == name), len(words))
    return f" ... -- {' '.join(words[at + 1 :])}" * bool(words[at + 1 :])


def shell_lines(entry: Entry, package: Path | None) -> list[str]:
    """Return the lines of a shell script; none if the entry is another program, or cannot be read any more."""
    try:
        text = (package / entry.path).read_text("utf-8", "replace") if package and entry.is_program else ""
    except OSError:
        text = ""
    return text.splitlines() if _SHELL.match(text) else []


def files(entry: Entry, package: Path) -> tuple[str, ...]:
    """Return the candidate files of an entry, relative to the workspace; none for a module outside it."""
    if entry.module:
        return module_files(entry.module, lambda name: os.path.exists(f"{package}/{name}"))
    return (entry.path,)


def _check_module(module: str, package: Path) -> None:
    names = files(Entry(module=module), package)
    if not names:
        return
    runs = package / names[0]
    if not runs.is_file():
        if module.endswith(".py") and (package / module).is_file():
            raise WorkspaceError(f"{module} is a file, not a module: did you mean --entry={module}?")
        missing = f"neither {' nor '.join(names)}" if names[1:] else f"no {names[0]}"
        raise WorkspaceError(f"{package} has {missing}; --entry=-m{module} cannot run")
    _check_content(runs)


def _check_content(file: Path) -> None:
    """Refuse an empty script, which would exit with code 0 without training."""
    if not file.stat().st_size:
        raise WorkspaceError(
            f"{file} is empty (0 bytes); save the script again, or name a different one with --entry=FILE"
        )


def _check_program(file: Path) -> None:
    hint = "make #!/bin/bash its first line; a Python file must end in .py"
    if file.suffix == ".ipynb":
        raise WorkspaceError(
            f"{file} is a notebook, which Python cannot run: convert it with `jupyter nbconvert --to script "
            f"{file}`, and give --entry={file.stem}.py"
        )
    if not file.stat().st_mode & stat.S_IXUSR:
        raise WorkspaceError(
            f"{file} is not executable; run `chmod +x {file}` (a Python file must end in .py)"
        )
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
    except OSError as error:
        raise WorkspaceError(
            f"cannot read {file}: {error.strerror}; make it readable for your user"
        ) from error
    if head.startswith(codecs.BOM_UTF8):
        raise WorkspaceError(
            f"cannot run {file}: it begins with a byte order mark; save it as UTF-8 without one"
        )
    if not head.startswith(_PROGRAM_HEADS):
        raise WorkspaceError(
            f"cannot run {file}: it is not a Linux executable and does not begin with #! ({hint})"
        )
    if head.startswith(b"#!") and head.partition(b"\n")[0].endswith(b"\r"):
        convert = f"sed -i 's/\\r$//' {shlex.quote(str(file))}"
        raise WorkspaceError(f"cannot run {file}: its lines end in CR LF; convert it with {convert}")


MOST_CHARACTERS = 1000

_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_PAIR = rf"(?P<name>(?!v_num\b)\w+)(?:=|: )(?P<value>{_NUMBER})"

READY: Mapping[str, tuple[str, ...]] = {
    "tqdm": (r"(?:^|[|\s])(?P<step>\d+)/\d+ \[", rf"[ ,]{_PAIR}", r"[ ,](?P<steps_per_s>\d+(?:\.\d+)?)it/s"),
    "lightning": (r"^Epoch (?P<epoch>\d+)\b.*[|\s](?P<step>\d+)/\d+ ", rf"(?:(?<=, )|(?<=\s)){_PAIR}"),
    "transformers": (
        rf"'(?P<name>(?!train_loss)\w+)': '?(?P<value>{_NUMBER})",
        r"(?:^|[|\s])(?P<step>\d+)/\d+ \[",
    ),
    "keras": (r"^Epoch (?P<epoch>\d+)/\d", r"(?:^|\s|1m)(?P<step>\d+)/\d+(?:\x1b\[0m)? ", rf" - {_PAIR}"),
}
"""Name -> its patterns. A group is a number of that name; groups `name` and `value` are a number of any name."""


def read_progress(value: object) -> tuple[str, ...]:
    """Parse PROGRESS: return the regular expressions in a string or a list, with predefined names replaced.

    Raises:
        ValueMismatchError: an expression is invalid, or finds no number.
    """
    given = (_patterns(value),) if isinstance(value, str) else _list(value)
    return tuple(pattern for patterns in given for pattern in patterns)


def _patterns(value: object) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise mismatch(_EXPECTED, value)
    if value in READY:
        return READY[value]
    try:
        groups = set(re.compile(value).groupindex)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueMismatchError(f"{value!r} is not a regular expression: {error}") from error
    if len(value) > MOST_CHARACTERS:
        raise ValueMismatchError(
            f"the pattern has {len(value)} characters; at most {MOST_CHARACTERS} are allowed"
        )
    if not groups:
        near = nearest(value, tuple(READY))
        raise mismatch(_EXPECTED + (f" (did you mean {near!r}?)" if near else ""), value)
    if ("name" in groups) != ("value" in groups):
        raise ValueMismatchError(f"{value!r}: the groups `name` and `value` must appear together")
    return (value,)


_EXPECTED = (
    f"a regular expression with named groups, such as r'loss=(?P<loss>[0-9.]+)', or one of {', '.join(READY)}"
)
_list = list_of(_patterns, "regular expressions with named groups, or names of predefined ones")
