# SPDX-License-Identifier: Apache-2.0
"""Determines the packages of an environment on a node, from the lock file and the workspace's requirements.txt."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paddle_cluster.errors import WorkspaceError
from paddle_cluster.system.installation import LOCK_FILE
from paddle_cluster.system.state_dir import read_bounded
from paddle_node.contract.classes import dataclass, regex

NODE_PACKAGES = ("cffi", "cryptography", "numpy", "pycparser", "pyzmq", "zlib-ng")
"""What the runtime imports, and what that needs."""
FILE = "requirements.txt"
LIMIT = 4 << 20  # bytes of one file
_PIN = regex(r"([A-Za-z0-9._-]+)==([^\s;]+)\s*(?:;(.*?))?\s*((?:--hash=sha256:[0-9a-f]{64}\s*)+)")
_NESTED = regex(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]\s*(\S+)")
_HASH = regex(r"--hash=\S+")


@dataclass(frozen=True)
class Pin:
    """A package with its version, as pinned in the lock file.

    Attributes:
        hashes: sha256 of each of its files.
    """

    name: str
    version: str
    hashes: frozenset[str]

    @property
    def text(self) -> str:
        """Return the package as a requirement line for pip, without hashes."""
        return f"{self.name}=={self.version}"

    @property
    def hashed(self) -> str:
        """Return the package as a requirement line for pip, with its hashes."""
        return " ".join([self.text, *(f"--hash=sha256:{one}" for one in sorted(self.hashes))])


@dataclass(frozen=True)
class Requirements:
    """The requirements.txt of a workspace, with the files that it includes.

    Attributes:
        path: absolute path of its requirements.txt.
        text: the content of this file and of the files it includes.
    """

    path: Path
    text: str

    @property
    def is_hashed(self) -> bool:
        """Return whether the requirements contain hashes, in which case pip requires one for every package."""
        return _HASH.search(self.text) is not None


def pins(markers: Mapping[str, str], lock: Path = LOCK_FILE) -> tuple[Pin, ...]:
    """Return the pinned packages that a node needs.

    Args:
        markers: values for the lock file's environment markers, by their PEP 508 names.
    """
    from packaging.markers import Marker  # few jobs need it; --help and --dry_run need no package

    text = lock.read_text(encoding="ascii").replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        match = _PIN.fullmatch(line.strip())
        if match is None or match[1] not in NODE_PACKAGES:
            continue
        if match[3] is None or Marker(match[3]).evaluate(dict(markers)):
            found.append(Pin(match[1], match[2], frozenset(_hashes(match[4]))))
    return tuple(found)


def _hashes(text: str) -> list[str]:
    return [word.rpartition(":")[2] for word in text.split()]


def of_workspace(package: Path | None) -> Requirements | None:
    """Return the requirements of a dispatched workspace; None if it has no requirements.txt.

    Raises:
        WorkspaceError: the file cannot be read.
    """
    path = package / FILE if package is not None else None
    if path is None or not path.exists():
        return None
    texts: dict[Path, str] = {}
    _read(path.absolute(), texts)
    return Requirements(path.absolute(), "\n".join(f"{one.name}\n{text}" for one, text in texts.items()))


def _read(path: Path, texts: dict[Path, str]) -> None:
    """Read a file and those that it includes; pip itself reports invalid lines."""
    if path in texts:
        return
    try:
        texts[path] = read_bounded(path, LIMIT).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or "it is not UTF-8"
        raise WorkspaceError(
            f"--bootstrap: cannot read {path}: {reason}. Correct it, or omit --bootstrap"
        ) from error
    for line in texts[path].splitlines():
        nested = _NESTED.match(line)
        if nested and "://" not in nested[1]:
            _read(Path(os.path.normpath(path.parent / nested[1])), texts)
