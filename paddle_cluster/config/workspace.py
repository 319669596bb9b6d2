# SPDX-License-Identifier: Apache-2.0
"""Checks what the command line says about the workspace, before any connection.

What lies deep in the tree (special files, links) is judged where it is walked, in `paddle_cluster.files.package`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from paddle_cluster.config import entry as entries
from paddle_cluster.config import foreign
from paddle_cluster.config.entry import Entry
from paddle_cluster.config.settings import Settings
from paddle_cluster.errors import UsageError, WorkspaceError

_SHADOWS = ("paddle.py", "paddle")


def check_workspace(settings: Settings) -> None:
    """Checks the package on this machine, or the text of a directory on the nodes.

    Raises:
        UsageError: an option cannot mean what it says.
        WorkspaceError: the package is missing or cannot run.
    """
    for directory in settings.job.shard_dirs:
        _check_relative("--shard_dirs", directory)
    _check_config(settings)
    foreign.check(settings)
    if settings.job.package is not None:
        _check_package(settings.job.package, settings.job.entry, settings.job.shard_dirs)
    elif settings.job.workspace is not None:
        _check_remote(settings.job.workspace)


def _check_relative(option: str, text: str) -> None:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or text == "." or text.startswith("-") or not _one_line(text):
        raise UsageError(f"{option}: expected a path inside the workspace, got {text!r}")


def _check_config(settings: Settings) -> None:
    """`--config` is the trainers' own configuration, in the workspace; who means the cluster's is told its name."""
    given = dict(settings.job.flags).get("config")
    if given is None:
        return
    path, package = PurePosixPath(given), settings.job.package
    is_inside = not path.is_absolute() and ".." not in path.parts
    if package is not None and not (is_inside and (package / path).is_file()):
        missing = f"the workspace {package} has no such file"
    elif package is None and Path(path).is_file():
        missing = "it is a file of this machine, and the job's files are on the nodes already"
    else:
        return
    raise UsageError(
        f"--config={given}: {missing}; --config is a configuration of the trainers in the workspace. "
        f"The hosts are in --conf=FILE: give --conf={given} if you mean those"
    )


def _check_package(package: Path, entry: Entry, shard_dirs: Iterable[str]) -> None:
    if not package.exists():
        raise WorkspaceError(
            f"--job_dispatch_package: {package} does not exist; give the directory to dispatch"
        )
    if not package.is_dir():
        raise WorkspaceError(
            f"--job_dispatch_package: {package} is not a directory; "
            f"give the directory that holds it: --job_dispatch_package={package.parent}"
        )
    try:
        names = os.listdir(package)
    except OSError as error:
        raise WorkspaceError(
            f"--job_dispatch_package: {package} cannot be read: {error.strerror}; make it readable for you"
        ) from error
    if not names:
        raise WorkspaceError(
            f"--job_dispatch_package: {package} is empty; put {entry.text} and its data into it"
        )
    for name in _SHADOWS:
        if name in names:
            raise WorkspaceError(
                f"{package / name} would hide the paddle package from {entry.text} on the nodes; rename it"
            )
    entries.check(entry, package)
    for directory in shard_dirs:
        if not (package / directory).is_dir():
            raise WorkspaceError(f"--shard_dirs: {package} has no directory {directory}")


def _check_remote(workspace: str) -> None:
    if not _one_line(workspace) or ".." in PurePosixPath(workspace).parts or workspace.startswith("-"):
        raise UsageError(
            f"--job_workspace: expected a directory on the nodes, absolute, beginning with ~, "
            f"or relative to ROOT_DIR, got {workspace!r}"
        )


def _one_line(text: str) -> bool:
    """Whether the text has no control characters; bytes that are no UTF-8 are let through."""
    return all(character.isprintable() or "\udc80" <= character <= "\udcff" for character in text)
