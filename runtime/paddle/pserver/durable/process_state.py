# SPDX-License-Identifier: Apache-2.0
"""The ports and the identity that a server process saves for the process that replaces it.

    <state_dir>/paddle-<job>-<node>/server.json, port-<number>/..., tasks-<number>.log

The next process listens on the same ports and answers with the same stamps, so that trainers continue as they would
after a broken connection. A process that exits normally removes these files.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
from pathlib import Path

from paddle.env import JobEnvironment
from paddle.errors import PserverError
from paddle_node.contract import checked_json
from paddle_node.contract.classes import dataclass
from paddle_node.contract.records import Port, fields_of, read

_log = logging.getLogger(__name__)

_NAME = "server.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a server process, by which trainers recognize it after a restart.

    Attributes:
        ports: ports of the process's routers, in order.
        stamps: stamps of the engines, in the same order.
    """

    ports: tuple[Port, ...]
    stamps: tuple[int, ...]


class Revival:
    """The state folder through which a server process passes its state to the process that replaces it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, state_dir: str, environment: JobEnvironment, port: int) -> Revival | None:
        """Create the state folder of a server, and return its state.

        If `state_dir` is empty or the folder cannot be used, return None; the latter is logged.
        """
        if not state_dir:
            return None
        parts = [environment.job_id, environment.node_id]
        name = "-".join(str(part) for part in parts if part not in ("", None)) or f"port-{port}"
        folder = Path(state_dir) / f"paddle-{re.sub(r'[^A-Za-z0-9._-]', '_', name)}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.is_symlink() or folder.lstat().st_uid != os.geteuid():
                raise PermissionError(
                    errno.EPERM, "must be a directory that you own, but is a link or another user's directory"
                )
        except OSError as error:
            _log.warning(
                "the state of this server is not saved: %s: %s; a killed server cannot be restarted",
                folder,
                error.strerror,
            )
            return None
        return cls(folder)

    def read(self) -> Identity | None:
        """Return the identity of the previous process; None if there was none.

        Raises:
            PserverError: the file with the identity cannot be read.
        """
        path = self._folder / _NAME
        try:
            return read(Identity, checked_json.loads(path.read_bytes()), "server", str(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise PserverError(f"cannot read {path}: {error}; stop the job and start it again") from None

    def write(self, identity: Identity) -> None:
        """Save this process's identity for the next one. Raises OSError if it cannot be written."""
        path = self._folder / _NAME
        new = path.with_suffix(".new")
        new.write_text(json.dumps(fields_of(identity)), encoding="utf-8")
        os.replace(new, path)

    def folder_of(self, number: int) -> Path:
        """Return the state folder of the engine with the given number."""
        return self._folder / f"port-{number}"

    def file_of(self, what: str, number: int) -> Path:
        """Return the file in which the engine with the given number saves additional data."""
        return self._folder / f"{what}-{number}.log"

    def clear(self) -> None:
        """Remove the state folder, because no process will replace this one."""
        shutil.rmtree(self._folder, ignore_errors=True)
