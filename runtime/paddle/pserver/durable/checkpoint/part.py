# SPDX-License-Identifier: Apache-2.0
"""Writes one server's part of a checkpoint: into a folder nobody looks at, then under its name in one step.

    <root>/v<version>[.<job>]/part-<server>-of-<count>/state.bin, manifest.json

Order of a durable part: data, its fsync, manifest, its fsync, fsync of the folder, rename, fsync of the folders
above. So a part that has a name is whole, whenever the process or the machine stops.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paddle.pserver.durable.checkpoint.manifest import NAME, DataFile, Manifest
from paddle.pserver.durable.checkpoint.output import ROOM, DiskOutput, MemoryOutput, Output
from paddle.pserver.durable.checkpoint.piece import Piece, frames

DATA = "state.bin"
UNFINISHED = ".unfinished-"


def part_path(version: int, job: str, server: int, count: int) -> str:
    """Return where a part lies below the folder of all checkpoints."""
    return f"v{version:012d}{'.' if job else ''}{job}/part-{server}-of-{count}"


class PartWriter:
    """One part under way. Used by one thread; every method may raise OSError, and `abandon` is due then."""

    def __init__(self, root: Path, server: int, *, durable: bool) -> None:
        """Begin.

        Args:
            root: the folder of all checkpoints; made if it is not there.
            server: number of the server, so that nobody else clears this away.
            durable: survives the machine, and is checked when read; else it only survives the process.
        """
        root.mkdir(parents=True, exist_ok=True)
        self._root, self._durable = root, durable
        self._folder = root / f"{UNFINISHED}{server}-{secrets.token_hex(4)}"
        self._folder.mkdir()
        try:
            make = DiskOutput if durable else MemoryOutput
            self._output: Output = make(self._folder / DATA)
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def make_room(self, nbytes: int) -> None:
        """See `Output.make_room`; of more than there can be, as much as there can be."""
        self._output.make_room(min(nbytes, ROOM))

    def write(self, piece: Piece) -> None:
        """Add a piece; its arrays are free again afterwards."""
        self.make_room(piece.nbytes)
        for frame in frames(piece, self._output.nbytes):
            self._output.write(frame)

    def publish(self, manifest: Manifest, earlier: Sequence[DataFile] = ()) -> Manifest:
        """Give the part its name; return its manifest, complete.

        Args:
            manifest: without files.
            earlier: files of earlier parts that this one builds upon.
        """
        self._output.finish()
        where = part_path(manifest.version, manifest.job, manifest.server, manifest.count)
        data = DataFile(f"{where}/{DATA}", self._output.nbytes, self._output.crc)
        manifest = replace(manifest, files=(*earlier, data))
        self._write_manifest(manifest)
        final = self._root / where
        final.parent.mkdir(exist_ok=True)
        if final.exists():  # a restarted server comes by the same version again
            aside = self._root / f"{UNFINISHED}{manifest.server}-{secrets.token_hex(4)}"
            os.rename(final, aside)
            os.rename(self._folder, final)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.rename(self._folder, final)
        for folder in (final.parent, self._root):
            self._sync(folder)
        return manifest

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write_manifest(self, manifest: Manifest) -> None:
        with open(self._folder / NAME, "xb") as file:
            file.write(manifest.to_bytes())
            file.flush()
            if self._durable:
                os.fsync(file.fileno())
        self._sync(self._folder)

    def _sync(self, folder: Path) -> None:
        if self._durable:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
