# SPDX-License-Identifier: Apache-2.0
"""Small files in the formats of data sets, put where their loaders look."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def put(home: Path, name: str, content: bytes) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def tar_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def cifar_batch(pictures: NDArray[np.uint8], labels: list[int], key: bytes = b"labels") -> bytes:
    """A batch as numpy under Python 2 pickled it: strings are bytes, the array is a call and a state."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    rows, columns = (b"M" + struct.pack("<H", size) for size in pictures.shape)
    raw = pictures.tobytes()
    dtype = b"cnumpy\ndtype\nq\x07" + text(b"u1") + b"K\x00K\x01\x87Rq\x08(K\x03" + text(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x04cnumpy\nndarray\nq\x05K\x00\x85"
        + text(b"b")
        + b"\x87Rq\x06"
    )
    array += (
        b"(K\x01" + rows + columns + b"\x86" + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )
    numbers = b"]q\x03(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    pairs = (
        text(b"batch_label") + text(b"training batch 1 of 5") + text(key) + numbers + text(b"data") + array
    )
    return b"\x80\x02}q\x01(" + pairs + b"u."
