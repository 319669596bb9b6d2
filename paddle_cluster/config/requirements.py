# SPDX-License-Identifier: Apache-2.0
"""What an environment of nodes is made from: packages of the lock file, and the workspace's requirements.txt."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from paddle_cluster.errors import WorkspaceError
from paddle_cluster.system.installation import LOCK_FILE
from paddle_cluster.system.state_dir import read_bounded
from paddle_node.contract.classes import dataclass

NODE_PACKAGES = ("cffi", "cryptography", "numpy", "pycparser", "pyzmq", "zlib-ng")
"""What the runtime imports, and what that needs."""
FILE = "requirements.txt"
LIMIT = 4 << 20  # bytes of one file
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)\s*(?:;(.*?))?\s*((?:--hash=sha256:[0-9a-f]{64}\s*)+)")
_NESTED = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]\s*(\S+)")
_HASH = re.compile(r"--hash=\S+")


@dataclass(frozen=True)
class Pin:
    """One package of the lock file.

    Attributes:
        hashes: sha256 of every file that may be it.
    """

    name: str
    version: str
    hashes: frozenset[str]

    @property
    def text(self) -> str:
        """As a requirement."""
        return f"{self.name}=={self.version}"

    @property
    def hashed(self) -> str:
        """As a requirement with its hashes."""
        return " ".join([self.text, *(f"--hash=sha256:{one}" for one in sorted(self.hashes))])


@dataclass(frozen=True)
class Requirements:
    """What a workspace asks for.

    Attributes:
        path: its requirements.txt, absolute.
        text: what it and the files that it names say.
    """

    path: Path
    text: str

    @property
    def is_hashed(self) -> bool:
        """Whether it gives hashes: pip then wants one of everything."""
        return _HASH.search(self.text) is not None


def pins(markers: Mapping[str, str], lock: Path = LOCK_FILE) -> tuple[Pin, ...]:
    """Return the packages that a node needs.

    Args:
        markers: what the lock file's markers are compared with, as PEP 508 names them.
    """
    from packaging.markers import Marker  # few jobs need it, --help and --dry_run do without any package

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
    """What a workspace that is dispatched asks for; None where it has no requirements.txt.

    Raises:
        WorkspaceError: it cannot be read.
    """
    path = package / FILE if package is not None else None
    if path is None or not path.exists():
        return None
    texts: dict[Path, str] = {}
    _read(path.absolute(), texts)
    return Requirements(path.absolute(), "\n".join(f"{one.name}\n{text}" for one, text in texts.items()))


def _read(path: Path, texts: dict[Path, str]) -> None:
    """Read a file and those that it names; pip itself says what is wrong with their lines."""
    if path in texts:
        return
    try:
        texts[path] = read_bounded(path, LIMIT).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or "it is not UTF-8"
        raise WorkspaceError(
            f"{path} cannot be read: {reason}; --bootstrap takes packages from it"
        ) from error
    for line in texts[path].splitlines():
        nested = _NESTED.match(line)
        if nested and "://" not in nested[1]:
            _read(Path(os.path.normpath(path.parent / nested[1])), texts)
