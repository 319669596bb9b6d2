# SPDX-License-Identifier: Apache-2.0
"""HDFSClient: access to files in a Hadoop file system through an installation's `hadoop` command."""

from __future__ import annotations

import logging
import os
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle.fluid.errors import RunError
from paddle_node.contract.classes import NamedTuple

__all__ = ["HDFSClient"]

_log = logging.getLogger(__name__)
_COLUMNS = 8  # of a line of -ls: mode, copies, owner, group, size, date, time, path


class _Listed(NamedTuple):
    mode: str
    time: tuple[str, str]
    path: str


class HDFSClient:
    """A client for HDFS: runs `<hadoop_home>/bin/hadoop fs -<command> ...` for each call and waits for it to exit.

    Methods that change or copy files return whether they succeeded; the log contains the reason for a failure.
    """

    def __init__(self, hadoop_home: str, configs: Mapping[str, object] | None) -> None:
        """Set the Hadoop installation and its configuration.

        Args:
            hadoop_home: the folder of the Hadoop installation.
            configs: configuration variables, such as fs.default.name and hadoop.job.ugi.
        """
        options = [f"-D{name}={value}" for name, value in (configs or {}).items()]
        self._begin = [os.path.join(hadoop_home, "bin", "hadoop"), "fs", *options]

    def is_exist(self, hdfs_path: str | None = None) -> bool:
        """Return whether a path exists in HDFS."""
        return self._run(["-test", "-e", str(hdfs_path)]).returncode == 0

    def is_dir(self, hdfs_path: str | None = None) -> bool:
        """Return whether an HDFS path is a folder."""
        return self._run(["-test", "-d", str(hdfs_path)]).returncode == 0

    def delete(self, hdfs_path: str) -> bool:
        """Remove a file, or a folder with its contents, from HDFS. A missing path counts as success."""
        if not self.is_exist(hdfs_path):
            return True
        return self._done(["-rmr" if self.is_dir(hdfs_path) else "-rm", hdfs_path])

    def rename(self, hdfs_src_path: str, hdfs_dst_path: str, overwrite: bool = False) -> bool:
        """Move an HDFS path; if `overwrite`, first remove an existing destination."""
        if not self.is_exist(hdfs_src_path):
            _log.error("rename: %s does not exist", hdfs_src_path)
            return False
        return self._makes_room(hdfs_dst_path, overwrite) and self._done(
            ["-mv", hdfs_src_path, hdfs_dst_path]
        )

    def makedirs(self, hdfs_path: str) -> bool:
        """Create an HDFS folder and its missing parents."""
        return self.is_exist(hdfs_path) or self._done(["-mkdir", "-p", hdfs_path])

    @staticmethod
    def make_local_dirs(local_path: str) -> None:
        """Create a folder and its missing parents on this machine."""
        os.makedirs(local_path, exist_ok=True)

    def ls(self, hdfs_path: str) -> list[str]:
        """Return the sorted paths in an HDFS folder; an empty list if the folder does not exist."""
        return sorted(each.path for each in self._listed("-ls", hdfs_path))

    def lsr(self, hdfs_path: str, only_file: bool = True, sort: bool = True) -> list[str]:
        """Return the paths in an HDFS folder and its subfolders.

        Args:
            hdfs_path: the folder.
            only_file: whether to omit folders.
            sort: whether to sort by modification time; otherwise in Hadoop's order.
        """
        found = [each for each in self._listed("-lsr", hdfs_path) if not (only_file and each.mode[0] == "d")]
        return [each.path for each in (sorted(found, key=lambda each: each.time) if sort else found)]

    def download(self, hdfs_path: str, local_path: str, overwrite: bool = False, unzip: bool = False) -> bool:
        """Copy a file or folder from HDFS to this machine; return whether this succeeded.

        Args:
            hdfs_path: the source.
            local_path: the destination; missing parents are created.
            overwrite: replace an existing destination.
            unzip: unpack a zip file into the folder of local_path.
        """
        if not self.is_exist(hdfs_path):
            _log.error("download: %s does not exist", hdfs_path)
            return False
        place = Path(local_path)
        if place.exists() and not overwrite:
            _log.error("download: %s exists: pass overwrite=True, or a different path", place)
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_file():
            place.unlink()
        if not self._done(["-get", hdfs_path, local_path]):
            return False
        if unzip and zipfile.is_zipfile(place):
            with zipfile.ZipFile(place) as packed:
                packed.extractall(place.parent)
        return True

    def upload(self, hdfs_path: str, local_path: str, overwrite: bool = False, retry_times: int = 5) -> bool:
        """Copy a file or folder from this machine to HDFS; return whether this succeeded.

        Args:
            hdfs_path: the destination.
            local_path: the source.
            overwrite: replace an existing destination.
            retry_times: number of attempts.
        """
        if not os.path.exists(local_path):
            _log.error("upload: %s does not exist", local_path)
            return False
        if not self._makes_room(hdfs_path, overwrite):
            return False
        return any(self._done(["-put", local_path, hdfs_path]) for _ in range(max(1, retry_times)))

    def _makes_room(self, path: str, overwrite: bool) -> bool:
        """Remove an existing destination if `overwrite`; return whether the destination does not exist then."""
        if not self.is_exist(path):
            return True
        if not overwrite:
            _log.error("%s exists: pass overwrite=True, or a different path", path)
            return False
        return self.delete(path)

    def _listed(self, command: str, path: str) -> list[_Listed]:
        if not self.is_exist(path):
            return []
        found = self._run([command, path])
        if found.returncode:
            _log.error("hadoop fs %s %s exited with %d: %s", command, path, found.returncode, found.stderr)
            return []
        lines = (line.split(None, _COLUMNS - 1) for line in found.stdout.splitlines())
        return [
            _Listed(each[0], (each[5], each[6]), each[7].strip()) for each in lines if len(each) == _COLUMNS
        ]

    def _done(self, arguments: Sequence[str]) -> bool:
        found = self._run(arguments)
        if found.returncode:
            _log.error(
                "hadoop fs %s exited with %d: %s", " ".join(arguments), found.returncode, found.stderr.strip()
            )
        return found.returncode == 0

    def _run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run the command to its end.

        Raises:
            RunError: the command cannot be run.
        """
        argv = [*self._begin, *arguments]
        try:
            return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise RunError(
                f"cannot run {argv[0]}: {error.strerror}. Set hadoop_home to the directory of a Hadoop installation"
            ) from error
