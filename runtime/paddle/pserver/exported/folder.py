# SPDX-License-Identifier: Apache-2.0
"""An exported table: a folder with one file per server and a manifest, published atomically.

    DIR/base-000000000120/        a base: all rows
        rows-0-of-2.safetensors
        rows-1-of-2.safetensors
        manifest.json             sizes, digest, and the batch of each server
    DIR/delta-000000000180/       rows that changed after the batches of the previous folder
        removed.npy               ids of rows that left the table after these batches, if there are any

A folder is written under a temporary name, synced and renamed. The rows of a later folder replace rows with the same
ids in earlier folders, and its removed ids drop such rows.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.pserver.exported.columns import MAX_WIDTH, Spool, digest_of
from paddle.pserver.exported.formats import FORMATS, read_file
from paddle.pserver.sparse.blocks import NO_IDS
from paddle.pserver.sparse.walk import TableRows
from paddle_node.contract.classes import asdict, dataclass
from paddle_node.linux.descriptors import sync

MANIFEST = "manifest.json"
REMOVED = "removed.npy"
BASE, DELTA = "base", "delta"

Ids = npt.NDArray[np.int64]
_log = logging.getLogger(__name__)

_MAX_MANIFEST = 16 << 20
_UNFINISHED = ".unfinished-"
_VERSION = 2
_NPY_HEAD = 128  # bytes before the numbers of an array in one dimension
_READABLE = (1, _VERSION)  # folders of version 1 have no removed ids and no generations


@dataclass(frozen=True, slots=True)
class Description:
    """The manifest of an exported folder.

    Attributes:
        table: the name of the exported table.
        width: number of elements in a row.
        states: number of state values per row; None means states are not included.
        rule: update rule of the table's optimizer.
        since: for each server, the batch after which changes are included; empty: all rows are included.
        clocks: for each server, the batch at which the copy began.
        files: name of each server's file.
        rows: number of rows in all files.
        digest: digest of ids, values, states and removed ids, 16 hex digits; it does not depend on the order or the
            number of files.
        removed: number of removed ids.
        generations: generation of each batch in `clocks`, see `Lineage`; empty or 0: unknown.
        follows: generation of each batch in `since`.
    """

    table: str
    width: int
    states: int | None
    rule: str
    since: tuple[int, ...]
    clocks: tuple[int, ...]
    files: tuple[str, ...] = ()
    rows: int = 0
    digest: str = ""
    removed: int = 0
    generations: tuple[int, ...] = ()
    follows: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name of the exported folder."""
        return f"{DELTA if self.since else BASE}-{min(self.clocks, default=0):012d}"

    @classmethod
    def read(cls, folder: Path) -> Description:
        """Read a folder's manifest. Raises ConfigError if the manifest is missing or damaged."""
        path = folder / MANIFEST
        try:
            with open(path, "rb") as file:
                text = file.read(_MAX_MANIFEST + 1)
            data: dict[str, Any] = json.loads(text)
            if data.pop("version") not in _READABLE:
                raise ValueError("a different release wrote the table")
            fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in data.items()}
            made = cls(**fields)
            made._check()
        except OSError as error:
            raise ConfigError(
                f"cannot read {path}: {error.strerror}; expected a complete exported table: copy or export it again"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from None
        return made

    def _check(self) -> None:
        for numbers in (
            self.since,
            self.clocks,
            self.generations,
            self.follows,
            (self.rows, self.width, self.removed),
            () if self.states is None else (self.states,),
        ):
            if not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
                raise ValueError(f"expected whole numbers, got {numbers}")
        if not self.clocks or len(self.since) not in (0, len(self.clocks)):
            raise ValueError(
                f"the servers' batch numbers {self.clocks} and the starting batch numbers {self.since} "
                "differ in length: expected one of each per server"
            )
        if not 0 < self.width <= MAX_WIDTH:
            raise ValueError(f"expected rows of 1 to {MAX_WIDTH} values, got {self.width}")
        for name in (self.table, self.rule, self.digest, *self.files):
            if type(name) is not str:
                raise ValueError(f"expected text, got {name!r}")
        for name in self.files:
            if name != Path(name).name or name in ("", ".", ".."):
                raise ValueError(f"{name!r} is not the name of a file in this directory")


class FolderWriter:
    """The writer of one exported folder. A context manager that removes a folder that was not published."""

    def __init__(self, root: Path, kind: str) -> None:
        """Start below `root`, in a format of `FORMATS`.

        Raises:
            ConfigError: the format is unknown, or the folder cannot be created.
        """
        if kind not in FORMATS:
            raise ConfigError(f"format {kind!r}: expected one of {', '.join(FORMATS)}")
        self._format, self._root = FORMATS[kind], root
        self._folder = root / f"{_UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}"
        self._files: list[str] = []
        self._rows = self._digest = 0
        self._removed: list[Ids] = []

    def __enter__(self) -> Self:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, _lock(self._root, fcntl.LOCK_EX))
                _remove_leftovers(self._root)
                self._folder.mkdir()
                self._lock = _lock(self._folder, fcntl.LOCK_EX)
        except OSError as error:
            raise ConfigError(f"cannot create {self._folder}: {error.strerror}") from None
        return self

    def __exit__(self, _: object, error: object, __: object) -> None:
        os.close(self._lock)
        shutil.rmtree(self._folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise ConfigError(
                f"cannot write the table to {self._root}: {error}; incomplete files were removed"
            ) from None

    def spool(self, width: int, states: int | None, dtype: str = "float32") -> Spool:
        """Return a collector for the rows of one file."""
        return Spool(self._folder, width, states, dtype)

    def write(self, server: int, count: int, spool: Spool) -> None:
        """Write the collected rows of server number `server` of `count` to their file."""
        name = f"rows-{server}-of-{count}{self._format.SUFFIX}"
        self._format.write(self._folder / name, spool.columns())
        sync(self._folder / name)
        self._files.append(name)
        self._rows += spool.count
        self._digest = (self._digest + spool.digest) % (1 << 64)

    def remove(self, ids: Ids) -> None:
        """Record ids (n,) int64 whose rows left the table; ids from one server must be distinct."""
        self._removed.append(ids)

    def publish(self, new: Description) -> Path:
        """Rename the folder to its final name, and return its path.

        Raises:
            ConfigError: a folder of that name, or a base of a later batch, already exists.
        """
        self._refuse_later(new)
        removed = np.concatenate([NO_IDS, *self._removed])
        if len(removed):
            np.save(self._folder / REMOVED, removed)
            sync(self._folder / REMOVED)
        digest = (self._digest + _digest_of_removed(removed)) % (1 << 64)
        found = {
            "files": self._files,
            "rows": self._rows,
            "removed": len(removed),
            "digest": f"{digest:016x}",
        }
        whole = asdict(new) | found
        path = self._folder / MANIFEST
        path.write_text(json.dumps({"version": _VERSION, **whole}, indent=1), encoding="utf-8")
        sync(path)
        sync(self._folder)
        final = self._root / new.name
        try:
            os.rename(self._folder, final)
        except OSError as error:
            raise ConfigError(
                f"cannot create {final}: {error.strerror}; export into a different directory"
            ) from None
        sync(self._root)
        return final

    def _refuse_later(self, new: Description) -> None:
        """Refuse a base that no reader would use because a later one from another run exists."""
        for base in self._root.glob(f"{BASE}-*"):
            if not new.since and base.name > new.name and Description.read(base).table == new.table:
                raise ConfigError(
                    f"{base} has a later batch of table {new.table} than {new.name}, probably from a different "
                    f"run, and would be used instead: move {base}, or export into a different directory"
                )


def folders_of(path: Path) -> list[Path]:
    """Return the newest base below a path and the deltas that follow it, in order, or the path itself if it is one.

    Raises:
        ConfigError: there is no base, a folder is incomplete, or a delta does not follow its predecessor.
    """
    if (path / MANIFEST).is_file():
        if since := Description.read(path).since:
            raise ConfigError(
                f"{path} has only rows that changed after batch {min(since)}; also give the directory of the base"
            )
        return [path]
    found = sorted(path.glob(f"{BASE}-*"))
    if not found:
        raise ConfigError(f"{path} contains no exported table: expected {MANIFEST}, or a folder {BASE}-...")
    chain, at = [found[-1]], _described(found[-1])
    others = {_described(each).table for each in found} - {at.table}
    if others:
        raise ConfigError(
            f"{path} contains tables {', '.join(sorted((*others, at.table)))}: name the directory "
            "of one table, or export each into its own directory"
        )
    for delta in sorted(path.glob(f"{DELTA}-*")):
        said = _described(delta)
        # Rows can leave between two batches.
        is_later = min(said.clocks) > min(at.clocks) or said.since == at.clocks
        if said.table != at.table or not is_later:
            continue
        if min(said.since) > min(at.clocks) or (
            len(said.since) == len(at.clocks)
            and any(since > clock for since, clock in zip(said.since, at.clocks, strict=True))
        ):
            raise ConfigError(
                f"{delta} has the changes after batch {min(said.since)}, but {chain[-1].name} ends before that batch: "
                "add the folder with the changes between them, or export all rows (without since)"
            )
        if are_different(said.follows, at.generations):
            raise ConfigError(
                f"{delta} and {chain[-1].name} are from different runs of table {at.table}: move "
                f"{delta.name} to a directory with the base of its own run"
            )
        chain.append(delta)
        at = said
    return chain


def _described(folder: Path) -> Description:
    """Return the description of a folder in a chain."""
    said = Description.read(folder)
    if said.name != folder.name:
        raise ConfigError(
            f"{folder}: the directory was renamed: its {MANIFEST} names {said.name}; restore that name"
        )
    return said


def are_different(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether two folders' generations differ; an unknown generation matches any other."""
    if not one or not other:
        return False
    return len(one) != len(other) or any(a != b and a and b for a, b in zip(one, other, strict=True))


def read_removed(folder: Path) -> Ids:
    """Return the removed ids (n,) of a folder. Raises ConfigError if the file is missing or damaged."""
    count, path = Description.read(folder).removed, folder / REMOVED
    if not count:
        return NO_IDS
    try:
        if path.stat().st_size != _NPY_HEAD + 8 * count:
            raise ValueError(f"expected {_NPY_HEAD + 8 * count} bytes, got {path.stat().st_size}")
        return np.fromfile(path, np.int64, offset=_NPY_HEAD)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: removed ids cannot be read: {error}") from None


def _digest_of_removed(ids: Ids) -> int:
    return digest_of(TableRows(ids, np.zeros((len(ids), 0), np.float32), np.zeros(0, np.int32), None))


def read_folder(folder: Path, *, with_states: bool = True) -> Iterator[TableRows]:
    """Yield the rows of one folder in bounded pieces, and verify them against its manifest at the end.

    Raises:
        ConfigError: the folder is damaged; the rows yielded before must not be used.
    """
    said, rows, digest = Description.read(folder), 0, _digest_of_removed(read_removed(folder))
    for name in said.files:
        for piece in read_file(folder / name):
            if piece.rows.shape[1] != said.width:
                raise ConfigError(
                    f"{folder / name}: expected rows of width {said.width}, got {piece.rows.shape[1]}"
                )
            rows, digest = rows + len(piece.ids), (digest + digest_of(piece)) % (1 << 64)
            yield piece if with_states else piece._replace(states=None)
    if (rows, f"{digest:016x}") != (said.rows, said.digest):
        raise ConfigError(f"{folder}: the files do not match the manifest; export the table again")


def read_start(path: Path, key: str, width: int, rule: str) -> Iterator[TableRows]:
    """Yield the initial rows of a table, from exported folders or from a single file of another program.

    Args:
        key: the name of the matrix in the file; see `read_file`.
        width: width of the table.
        rule: update rule of the table's optimizer; states of a different rule are skipped, with a warning.

    Raises:
        ConfigError: the rows have a different width, or cannot be read.
    """
    for pieces in _sources(path, key, rule):
        for piece in pieces:
            if piece.rows.shape[1] != width:
                raise ConfigError(
                    f"{path}: rows of width {piece.rows.shape[1]} do not fit a table of width {width}"
                )
            yield piece


def _sources(path: Path, key: str, rule: str) -> Iterator[Iterator[TableRows]]:
    if path.is_file() or path.suffix:
        yield read_file(path, key, is_foreign=True)
        return
    folders = folders_of(path)
    removed = [read_removed(folder) for folder in folders[1:]]
    last = min(Description.read(folders[-1]).clocks)
    for number, folder in enumerate(folders):
        said = Description.read(folder)
        if said.states is not None and said.rule != rule:
            _log.warning(
                "%s: states of the update rule %s are ignored: the table uses %s", folder, said.rule, rule
            )
        gone = np.unique(np.concatenate([NO_IDS, *removed[number:]]))
        pieces = read_folder(folder, with_states=said.rule == rule)
        yield (_remaining(piece, gone).aged(last - min(said.clocks)) for piece in pieces)


def _remaining(rows: TableRows, removed: Ids) -> TableRows:
    """Return the rows whose ids are not among the removed ids (n,), which are in ascending order."""
    return rows.take(~np.isin(rows.ids, removed, assume_unique=True)) if len(removed) else rows


def _lock(folder: Path, how: int) -> int:
    """Return the descriptor of a folder, with a lock that is released when the process ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_leftovers(root: Path) -> None:
    """Remove the unfinished folders of killed writers."""
    for folder in root.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            os.close(_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB))
            shutil.rmtree(folder, ignore_errors=True)
