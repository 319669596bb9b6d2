# SPDX-License-Identifier: Apache-2.0
"""Where trainers may let a server write: anywhere if they proved that they know the job's key, else in few places.

Where the wire is plain, whoever reaches the port names the path. Then files lie under the server's working directory or
the system's temporary one, are named as tables are, and take the place of nothing but such files.
"""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from paddle.errors import PserverError

_BEGINNING = bytes(4)  # of all files of values: their version
_MAX_PATH = 4096


def places_of_strangers() -> tuple[Path, ...]:
    """Return the folders under which a server writes where the wire is plain.

    A working directory of `/` is none of them: everything lies under it.
    """
    here = Path.cwd().resolve()
    return tuple(each for each in (here, Path(tempfile.gettempdir()).resolve()) if each != Path("/"))


def checked_place(table: str, path: str, folders: Sequence[Path] | None) -> Path:
    """Return where a table's file is to be written.

    Args:
        table: its name.
        path: as a trainer gave it; a relative one begins at the server's working directory.
        folders: under which it must lie; None: trainers are trusted.

    Raises:
        PserverError: it may not be written there.
    """
    wanted = Path(path)
    if "\0" in path or len(path) > _MAX_PATH or not wanted.name or wanted.name == "..":
        raise PserverError(f"{table!r} cannot be saved to {path[:200]!r}: that is no name of a file")
    if folders is None:
        return wanted
    try:
        folder = wanted.parent.resolve()
    except (OSError, RuntimeError) as error:  # links that go round
        raise PserverError(f"{path} cannot be written: {error}") from error
    inside = [folder.relative_to(each).parts for each in folders if folder.is_relative_to(each)]
    if not any(all(not part.startswith(".") for part in parts) for parts in inside):
        allowed = " or ".join(map(str, folders))
        raise PserverError(
            f"{path} is refused: the wire is plain, so anybody could ask for it, and this server writes only under "
            f"{allowed}, and to no hidden folder. Give all processes the same PADDLE_JOB_KEY, or start the server there"
        )
    place = folder / wanted.name
    number = wanted.name.removeprefix(f"{table}_")
    if number == wanted.name or not (number.isascii() and number.isdigit()):
        raise PserverError(
            f"{path} is refused: where the wire is plain, a file of {table!r} is named {table}_<number>"
        )
    if not _is_ours_or_absent(place):
        raise PserverError(
            f"{path} is refused: another file is there, and the wire is plain; remove it first"
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
