# SPDX-License-Identifier: Apache-2.0
"""Where the copies of collected files are stored: below log/node_<id>/, output/ or output/checkpoints/node_<id>/."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path

from paddle_cluster.files.collected_paths import SAVED
from paddle_node.contract.names import LOG, OUTPUT

LONG_PATHS = "long-paths"
PATH_LIMIT = 4000  # bytes; PATH_MAX minus the suffix of a partial file
NAME_LIMIT = 255  # bytes; if the file system does not report its limit
PLACES = 65_536  # maximum number of files in the cache


class Places:
    """The local paths of collected files. If the file system ignores the case of names, no two files share a path.

    Args:
        root: the directory that receives log/ and output/.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: dict[str, Path] = {}  # by path in lower case
        self.of = functools.lru_cache(maxsize=PLACES)(
            self._of
        )  # queries the disk; a log arrives in many chunks

    def of_directory(self, node_id: int, path: str) -> Path:
        """Return the local path of a node's directory; two that differ only in case may share one."""
        return fitting(path.partition("/")[2], self._top(node_id, path))

    def _of(self, node_id: int, path: str) -> tuple[Path, bool]:
        """Return the local path of a node's file or link, and whether it must appear only when complete."""
        place = self.of_directory(node_id, path)
        if self._ignores_case and self._names.setdefault(str(place).casefold(), place) != place:
            place = distinct(place)
        return place, not path.startswith(f"{LOG}/")

    def _top(self, node_id: int, path: str) -> Path:
        top = path.partition("/")[0]
        if top == OUTPUT:
            return self._root / OUTPUT
        above = self._root / LOG if top == LOG else self._root / OUTPUT / SAVED
        return above / f"node_{node_id}"

    @functools.cached_property
    def _ignores_case(self) -> bool:
        try:
            return os.path.samefile(self._root / LOG, self._root / LOG.upper())
        except OSError:
            return False


def renaming(path: str, target: Path) -> str:
    """Return a message if a node's file has another name here, otherwise ""."""
    if is_its_name(path, target):
        return ""
    name = path.rpartition("/")[2]
    if target.name.startswith(f"{name}~"):
        return f"{path}: another file's name differs only in case, which this file system ignores; saved as {target}"
    return f"{path[:80]}...: the name is too long for this machine; saved as {target}"


def fitting(path: str, folder: Path) -> Path:
    """Return the local path of a collected file below a folder; names that are too long are shortened, with a digest.

    Args:
        path: relative; no component is ".", ".." or empty.
    """
    limit = name_limit(folder)
    path = cut = _local(path)
    if len(path) * 4 > limit:  # maximum bytes of a character
        cut = "/".join(fitting_name(part, limit) for part in path.split("/"))
    place = folder / cut
    if len(os.fsencode(place)) <= PATH_LIMIT:
        return place
    return folder / LONG_PATHS / fitting_name(f"{digest(path)}-{place.name}", limit)


def fitting_name(name: str, limit: int) -> str:
    """Return a file name of at most `limit` bytes: a longer one is shortened, and made unique with a digest."""
    return name if len(os.fsencode(name)) <= limit else _marked(name, limit)


def distinct(place: Path) -> Path:
    """Return another path for a file, which ends with a digest of its name."""
    return place.with_name(_marked(place.name, name_limit(place.parent)))


def _marked(name: str, limit: int) -> str:
    mark = f"~{digest(name)}"
    return _local(os.fsencode(name)[: limit - len(mark)].decode("utf-8", "ignore")) + mark


def link_target(to: str, folder: Path) -> str:
    """Return the target of a symbolic link in a folder, with the names that `fitting` gives to local copies."""
    limit = name_limit(folder)
    return "/".join(fitting_name(part, limit) for part in _local(to).split("/"))


def is_its_name(path: str, target: Path) -> bool:
    """Return whether a file has the same name locally as on its node, below log/ or output/."""
    return os.fsencode(target).endswith(path.partition("/")[2].encode("utf-8", "surrogateescape"))


def _local(name: str) -> str:
    """Return a node's file name, UTF-8 with surrogate escapes, as text that encodes the same bytes in this locale."""
    return os.fsdecode(name.encode("utf-8", "surrogateescape"))


@functools.lru_cache(maxsize=8192)  # one folder per node
def name_limit(folder: Path) -> int:
    """Return the maximum length of a name in bytes, as reported by the nearest existing folder."""
    for place in (folder, *folder.parents):
        with contextlib.suppress(OSError, ValueError):
            return os.pathconf(place, "PC_NAME_MAX")
    return NAME_LIMIT


def digest(text: str) -> str:
    """Return a short digest of a name."""
    return hashlib.blake2b(os.fsencode(text), digest_size=8).hexdigest()
