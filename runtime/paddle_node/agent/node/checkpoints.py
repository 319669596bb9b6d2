# SPDX-License-Identifier: Apache-2.0
"""Lists the checkpoints on this node: parts that parameter servers wrote, and directories that scripts saved.

Sizes are compared with the manifest; `verification` compares checksums, which requires reading every byte. Listing does
not change any files.
"""

from __future__ import annotations

import os
import stat
import zlib
from typing import Any, Dict, List, Optional, Tuple

from paddle_node.agent.files import saved_files
from paddle_node.contract import checked_json
from paddle_node.contract.classes import NamedTuple, regex
from paddle_node.contract.probed import MOST_VERSIONS, Part, Saves
from paddle_node.contract.records import LAST_MOMENT, RecordError, Whole, fields_of, read

MOST_DIRECTORIES = 100
MOST_FILES = 10000  # entries listed of one directory
_MANIFEST = "manifest.json"
_MANIFEST_BYTES = 64 << 20
_VERSION = regex(r"v(\d{12,20})(?:\.([\w.-]+))?\Z")
_PART = regex(r"part-(\d{1,6})-of-(\d{1,6})\Z")


class _Numbers(NamedTuple):
    """The numbers in a part's manifest."""

    pass_id: Whole = 0


def list_all(folder: str, root_dir: str) -> Dict[str, List[Any]]:
    """Return the parts of pserver checkpoints in `folder` (none for ""), and scripts' checkpoints below ROOT_DIR."""
    return {"parts": pserver_parts(folder) if folder else [], "scripts": script_directories(root_dir)}


def pserver_parts(folder: str) -> List[Part]:
    """Return all parts in a folder of checkpoints, newest version first; none if the folder does not exist."""
    matches = [match for match in map(_VERSION.match, _names(folder)) if match is not None]
    matches.sort(key=lambda match: int(match.group(1)), reverse=True)
    parts = [
        _part(folder, match.string + "/" + part.string, match, part)
        for match in matches[:MOST_VERSIONS]
        for part in map(_PART.match, _names(folder + "/" + match.string))
        if part is not None
    ]
    return list(filter(_is_of_a_server, parts))


def files_of(folder: str, path: str) -> List[Tuple[str, int, Optional[int]]]:
    """Return (path, bytes, CRC-32) of each file of a part, including earlier ones that it builds upon.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: the part's manifest is missing or damaged.
    """
    found = []
    for file in _manifest(folder + "/" + path + "/" + _MANIFEST)["files"]:
        name, crc = str(file["path"]), file["crc32"]
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError("%.80r is not a checkpoint file" % name)
        found.append((name, int(file["nbytes"]), None if crc is None else int(crc)))
    return found


def script_directories(root_dir: str) -> List[Saves]:
    """Return each checkpoint directory that a script has written to, the most recently changed first."""
    top = root_dir + "/" + saved_files.FOLDER
    found = [_measured(top, name) for name in _names(top)]
    found.sort(key=lambda one: -one.changed_at)
    return [one for one in found if one.files][:MOST_DIRECTORIES]


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _part(folder: str, path: str, version: Any, part: Any) -> Part:
    pass_id, nbytes, written_at, problem, identity, idle = 0, 0, 0.0, "", "", 0
    try:
        written_at = _moment(os.stat(folder + "/" + path))
        manifest = os.lstat(folder + "/" + path + "/" + _MANIFEST)
        identity = "%d.%d" % (manifest.st_ino, manifest.st_ctime_ns)
        body = _manifest(folder + "/" + path + "/" + _MANIFEST)
        numbers = body["numbers"].get("", {})
        pass_id = read(_Numbers, numbers, "numbers", path).pass_id
        idle = len(checked_json.as_object(body.get("configuration") or "{}").get("idle", ()))
        for name, expected, _ in files_of(folder, path):
            size = os.stat(folder + "/" + name, follow_symlinks=False).st_size
            if size != expected:
                raise ValueError("%s: expected %d bytes, got %d" % (name, expected, size))
            nbytes += size if os.path.dirname(name) == path else 0
    except OSError as error:
        problem = "%s: %s" % (path, error.strerror)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = "%s: %s" % (path, error)
    own, count = int(part.group(1)), int(part.group(2))
    job = version.group(2) or ""
    batch = int(version.group(1))
    return Part(batch, job, own, count, pass_id, nbytes, written_at, problem[:400], identity, idle)


def _is_of_a_server(part: Part) -> bool:
    """Return whether a server can have written the part; other folders may have similar names."""
    try:
        read(Part, fields_of(part), "part", part.path)
    except RecordError:
        return False
    return True


def _moment(status: os.stat_result) -> float:
    """Return the modification time in the precision of a message."""
    return min(max(0.0, status.st_mtime), LAST_MOMENT)


def _manifest(path: str) -> Dict[str, Any]:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        outer = checked_json.as_object(file.read(_MANIFEST_BYTES))
    if zlib.crc32(outer["body"].encode()) != outer["crc32"]:
        raise ValueError("the manifest is damaged")
    return checked_json.as_object(outer["body"].encode())


def _measured(top: str, name: str) -> Saves:
    files, nbytes, changed = 0, 0, 0.0
    for at, _, names in os.walk(top + "/" + name):
        for one in names:
            try:
                status = os.stat(at + "/" + one, follow_symlinks=False)
            except OSError:
                continue  # removed meanwhile
            if stat.S_ISREG(status.st_mode) and files < MOST_FILES:
                files, nbytes, changed = files + 1, nbytes + status.st_size, max(changed, _moment(status))
    return Saves(name, files, nbytes, changed)
