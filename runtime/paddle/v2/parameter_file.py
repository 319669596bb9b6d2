# SPDX-License-Identifier: Apache-2.0
"""Parameter files of the original: a 16-byte header with raw float32 data, and the tar of such blobs.

In a tar, every parameter has two members: ``<name>`` (the blob) and ``<name>.protobuf`` (its configuration). The
original omits the two blocks of zeros at the end. Reading checks every length against the configuration, and never
extracts or executes anything.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from paddle.v2.errors import ModelFileError
from paddle.v2.parameter_config import ParameterConfig

HEADER = struct.Struct("<IIQ")  # format, bytes per value, number of values
CONFIG_SUFFIX = ".protobuf"
_MAX_CONFIG_BYTES = 1 << 20
_FLOAT32 = np.dtype("<f4")


def binary(file: IO[Any]) -> IO[bytes]:
    """Return ``file``, or the binary stream of a file that was opened in text mode."""
    stream: object = file
    if not isinstance(stream, io.TextIOBase):
        return file
    stream.flush()
    buffer: IO[bytes] | None = getattr(stream, "buffer", None)
    if buffer is None:
        raise ModelFileError(f"{file!r} is a text file; open it with mode 'wb' or 'rb'")
    return buffer


def blob(value: NDArray[np.float32]) -> bytes:
    """Return the header and data of one parameter."""
    data = np.ascontiguousarray(value, _FLOAT32)
    return HEADER.pack(0, 4, data.size) + data.tobytes()


def read_blob(raw: bytes, config: ParameterConfig, where: str) -> NDArray[np.float32]:
    """Return the value in a blob, of ``config.shape``.

    Raises:
        ModelFileError: the header or the length does not match the configuration.
    """
    if len(raw) < HEADER.size:
        raise ModelFileError(
            f"{where}: {config.name!r} has {len(raw)} bytes, but the parameter header alone needs {HEADER.size}"
        )
    form, width, count = HEADER.unpack_from(raw)
    if form != 0:
        raise ModelFileError(
            f"{where}: {config.name!r} has data format {form}; only 0 (plain rows) can be read"
        )
    if width != 4:
        raise ModelFileError(f"{where}: {config.name!r} has {width}-byte values, expected 4-byte floats")
    if count != config.size or len(raw) != HEADER.size + 4 * count:
        raise ModelFileError(
            f"{where}: {config.name!r} should have {config.size} values, but its header declares "
            f"{count}, and its data holds {(len(raw) - HEADER.size) / 4:g}"
        )
    value = np.frombuffer(raw, _FLOAT32, count, HEADER.size)
    return value.astype(np.float32).reshape(config.shape)


def write_tar(file: IO[Any], parameters: Iterable[tuple[ParameterConfig, NDArray[np.float32]]]) -> None:
    """Write parameters in the given order as an uncompressed tar."""
    with tarfile.open(fileobj=binary(file), mode="w", format=tarfile.GNU_FORMAT) as tar:
        for config, value in parameters:
            _add(tar, config.name, blob(value))
            _add(tar, config.name + CONFIG_SUFFIX, config.encode())


def read_tar(file: IO[Any]) -> Iterator[tuple[ParameterConfig, NDArray[np.float32]]]:
    """Return the parameters of a tar, in the order of their configurations.

    Raises:
        ModelFileError: it is not such a tar, a member is missing, or a blob does not match its configuration.
    """
    where, stream = str(getattr(file, "name", "parameter tar")), binary(file)
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            members = {member.name: member for member in tar.getmembers()}
            _check_end(stream, tar.offset, list(members), where)
            if not any(name.endswith(CONFIG_SUFFIX) for name in members):
                raise ModelFileError(
                    f"{where} is not a tar of parameters: it has no member *{CONFIG_SUFFIX}, only {list(members)[:5]}"
                )
            for name, member in members.items():
                if name.endswith(CONFIG_SUFFIX):
                    yield _read_parameter(tar, members, member, where)
    except tarfile.ReadError as error:
        if "end of data" in str(error):
            raise ModelFileError(f"{where} is truncated inside a member") from error
        raise ModelFileError(
            f"{where} is not a tar of parameters ({error}); open a .tar.gz with gzip.open first"
        ) from error
    except EOFError as error:
        raise ModelFileError(f"{where} is truncated: {error}") from error
    except ModelFileError:
        raise
    except (
        tarfile.TarError,
        ValueError,
        OverflowError,
        zlib.error,
    ) as error:  # what a damaged header makes of tarfile
        raise ModelFileError(f"{where} is not a tar of parameters: {error}") from error


def _check_end(stream: IO[bytes], end: int, names: list[str], where: str) -> None:
    """Check that a tar was not truncated after `end`, where its members end.

    A tar of the original has no blocks of zeros at its end, and tarfile mistakes a truncated header for the end. The
    members show whether it is complete, because each parameter's configuration follows its data.
    """
    stream.seek(end)
    rest = stream.read(tarfile.BLOCKSIZE)
    if any(rest):
        raise ModelFileError(f"{where} is truncated inside the header after {names[-1:]}")
    if (
        not rest
        and names
        and f"{names[-1]}{CONFIG_SUFFIX}" not in names
        and not names[-1].endswith(CONFIG_SUFFIX)
    ):
        raise ModelFileError(
            f"{where} is truncated: {names[-1]!r} has no configuration ({names[-1]}{CONFIG_SUFFIX}) after it"
        )


def _read_parameter(
    tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], member: tarfile.TarInfo, where: str
) -> tuple[ParameterConfig, NDArray[np.float32]]:
    if member.size > _MAX_CONFIG_BYTES:
        raise ModelFileError(
            f"{where}: {member.name} has {member.size} bytes, which is too large for a configuration"
        )
    config = ParameterConfig.decode(_member_bytes(tar, member, where))
    data = members.get(config.name)
    if data is None or config.name + CONFIG_SUFFIX != member.name:
        raise ModelFileError(
            f"{where}: {member.name} describes {config.name!r}, which has no data in the tar"
        )
    if data.size != HEADER.size + 4 * config.size:
        raise ModelFileError(
            f"{where}: {config.name!r} has {data.size} bytes, but {config.size} values need "
            f"{HEADER.size + 4 * config.size}"
        )
    return config, read_blob(_member_bytes(tar, data, where), config, where)


def _member_bytes(tar: tarfile.TarFile, member: tarfile.TarInfo, where: str) -> bytes:
    stream = tar.extractfile(member) if member.isreg() and not member.issparse() else None
    if stream is None:
        raise ModelFileError(f"{where}: {member.name} is not a regular file")
    raw = stream.read()
    if len(raw) != member.size:
        raise ModelFileError(f"{where}: {member.name} ends after {len(raw)} of {member.size} bytes")
    return raw


def _add(tar: tarfile.TarFile, name: str, raw: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(raw)
    tar.addfile(info, io.BytesIO(raw))
