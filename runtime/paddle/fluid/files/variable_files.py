# SPDX-License-Identifier: Apache-2.0
"""Saves and loads variables: one file per variable, named like it, or one file for all, sorted by name.

A file appears under its name only when it is complete.

A trainer that has proved that it has the job's key can make a server write to any path. On an unencrypted connection,
any peer that reaches the port can choose the path. Files are then restricted to the server's working directory and the
system's temporary directory, must have the names of tables, and replace only files of tables.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from paddle.errors import PserverError
from paddle.fluid.errors import FluidTypeError, ModelFileError
from paddle.fluid.files.table_states import without_served_rows
from paddle.fluid.files.tensor_file import (
    read_selected_rows,
    read_tensor,
    write_row_blocks,
    write_selected_rows,
    write_tensor,
)
from paddle.fluid.program.misuse import MISUSE
from paddle.fluid.program.program import Program, default_main_program
from paddle.fluid.program.untrained import renamed
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.fluid.run.scope import global_scope
from paddle.graph.errors import NotInitializedError
from paddle.ops.base.selected_rows import SelectedRows
from paddle.signatures import explained, function

_BEGINNING = bytes(4)  # of all files of values: the version
_MAX_PATH = 4096
TABLE_STATES = ".states"
"""Suffix of the file next to a table's file, with the update rule's state of each row."""
_RULE = "rule "


def plain_wire_folders() -> tuple[Path, ...]:
    """Return the folders to which a server may write for trainers on unencrypted connections.

    The working directory is excluded if it is `/`, because that contains every file.
    """
    here = Path.cwd().resolve()
    return tuple(each for each in (here, Path(tempfile.gettempdir()).resolve()) if each != Path("/"))


def checked_place(table: str, path: str, folders: Sequence[Path] | None) -> Path:
    """Check that a server may write a table to a path, and return the path to use.

    Args:
        path: path from a trainer; a relative one starts at the server's working directory.
        folders: folders, one of which must contain the path; None means trainers are trusted.

    Raises:
        PserverError: the table must not be written to this path.
    """
    wanted = Path(path)
    if "\0" in path or len(path) > _MAX_PATH or not wanted.name or wanted.name == "..":
        raise PserverError(f"cannot save {table!r} to {path[:200]!r}: not a valid file name")
    if folders is None:
        return wanted
    try:
        folder = wanted.parent.resolve()
    except (OSError, RuntimeError) as error:  # links that form a loop
        raise PserverError(f"cannot write {path}: {error}") from error
    inside = [folder.relative_to(each).parts for each in folders if folder.is_relative_to(each)]
    if not any(all(not part.startswith(".") for part in parts) for parts in inside):
        allowed = " or ".join(map(str, folders))
        raise PserverError(
            f"refused to write {path}: without PADDLE_JOB_KEY, any peer could send this request. This server "
            f"therefore writes only under {allowed}, and not to hidden directories. Set the same PADDLE_JOB_KEY for "
            "all processes, or start the server in the directory of the files"
        )
    place = folder / wanted.name
    number = wanted.name.removeprefix(f"{table}_").removesuffix(TABLE_STATES)
    if not (wanted.name.startswith(f"{table}_") and number.isascii() and number.isdigit()):
        raise PserverError(
            f"refused to write {path}: without PADDLE_JOB_KEY, a file of {table} must be named {table}_<number>. Use "
            "such a name, or set the same PADDLE_JOB_KEY for all processes"
        )
    if not _is_ours_or_absent(place):
        raise PserverError(
            f"refused to write {path}: without PADDLE_JOB_KEY, a server replaces only files that a server saved; "
            "remove this file, or give all processes the same PADDLE_JOB_KEY"
        )
    return place


def _is_ours_or_absent(place: Path) -> bool:
    try:
        if not stat.S_ISREG(place.lstat().st_mode):
            return False
        with place.open("rb") as stream:
            return stream.read(len(_BEGINNING)) == _BEGINNING
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


_Predicate = Callable[[Variable], bool]
_NEVER = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER, VarType.RAW)


def is_parameter(var: Variable) -> bool:
    """Return whether a variable is a parameter."""
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """Return whether a variable is persistable and can be saved: feeds, fetches and readers cannot."""
    return var.persistable and var.type not in _NEVER


@explained
def save_vars(
    executor: object,
    dirname: str | os.PathLike[str],
    main_program: Program | None = None,
    vars: Sequence[Variable] | None = None,
    predicate: _Predicate | None = None,
    filename: str | None = None,
) -> None:
    """Save variables of the global scope in a folder; create it if necessary.

    Args:
        executor: ignored.
        main_program: program that the variables belong to; None means the default main program.
        vars: the variables; None means those that the predicate selects.
        predicate: returns whether to save a variable.
        filename: one file for all; None means one file for each.

    Raises:
        NotInitializedError: a variable has no value.
    """
    chosen = _chosen(main_program, vars, predicate)
    folder = Path(dirname)
    make_folder(folder)
    scope = global_scope()
    for variable in chosen:
        if not scope.has(variable.name):
            raise NotInitializedError(
                variable.name,
                f"cannot save {variable.name!r}: it has no value; run the startup program first, in the same scope",
            )
    if filename is None:
        for variable in chosen:
            with _complete(place_of(folder, variable.name)) as stream:
                _write(stream, scope.get(variable.name))
    else:
        with _complete(folder / filename) as stream:
            for variable in sorted(chosen, key=lambda each: each.name):
                _write(stream, scope.get(variable.name))


@explained
def load_vars(
    executor: object,
    dirname: str | os.PathLike[str],
    main_program: Program | None = None,
    vars: Sequence[Variable] | None = None,
    predicate: _Predicate | None = None,
    filename: str | None = None,
) -> None:
    """Load variables into the global scope from the files of `save_vars`; see `save_vars` for the arguments.

    Raises:
        ModelFileError: a file is missing or damaged, or contains a value of a different shape or dtype; then nothing
            is changed.
    """
    chosen = _chosen(main_program, vars, predicate)
    folder = Path(dirname)
    values: dict[str, Any] = {}
    if filename is None:
        for variable in chosen:
            values[variable.name] = _only(place_of(folder, variable.name), variable)
    else:
        with opened(folder / filename) as stream:
            for variable in sorted(chosen, key=lambda each: each.name):
                values[variable.name] = _read(stream, variable)
            _at_end(stream, folder / filename)
    scope = global_scope()
    MISUSE.loaded(scope, values)
    for name, value in values.items():
        scope.set(name, value)


def place_of(folder: str | os.PathLike[str], name: str) -> Path:
    """Return the path of a variable's file, which need not exist. The name can come from an untrusted program.

    Raises:
        ModelFileError: the path is outside the folder, or the name is not valid for a file.
    """
    path = Path(folder, name)
    parts = name.split("/")
    if not name or "\0" in name or os.path.isabs(name) or any(part in ("", ".", "..") for part in parts):
        raise ModelFileError(
            f"expected a relative path inside {folder} for the file of a variable, got {name[:200]!r}"
        )
    if len(parts) > 1 and not path.parent.resolve().is_relative_to(Path(folder).resolve()):
        raise ModelFileError(f"{path}: a symbolic link in the path leads outside {folder}")
    return path


def write_value(path: str | os.PathLike[str], value: Any) -> None:
    """Write an array or selected rows to a file, which appears only when it is complete."""
    write_values(path, [value])


def write_values(path: str | os.PathLike[str], values: Iterable[Any]) -> None:
    """Write several values to one file, one after another; see `write_value`."""
    with _complete(Path(path)) as stream:
        for value in values:
            _write(stream, value)


def read_values(path: str | os.PathLike[str], count: int) -> list[Any]:
    """Read a file that contains `count` arrays, each with its LoD if it has any.

    Raises:
        ModelFileError: the file is missing or damaged, or contains a different number of arrays.
    """
    with opened(Path(path)) as stream:
        values = [read_tensor(stream, str(path)) for _ in range(count)]
        _at_end(stream, Path(path))
    return values


def read_value(path: str | os.PathLike[str], variable: Variable) -> Any:
    """Read a file that contains one value, which must match a variable.

    Raises:
        ModelFileError: the file is missing or damaged, or contains a value of a different shape or dtype.
    """
    return _only(Path(path), variable)


def write_rows(
    path: str | os.PathLike[str],
    shape: tuple[int, int],
    height: int,
    rows: Iterable[npt.NDArray[np.int64]],
    values: Iterable[npt.NDArray[np.float32]],
    rule: str = "",
) -> None:
    """Write selected rows, given in blocks, like `write_value`; see `tensor_file.write_row_blocks`.

    Args:
        rule: `rule_line` of the update rule whose states are written; it is appended to the file.
    """
    with _complete(Path(path)) as stream:
        write_row_blocks(stream, shape, height, rows, values)
        stream.write(f"{_RULE}{rule}\n".encode() if rule else b"")


def _all_that(predicate: _Predicate, move: Callable[..., None], name: str, doc: str) -> Callable[..., None]:
    """Return the function that saves or loads all variables that a predicate selects."""
    signature = f"{name}(executor, dirname, main_program=None, filename=None)"
    return explained(function(signature, doc, lambda given: move(**given, predicate=predicate)))


_KEPT = "all persistent values: parameters, optimizer states, learning rates"
save_params = _all_that(is_parameter, save_vars, "save_params", "Save all parameters; see `save_vars`.")
load_params = _all_that(is_parameter, load_vars, "load_params", "Load all parameters; see `load_vars`.")
save_persistables = _all_that(
    is_persistable, save_vars, "save_persistables", f"Save {_KEPT}; see `save_vars`."
)
load_persistables = _all_that(
    is_persistable, load_vars, "load_persistables", f"Load {_KEPT}; see `load_vars`."
)


def _chosen(
    program: Program | None, variables: Sequence[Variable] | None, predicate: _Predicate | None
) -> list[Variable]:
    program = program or default_main_program()
    if not isinstance(program, Program):
        raise FluidTypeError(f"main_program: expected a Program, got {program!r}")
    if variables is not None:
        block = program.global_block()
        return [block.var(each) if isinstance(each, str) else each for each in variables]
    found = [each for each in program.list_vars() if isinstance(each, Variable) and each.type not in _NEVER]
    return without_served_rows(filter(predicate or is_persistable, found))


def _write(stream: BinaryIO, value: Any) -> None:
    if isinstance(value, SelectedRows):
        write_selected_rows(stream, value)
    else:
        write_tensor(stream, value)


def _read(stream: BinaryIO, variable: Variable) -> Any:
    if variable.type == VarType.SELECTED_ROWS:
        return read_selected_rows(stream, variable.name)
    value = read_tensor(stream, variable.name)
    known = len(value.shape) == len(variable.shape) and all(
        want in (-1, got) for got, want in zip(value.shape, variable.shape, strict=True)
    )
    if not known or value.dtype != variable.dtype:
        raise ModelFileError(
            f"the file of {variable.name!r} holds {tuple(value.shape)} {value.dtype}, but the "
            f"program expects {variable.shape} {variable.dtype}; load it into the program that saved it"
        )
    return value


def read_table(path: str | os.PathLike[str], name: str) -> SelectedRows:
    """Read a file that contains rows of a growing table.

    Raises:
        ModelFileError: the file is missing or damaged, or contains something else.
    """
    with opened(Path(path)) as stream:
        rows = read_selected_rows(stream, name, any_ids=True)
        _at_end(stream, Path(path))
    return rows


def read_table_states(path: Path, name: str) -> tuple[SelectedRows, str]:
    """Read a file of an update rule's states; return them and its rule line ("" in files of earlier releases).

    Raises:
        ModelFileError: the file is missing or damaged, or contains something else.
    """
    with opened(path) as stream:
        rows = read_selected_rows(stream, name, any_ids=True)
        line = stream.read(_MAX_PATH).decode(errors="replace")
    if line and not (line.startswith(_RULE) and line.endswith("\n")):
        raise ModelFileError(f"{path} is damaged: unexpected data follows the states of {name!r}")
    return rows, line.removeprefix(_RULE).strip()


def _only(path: Path, variable: Variable) -> Any:
    with opened(path, variable.block.vars) as stream:
        value = _read(stream, variable)
        _at_end(stream, path)
    return value


def _at_end(stream: BinaryIO, path: Path) -> None:
    if stream.read(1):
        raise ModelFileError(
            f"{path} has data after the last variable: the file belongs to a different program"
        )


def make_folder(folder: Path) -> None:
    """Create a directory for saved files, with its parents.

    Raises:
        ModelFileError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFileError(
            f"cannot create the directory {folder}: {error.strerror}; choose one that your user can write"
        ) from error


@contextmanager
def opened(path: Path, variables: Collection[str] = ()) -> Iterator[BinaryIO]:
    """Open a file for reading, as a context manager; a ModelFileError explains why it cannot be read."""
    try:
        stream = path.open("rb")
    except OSError as error:
        folder = path.parent
        reason = error.strerror if folder.exists() else f"the directory {folder} does not exist"
        if isinstance(error, FileNotFoundError) and folder.exists():
            reason = f"{folder} has no such file; {renamed(path, variables)}"
        raise ModelFileError(f"cannot read {path}: {reason}") from error
    with stream:
        yield stream


@contextmanager
def _complete(path: Path) -> Iterator[BinaryIO]:
    make_folder(path.parent)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
