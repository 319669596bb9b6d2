# SPDX-License-Identifier: Apache-2.0
"""Lists the checkpoints below one folder, checks that they are complete, and removes old ones.

A checkpoint is complete if every server's part exists, all parts are of one job, and every file has the size and the
checksum in its manifest. An incomplete checkpoint is skipped with a logged reason, never partly loaded. If each
machine has its own folder, the parts of that machine's servers suffice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from paddle.errors import CheckpointError
from paddle.pserver.durable.checkpoint.format import MANIFEST, MAX_MANIFEST_BYTES, DataFile, Manifest, crc32
from paddle.pserver.durable.checkpoint.reader import compare, open_file, open_plain
from paddle.pserver.durable.checkpoint.writer import UNFINISHED
from paddle.threads import ServiceThread, left_to_finish
from paddle_node.contract.classes import dataclass, regex

_log = logging.getLogger(__name__)

_VERSION = regex(r"v(\d{12,20})(?:\.([\w.-]+))?\Z")
_PART = regex(r"part-(\d+)-of-(\d+)\Z")
_READ = 8 << 20
_AHEAD = 64 << 20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        parts: the parts, in the order of the servers; if machines have separate folders, only this machine's.
    """

    root: Path
    parts: tuple[Manifest, ...]

    @property
    def version(self) -> int:
        """The number of batches that the checkpoint contains."""
        return self.parts[0].version

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files of all parts of the checkpoint."""
        return tuple(file for part in self.parts for file in part.files)


def checking(root: Path, files: Iterable[DataFile]) -> ServiceThread[None]:
    """Start verifying each file in a thread while the caller reads it, so that each byte is read from disk only once.

    The thread's `finish` raises CheckpointError if a file is missing or differs.
    """
    once = list(dict.fromkeys(files))

    def work() -> None:
        for file in once:
            _check(root, file)

    return ServiceThread(work, name="checkpoint-check", failed=left_to_finish)


def check_all(found: Checkpoint) -> None:
    """Verify all files of a checkpoint against its manifests.

    Raises:
        CheckpointError: a file is missing or differs.
    """
    for file in dict.fromkeys(found.files):
        _check(found.root, file)


def is_blank(root: Path) -> bool:
    """Return whether a folder does not exist, or contains neither a checkpoint nor a part of one."""
    return not any(_part_folders(folder) for folder in _versions(root))


def newest(
    root: Path,
    version: int | None = None,
    mine: tuple[int, int] | None = None,
    accept: Callable[[Checkpoint], None] = check_all,
    job: str | None = None,
) -> Checkpoint:
    """Return the newest complete checkpoint, or the one with the given version; log newer incomplete ones.

    Args:
        root: the folder.
        version: required version; None means the newest.
        mine: (server's number, number of servers) of a server that needs only its own part if the placement is
            unchanged.
        accept: raises CheckpointError if the files of a checkpoint differ from its manifests.
        job: id of the job, where several jobs wrote this version; None means the last of them.

    Raises:
        CheckpointError: there is none; the message lists the faults of the existing ones.
    """
    wrong: list[str] = []
    visible = _visible(root, mine)
    for folder in _versions(root):
        if version is not None and _version_of(folder) != version:
            continue
        if job is not None and folder.name.partition(".")[2] != job:
            continue
        try:
            found = Checkpoint(root, _parts(folder, visible))
            accept(found)
        except CheckpointError as error:
            wrong.append(f"{folder}: {error}")
            _log.warning("checkpoint %s is skipped: %s", folder, error)
            continue
        _log.info("checkpoint %s is complete", folder)
        return found
    what = "no complete checkpoint" if version is None else f"no complete checkpoint of batch {version}"
    details = (
        "".join(f"; {text}" for text in wrong[:5]) if root.is_dir() else ": this directory does not exist"
    )
    raise CheckpointError(
        f"{what} in {root}{details}. Give the --checkpoint_dir of an earlier job; a job with --resume=auto also starts "
        "without a checkpoint"
    )


def read_manifest(part: Path) -> Manifest:
    """Read the manifest of one part.

    Raises:
        CheckpointError: the manifest is missing or damaged, or belongs to a different part.
    """
    try:
        if part.is_symlink() or part.parent.is_symlink():
            raise CheckpointError("it is a link")
        with open_plain(part / MANIFEST) as file:
            manifest = Manifest.from_bytes(file.read(MAX_MANIFEST_BYTES + 1))
    except OSError as error:
        raise CheckpointError(f"{part.name}: {MANIFEST}: {error.strerror}") from None
    except CheckpointError as error:
        raise CheckpointError(f"{part.name}: {error}") from None
    if Path(manifest.folder).parts != part.parts[-2:]:
        raise CheckpointError(
            f"{part.name}: the directory was renamed: its manifest names {manifest.folder}; restore that name"
        )
    return manifest


def prune(root: Path, mine: Sequence[Manifest], server: int, keep: int) -> list[Manifest]:
    """Remove old parts of one server; return the parts of `mine` that remain.

    The newest `keep` parts remain, with the parts that they build upon. So do all parts that are at least as new as
    the newest complete checkpoint.

    Args:
        mine: parts that this process wrote, oldest first.
    """
    kept = list(mine[-keep:])
    kept += [manifest for manifest in mine[:-keep] if _needs(root, manifest)]
    needed = {Path(file.path).parent for manifest in kept for file in manifest.files}
    left = []
    for manifest in mine:
        where = Path(manifest.folder)
        if where in needed:
            left.append(manifest)
            continue
        # without its manifest, the part is invalid, even if the removal is interrupted
        (root / where / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(root / where, ignore_errors=True)
        with contextlib.suppress(OSError):  # the directory contains other servers' parts
            (root / where.parent).rmdir()
    return left


def clear_unfinished(root: Path, server: int) -> None:
    """Remove the unfinished parts that an earlier process of this server left."""
    for path in root.glob(f"{UNFINISHED}{server}-*"):
        shutil.rmtree(path, ignore_errors=True)


def _needs(root: Path, manifest: Manifest) -> bool:
    """Return whether this may be the last complete checkpoint, because no newer one has all its parts."""
    for folder in _versions(root):
        if _version_of(folder) <= manifest.version:
            return True
        parts = _part_folders(folder)
        if len(parts) == manifest.count and all((part / MANIFEST).exists() for part in parts):
            return False
    return True


def _versions(root: Path) -> list[Path]:
    """Return the folders of versions, newest first."""
    if not root.is_dir():
        return []
    found = [
        (_version_of(path), _changed_at(path), path) for path in root.iterdir() if _VERSION.match(path.name)
    ]
    return [path for _, _, path in sorted(found, reverse=True)]


def _changed_at(folder: Path) -> int:
    """Return the modification time of a folder; 0 if another server has removed it."""
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _version_of(folder: Path) -> int:
    match = _VERSION.match(folder.name)
    return int(match[1]) if match else -1


def _part_folders(folder: Path) -> list[Path]:
    """Return the parts in a folder; empty if another server has removed it."""
    try:
        return sorted(path for path in folder.iterdir() if _PART.match(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _visible(root: Path, mine: tuple[int, int] | None) -> frozenset[int] | None:
    """Return the servers whose parts a machine-local folder has; None if the parts of all servers are needed."""
    seen = {
        match.groups()
        for folder in _versions(root)
        for part in _part_folders(folder)
        if (match := _PART.match(part.name))
    }
    if mine is None or {count for _, count in seen} != {str(mine[1])}:
        return None
    servers = frozenset(int(server) for server, _ in seen)
    return servers if mine[0] in servers and len(servers) < mine[1] else None


def _parts(folder: Path, visible: frozenset[int] | None) -> tuple[Manifest, ...]:
    found = [read_manifest(part) for part in _part_folders(folder)]
    if not found:
        raise CheckpointError("it is empty")
    by_server = {manifest.server: manifest for manifest in found}
    count = found[0].count
    needed = set(range(count)) if visible is None else visible
    missing = sorted(needed - set(by_server))
    if missing or len(found) != len(needed):
        raise CheckpointError(
            f"expected the parts of {count} servers; missing: {missing or 'none'}. If another number of servers holds "
            "the model now, copy all parts into one directory"
        )
    return tuple(by_server[server] for server in sorted(by_server))


def _check(root: Path, file: DataFile) -> None:
    try:
        with open_file(root, file) as data:
            if file.crc32 is None:
                return
            crc, buffer, at = 0, bytearray(min(_READ, max(file.nbytes, 1))), 0
            while count := data.readinto(buffer):
                os.posix_fadvise(data.fileno(), at + count, _AHEAD, os.POSIX_FADV_WILLNEED)
                crc, at = crc32(memoryview(buffer)[:count], crc), at + count
    except OSError as error:
        raise CheckpointError(f"{file.path}: {error.strerror}") from None
    compare(file, crc)
