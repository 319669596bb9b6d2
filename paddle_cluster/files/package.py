# SPDX-License-Identifier: Apache-2.0
"""The manifest of a file tree: the files that a node must have, each with its digest.

Names are preserved byte by byte; bytes that are not UTF-8 become surrogates. `log/` and `output/` at the top, `.git`
and `__pycache__` anywhere, and everything matched by .paddleignore are never sent. Virtual environments, which work
only on one machine, are sent only if .paddleignore names them with `!`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import marshal
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from paddle_cluster.errors import WorkspaceError
from paddle_cluster.files.unsent_files import link_problem, secrets
from paddle_cluster.system.digests import DIGEST_SIZE, Digests, mark
from paddle_cluster.system.installation import RUNTIME_DIR
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import NamedTuple, dataclass, regex, replace
from paddle_node.contract.names import LOG, OUTPUT, is_unlinked

IGNORE_FILE = ".paddleignore"
MANIFEST_PART = 1 << 20  # approximate bytes of JSON in one frame
LISTED = 20  # maximum number of problems in an error
_PERMISSIONS = 0o777
_NEVER_AT_TOP = frozenset((LOG, OUTPUT))
_NEVER = frozenset((".git", "__pycache__"))
_VENV = "pyvenv.cfg"  # the file that marks a virtual environment
_BY_NAME = "the built-in rules"
_BY_VARIABLES = "--env_file and .env, which may contain secrets"
_PACKAGES = ("paddle", "paddle_node", "paddle_job.py", "py_paddle.py")
_NOT_SENT = ("paddle_node", "agent")  # sent separately
_IMPORTED = (".py", ".c", ".h", ".so")
_BUILT = "paddle/kernels/built/"
_SHADOWS = ("paddle.py", *_PACKAGES)
_SHARD_NUMBER = regex(r"-([0-9]{5})$")
_SPECIAL = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Ignored = Callable[[str], "bool | None"]  # False if a line with ! names it; a folder ends with a slash


class TreeEntry(NamedTuple):
    """An entry of a file tree: a regular file, symlink or directory.

    Attributes:
        path: relative to the top, with slashes.
        mode: permission bits; setuid, setgid and sticky are never sent.
        size, digest, source, content: of a regular file; source is the path to read, unless there is content.
        changed_ns: modification time of a regular file or directory, if it is preserved.
        target: target of a symlink.
        is_dir: whether it is a directory.
    """

    path: str
    mode: int = 0
    size: int = 0
    digest: str = ""
    source: str = ""
    content: bytes | None = None
    changed_ns: int | None = None
    target: str = ""
    is_dir: bool = False

    def open(self) -> BinaryIO:
        """Open a regular file for reading. Raises OSError if the file cannot be read."""
        return io.BytesIO(self.content) if self.content is not None else open(self.source, "rb", buffering=0)

    def manifest_item(self) -> list[str | int | bool]:
        """Return the entry as the list that the agent parses."""
        if self.target:  # an absolute one is preserved, and does not count as leaving the tree
            return [self.path, "l", self.target, *([True] if self.target.startswith("/") else [])]
        times = [] if self.changed_ns is None else [max(0, self.changed_ns)]
        if self.is_dir:
            return [self.path, "d", self.mode, *times]
        return [self.path, "f", self.mode, self.size, self.digest, *times]


class LeftOut(NamedTuple):
    """A file or folder that is not sent; the path of a folder ends with a slash.

    Attributes:
        rule: the reason, as text for messages.
    """

    path: str
    rule: str


@dataclass(frozen=True)
class Package:
    """A complete tree of files to send, sorted by path.

    Attributes:
        left_out: items of the folder that are not part of the package.
    """

    entries: tuple[TreeEntry, ...]
    left_out: tuple[LeftOut, ...] = ()

    @cached_property
    def files(self) -> tuple[TreeEntry, ...]:
        """Return the package's regular files."""
        return tuple(entry for entry in self.entries if entry.digest)

    @cached_property
    def by_digest(self) -> dict[str, TreeEntry]:
        """Return one file for each digest; files of equal content have the same digest."""
        return {entry.digest: entry for entry in reversed(self.files)}

    @cached_property
    def total_bytes(self) -> int:
        """Return the total size of the files on a node, in bytes."""
        return sum(entry.size for entry in self.files)

    @cached_property
    def digest(self) -> str:
        """Return a digest of all names, modes and contents together."""
        state = hashlib.blake2b(digest_size=DIGEST_SIZE)
        for part in self.manifest_parts():
            state.update(part)
        return state.hexdigest()

    def manifest_parts(self) -> tuple[bytes, ...]:
        """Return the manifest as JSON lists, each small enough for a frame; at least one."""
        return self._parts

    @cached_property
    def _parts(self) -> tuple[bytes, ...]:
        return tuple(self._make_parts())

    def _make_parts(self) -> Iterator[bytes]:
        encode = json.JSONEncoder(separators=(",", ":")).encode
        items: list[str] = []
        size = 0
        for entry in self.entries:
            item = encode(entry.manifest_item())
            items.append(item)
            size += len(item)
            if size >= MANIFEST_PART:
                yield f"[{','.join(items)}]".encode()
                items, size = [], 0
        if items or not self.entries:
            yield f"[{','.join(items)}]".encode()


def workspace_package(
    root: Path, withheld: Collection[str] = (), digests: Digests | None = None, keep_links: bool = False
) -> Package:
    """Walk and hash the user's workspace, and return it as a package.

    Args:
        withheld: files that are not sent, relative to `root`.
        digests: cached digests of unchanged files; None means every file is read.
        keep_links: whether to send links to absolute paths unchanged.

    Raises:
        WorkspaceError: an item cannot be sent; the message names it.
    """
    return _package(root, _read_ignored(root), _SHADOWS, withheld, digests, keep_links)


def survey(root: Path, withheld: Collection[str], left_out: list[LeftOut]) -> Iterator[tuple[str, int]]:
    """Yield path and size of each file that would be sent, without reading or checking it.

    Args:
        left_out: receives the items that would not be sent.
    """
    for path, found in _walk(root, _read_ignored(root), [], left_out):
        if path in withheld:
            left_out.append(LeftOut(path, _BY_VARIABLES))
            continue
        with contextlib.suppress(OSError):
            if found.is_file(follow_symlinks=False):
                yield path, found.stat(follow_symlinks=False).st_size


def runtime_package(root: Path) -> Package:
    """Walk and hash the code below `root` that jobs import: paddle, paddle_node (no agent), paddle_job, py_paddle.

    Compiled kernels are sent with the sources that they are verified against.
    """
    package = _package(root, _not_in_runtime, shadows=())
    wanted = {entry.path for entry in package.files if entry.path.endswith(_IMPORTED)}
    folders = {path.rpartition("/")[0] for path in wanted}
    while above := {folder.rpartition("/")[0] for folder in folders} - folders:
        folders |= above
    kept = wanted | folders
    # without times: the same code gives the same tree, regardless of the time of checkout
    return Package(tuple(entry._replace(changed_ns=None) for entry in package.entries if entry.path in kept))


def runtime_state(root: Path) -> tuple[str, float]:
    """Return a digest of the metadata of all files that `runtime_package` reads, and the time of the last change."""
    marks, newest = [], 0.0
    for path, found in _walk(root, _not_in_runtime, [], []):
        with contextlib.suppress(OSError):
            status = found.stat(follow_symlinks=False)
            newest = max(newest, status.st_mtime, status.st_ctime)
            # a folder's size and times change with files that are not sent
            marks.append((path, status.st_mode, "" if stat.S_ISDIR(status.st_mode) else mark(status)))
    marks.sort()
    state = hashlib.blake2b(marshal.dumps((str(root), marks), 2), digest_size=DIGEST_SIZE).hexdigest()
    return state, newest


def _not_in_runtime(path: str) -> bool:
    parts = path.split("/", 2)
    is_half_built = path.startswith(_BUILT) and not path.endswith((_BUILT, ".so"))
    return parts[0] not in _PACKAGES or tuple(parts[:2]) == _NOT_SENT or is_half_built


def compiled_kernels(root: Path = RUNTIME_DIR) -> frozenset[str]:
    """Return the platforms, such as linux-x86_64-gnu, that have compiled kernels below `root`."""
    return frozenset(path.name.rpartition("-")[0] for path in (root / _BUILT).glob("linux-*.so"))


def shard(package: Package, shard_dirs: Iterable[str], ranks: Collection[int], trainers: int) -> Package:
    """Return a node's share: of `*-NNNNN` files under `shard_dirs`, those with NNNNN mod `trainers` in `ranks`.

    A suffix may follow the number, as in `train-00003.txt`.
    """
    prefixes = tuple(directory.strip("/") + "/" for directory in shard_dirs)
    if not prefixes:
        return package

    def is_here(entry: TreeEntry) -> bool:
        number = _SHARD_NUMBER.search(entry.path.rpartition("/")[2].partition(".")[0])
        if entry.is_dir or number is None or not entry.path.startswith(prefixes):
            return True
        return int(number[1]) % trainers in ranks

    return replace(package, entries=tuple(entry for entry in package.entries if is_here(entry)))


def _read_ignored(root: Path) -> Ignored:
    path = root / IGNORE_FILE
    try:
        if not path.is_file() and path.exists():  # reading a named pipe would never end
            raise WorkspaceError(f"{path}: must be a file")
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return lambda path: None
    except OSError as error:
        raise WorkspaceError(f"{path}: cannot be read: {error.strerror}") from error
    import pathspec  # the import takes 8 ms, and few workspaces have the file

    spec = pathspec.GitIgnoreSpec.from_lines(lines)
    return lambda path: spec.check_file(path).include


def _package(
    root: Path,
    ignored: Ignored,
    shadows: Iterable[str],
    withheld: Collection[str] = (),
    digests: Digests | None = None,
    keep_links: bool = False,
) -> Package:
    problems: list[str] = []
    entries: dict[str, TreeEntry] = {}
    files: dict[str, tuple[str, os.stat_result]] = {}
    left_out: list[LeftOut] = []
    for path, found in _walk(root, ignored, problems, left_out):
        if path in withheld:
            left_out.append(LeftOut(path, _BY_VARIABLES))
            continue
        if path in shadows:
            problems.append(f"{path} hides the paddle package on the nodes; rename it")
        entry = _entry(path, found, files, problems)
        if entry is not None:
            entries[path] = entry
    problems += secrets(files, lambda path: ignored(path) is False)
    links = {path: entry.target for path, entry in entries.items() if entry.target}
    tree = entries.keys() | files
    for path in links:
        if problem := link_problem(path, links, tree, keep_links):
            problems.append(f"{path} is a link {problem}")
    _check(root, problems)  # reading a large workspace takes minutes
    hashed = (digests or Digests(None)).of(files.values())
    for path, (source, status) in files.items():
        result = hashed[source]
        if not isinstance(result, OSError):
            mode = status.st_mode & _PERMISSIONS
            entries[path] = TreeEntry(
                path, mode, result.size, result.digest, source, None, status.st_mtime_ns
            )
        elif not isinstance(result, FileNotFoundError) or os.path.lexists(source):
            # otherwise, it was removed meanwhile, like an editor's temporary file
            problems.append(f"cannot read {path}: {result.strerror}")
    _check(root, problems)
    return Package(tuple(entries[path] for path in sorted(entries)), tuple(left_out))


def _check(root: Path, problems: list[str]) -> None:
    if problems:
        listed = "\n  ".join(visible(problem) for problem in sorted(problems)[:LISTED])
        if len(problems) > LISTED:
            listed += f"\n  and {len(problems) - LISTED} more"
        raise WorkspaceError(
            f"cannot dispatch {root}; move these files out, or name them in {IGNORE_FILE}:\n  {listed}"
        )


def _walk(
    root: Path, ignored: Ignored, problems: list[str], left_out: list[LeftOut]
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    todo = [""]
    while todo:
        folder = todo.pop()
        try:
            found = list(os.scandir(root / folder))
        except OSError as error:
            if not folder or not isinstance(error, FileNotFoundError):
                problems.append(f"cannot read {folder or root}: {error.strerror}")
            continue
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_dir = entry.is_dir(follow_symlinks=False)
            shown = path + "/" if is_dir else path
            rule = ignored(shown)
            is_venv = is_dir and rule is None and os.path.exists(f"{entry.path}/{_VENV}")
            if is_venv or entry.name in _NEVER or path in _NEVER_AT_TOP or is_unlinked(entry.name):
                left_out.append(LeftOut(shown, _BY_NAME))
                continue
            if rule:
                left_out.append(LeftOut(shown, IGNORE_FILE))
                continue
            yield path, entry
            if is_dir:
                todo.append(path)


def _entry(
    path: str, found: os.DirEntry[str], files: dict[str, tuple[str, os.stat_result]], problems: list[str]
) -> TreeEntry | None:
    """Return the entry of a directory or link; add a regular file to `files`, to be hashed with all others."""
    try:
        status = found.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            files[path] = found.path, status
            return None
        if stat.S_ISLNK(status.st_mode):
            return TreeEntry(path, target=os.readlink(found.path))
        if stat.S_ISDIR(status.st_mode):
            mode = status.st_mode & _PERMISSIONS
            return TreeEntry(path, mode, changed_ns=status.st_mtime_ns, is_dir=True)
    except FileNotFoundError:  # removed meanwhile
        return None
    except OSError as error:
        problems.append(f"cannot read {path}: {error.strerror}")
        return None
    problems.append(f"{path} is {_SPECIAL.get(stat.S_IFMT(status.st_mode), 'not a regular file')}")
    return None
