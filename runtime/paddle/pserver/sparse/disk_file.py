# SPDX-License-Identifier: Apache-2.0
"""A file of a table's rows on disk, in equal-sized slots; read and written with system calls, which report errors.

The file has no name: it disappears with the process, and several servers can use one directory. It grows by
`posix_fallocate`, so that a full disk or quota is reported before a row is written. Each slot has a checksum over its
floats and over data about the row that is held in memory. This detects damaged, misplaced and outdated contents (a
write that the disk lost) when they are read.

    slot    | id: int64 | floats: (parts, part) | CRC-32C of salt, tick, id and floats |
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import shutil
import tempfile
import weakref
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from paddle.errors import DiskError
from paddle.kernels import library
from paddle.pserver.sparse.blocks import cells_of, packed, unpacked
from paddle.pserver.sparse.structures import Flags, Ids, Numbers

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_log = logging.getLogger(__name__)

KERNELS = library.Kernels(disk_read="p:n", disk_write="p:n")
"""The loops of `disk.c`."""

_BUFFER_BYTES = 64 << 10
_POLYNOMIAL = 0x82F63B78
_CAUSES = {0: "wrong checksum", -1: "the file is too short"}
_UNSUITABLE = ("tmpfs", "ramfs", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SlotsStruct(ctypes.Structure):
    """The ctypes form of `struct slots` in `disk.c`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("fd", "n", "parts", "part_bytes")),
        *((name, ctypes.c_void_p) for name in ("slots", "order", "ids", "ticks", "rows")),
        *((name, ctypes.c_void_p) for name in ("damaged", "left", "buffer")),
        *((name, ctypes.c_int64) for name in ("room", "salt")),
        ("table", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("finds_ids", "failed", "num_damaged")),
    )


class DiskFile:
    """The file with the rows of one table on disk. Any thread can read while one thread writes different slots.

    Attributes:
        slot_bytes: bytes of a slot.
        num_slots: the number of slots of the file.
        salt: a number included in the checksums; changing it invalidates all earlier contents.
        close: closes the file, which deletes it.
    """

    def __init__(self, folder: str, table: str, parts: int, part: int, halves: int = 0) -> None:
        """Create the file.

        Args:
            folder: a directory; created if its parent exists.
            table: the table's name, for errors.
            parts, part: shape of a row's floats.
            halves: number of leading floats that are float16 in the file; see `halves`.

        Raises:
            DiskError: the file cannot be created.
        """
        self._folder, self._table, self._rows, self._halves = folder, table, (parts, part), halves
        cells = cells_of(halves, parts * part, is_half=True)
        self._shape = (1, cells) if halves else (parts, part)
        self.slot_bytes = 8 + 4 * cells + 4
        self.num_slots = self.salt = 0
        try:
            if not os.path.isdir(folder):
                with suppress(FileExistsError):  # another server may create it meanwhile
                    os.mkdir(folder)
            with tempfile.TemporaryFile(dir=folder) as file:
                self._fd = os.dup(file.fileno())
        except OSError as error:
            raise DiskError(
                f"table {table}: disk {folder!r}: cannot create a file there: {error.strerror}; create the directory "
                "on each server's machine, writable for the user of the job",
                error.errno,
            ) from None
        self.close = weakref.finalize(self, os.close, self._fd)

    def warn_of_space(self, nbytes: int) -> None:
        """Log a warning if fewer than `nbytes` bytes are free, or the file system is in memory or on a network."""
        kind = _kind_of(self._fd)
        if kind in _UNSUITABLE:
            _log.warning(
                "table %s: disk %r is of the type %s, which is not a local disk",
                self._table,
                self._folder,
                kind,
            )
        free = shutil.disk_usage(self._folder).free
        if free < nbytes:
            _log.warning(
                "table %s: disk %r has %d bytes free, less than the table's memory of %d; free some space",
                self._table,
                self._folder,
                free,
                nbytes,
            )

    def grow(self, most: int, least: int) -> None:
        """Extend the file by at least `least` and at most `most` slots.

        Raises:
            DiskError: the disk is full; nothing was changed.
        """
        start, why = self.num_slots * self.slot_bytes, 0
        for count in (most, least):
            try:
                os.posix_fallocate(self._fd, start, count * self.slot_bytes)
            except OSError as error:
                os.ftruncate(self._fd, start)
                why = error.errno or errno.EIO
                continue
            self.num_slots += count
            return
        raise self._error("grow beyond", self.num_slots, why)

    def write(self, slots: Numbers, ids: Ids, parts: Floats, ticks: Numbers) -> None:
        """Write rows (parts, n, part) of ids (n,), with their ticks (n,), to slots (n,).

        Raises:
            DiskError: some slots may have been written.
        """
        if self._halves:
            parts = packed(parts, self._halves, is_half=True)[None]
        if KERNELS.loaded is None:
            self._write_plainly(slots, ids, parts, ticks)
            return
        given = self._struct(slots, ids, ticks, np.ascontiguousarray(parts))
        if why := KERNELS.loaded.disk_write(ctypes.byref(given.struct)):
            raise self._error("write", given.struct.failed, why)

    def read(
        self, slots: Numbers, ids: Ids, ticks: Numbers, parts: Floats, *, finds_ids: bool = False
    ) -> Flags:
        """Read rows into parts (parts, n, part), and return which ones (n,) are damaged.

        Args:
            slots, ids, ticks: (n,).
            finds_ids: whether to store the ids found in `ids`, which must be contiguous, instead of comparing them.

        Raises:
            DiskError: some slots cannot be read.
        """
        if not self._halves:
            return self._read(slots, ids, ticks, parts, finds_ids=finds_ids)
        cells = np.empty((1, len(slots), self._shape[1]), np.float32)
        damaged = self._read(slots, ids, ticks, cells, finds_ids=finds_ids)
        parts[:] = unpacked(cells[0], self._rows, self._halves, is_half=True)
        return damaged

    def damage(self, slot: int) -> DiskError:
        """Return the error for a slot whose checksum is wrong."""
        return self._error("read", slot, 0)

    def _read(self, slots: Numbers, ids: Ids, ticks: Numbers, parts: Floats, *, finds_ids: bool) -> Flags:
        if KERNELS.loaded is None:
            return self._read_plainly(slots, ids, ticks, parts, finds_ids)
        given = self._struct(slots, ids, ticks, parts)
        given.struct.finds_ids = finds_ids
        if why := KERNELS.loaded.disk_read(ctypes.byref(given.struct)):
            raise self._error("read", given.struct.failed, why)
        return given.damaged

    def _error(self, what: str, slot: int, code: int) -> DiskError:
        why = _CAUSES.get(code) or os.strerror(code)
        next_step = (
            "nothing was changed; free some space, or use more servers"
            if code in _NO_ROOM
            else "check the disk, and restart the job from its last checkpoint"
        )
        return DiskError(
            f"table {self._table}: disk {self._folder!r}: cannot {what} slot {slot} (byte {slot * self.slot_bytes}) of "
            f"unnamed file {os.fstat(self._fd).st_ino if self.close.alive else ''}: {why}; {next_step}",
            code if code > 0 else errno.EIO,
        )

    def _struct(self, slots: Numbers, ids: Ids, ticks: Numbers, parts: Floats) -> _Given:
        n, (num_parts, part) = len(slots), self._shape
        slots, ids, ticks = (
            np.ascontiguousarray(slots),
            np.ascontiguousarray(ids),
            np.ascontiguousarray(ticks),
        )
        given = _Given(np.argsort(slots), slots, ids, ticks, parts, max(_BUFFER_BYTES, self.slot_bytes))
        address = library.address
        given.struct = SlotsStruct(
            self._fd,
            n,
            num_parts,
            4 * part,
            address(slots, np.uint32),
            address(given.order, np.int64, n),
            address(ids, np.int64, n),
            address(ticks, np.uint32, n),
            address(parts, np.float32, n * num_parts * part),
            *(each.ctypes.data for each in (given.damaged, given.left, given.buffer)),
            len(given.buffer),
            self.salt,
            _TABLE.ctypes.data,
        )
        return given

    def _write_plainly(self, slots: Numbers, ids: Ids, parts: Floats, ticks: Numbers) -> None:
        data = np.empty((len(slots), self.slot_bytes), np.uint8)
        data[:, :8] = ids[:, None].view(np.uint8)
        data[:, 8:-4] = np.ascontiguousarray(parts.swapaxes(0, 1)).reshape(len(slots), -1).view(np.uint8)
        data[:, -4:] = self._checksums(ticks, data)
        for slot, row in zip(slots.tolist(), data, strict=True):
            try:
                done, at = 0, slot * self.slot_bytes
                while done < len(row):
                    done += os.pwrite(self._fd, row[done:].data, at + done)
            except OSError as error:
                raise self._error("write", slot, error.errno or errno.EIO) from None

    def _read_plainly(
        self, slots: Numbers, ids: Ids, ticks: Numbers, parts: Floats, finds_ids: bool
    ) -> Flags:
        data = np.empty((len(slots), self.slot_bytes), np.uint8)
        for slot, row in zip(slots.tolist(), data, strict=True):
            try:
                count = os.preadv(self._fd, [row.data], slot * self.slot_bytes)
            except OSError as error:
                raise self._error("read", slot, error.errno or errno.EIO) from None
            if count < self.slot_bytes:
                raise self._error("read", slot, -1)
        damaged: Flags = (data[:, -4:] != self._checksums(ticks, data)).any(axis=1)
        found = data[:, :8].copy().view(np.int64)[:, 0]
        if finds_ids:
            ids[:] = found
        parts[:] = data[:, 8:-4].copy().view(np.float32).reshape(len(slots), *self._shape).swapaxes(0, 1)
        damaged |= found != ids
        return damaged

    def _checksums(self, ticks: Numbers, slots: Bytes) -> Bytes:
        """Return the checksums (n, 4) of slots (n, slot_bytes)."""
        heads = np.stack((np.full(len(ticks), self.salt, np.uint32), ticks.astype(np.uint32)), axis=1)
        return crc32c(np.concatenate((heads.view(np.uint8), slots[:, :-4]), axis=1))[:, None].view(np.uint8)


class _Given:
    """The arguments of a call into `disk.c`, and the objects that keep them in memory."""

    struct: SlotsStruct

    def __init__(
        self, order: Ids, slots: Numbers, ids: Ids, ticks: Numbers, parts: Floats, room: int
    ) -> None:
        self.order, self._given = order, (slots, ids, ticks, parts)
        self.damaged, self.left = np.zeros(len(order), np.bool_), np.empty(len(order), np.int64)
        self.buffer = np.empty(room, np.uint8)


def _kind_of(fd: int) -> str:
    """Return the type of an open file's file system; empty if it is not known."""
    device = os.fstat(fd).st_dev
    name = f" {os.major(device)}:{os.minor(device)} "
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if name in line:
                return line.partition(" - ")[2].split(" ")[0]
    return ""


def crc32c(data: Bytes) -> Numbers:
    """Return the CRC-32C (Castagnoli; RFC 3720, appendix B.4) (n,) of each row of data (n, k)."""
    crc = np.full(len(data), 0xFFFFFFFF, np.uint32)
    for column in data.T:
        crc = _TABLE[(crc ^ column) & 255] ^ crc >> np.uint32(8)
    return ~crc


def _table() -> Numbers:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> np.uint32(1) ^ np.uint32(_POLYNOMIAL), table >> np.uint32(1))
    return table


_TABLE = _table()
