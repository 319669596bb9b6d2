# SPDX-License-Identifier: Apache-2.0
"""Parameters in the original's file formats: configurations as protobuf, values as blobs, and a tar of both.

A configuration is a ParameterConfig message. As in the original, name, size, initial_mean, initial_std, dims,
initial_strategy and initial_smart are always written; other fields only if they differ from the message's defaults.

A blob is a 16-byte header with raw float32 data. In a tar, every parameter has two members: ``<name>`` (the blob) and
``<name>.protobuf`` (its configuration). The original omits the two blocks of zeros at the end. Reading checks every
length against the configuration, and never extracts or executes anything.
"""

from __future__ import annotations

import io
import math
import os
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from paddle.proto.ParameterConfig_pb2 import MESSAGES
from paddle.v2.errors import ModelFileError, UsageTypeError
from paddle_node.contract.classes import asdict, dataclass, fields

NORMAL, UNIFORM = 0, 1
MAX_ELEMENTS = 1 << 40
HEADER = struct.Struct("<IIQ")  # format, bytes per value, number of values
CONFIG_SUFFIX = ".protobuf"
_MAX_CONFIG_BYTES = 1 << 20
_FLOAT32 = np.dtype("<f4")
_MESSAGE: Any = MESSAGES["ParameterConfig"]


@dataclass(frozen=True)
class UpdateHook:
    """The hook ``pruning``: retains the (1 - sparsity_ratio) * size largest weights, and masks other gradients."""

    type: str
    sparsity_ratio: float = 0.6


@dataclass(frozen=True)
class ParameterConfig:
    """The configuration of a parameter: name, shape, initial values and update settings.

    The fields have the names of the message's fields. ``initial_std`` is half of the range
    if ``initial_strategy`` is uniform. ``dims`` may be empty.
    """

    name: str
    size: int
    learning_rate: float = 1.0
    momentum: float = 0.0
    initial_mean: float = 0.0
    initial_std: float = 0.01
    decay_rate: float = 0.0
    decay_rate_l1: float = 0.0
    dims: tuple[int, ...] = ()
    device: int = -1
    initial_strategy: int = NORMAL
    initial_smart: bool = False
    num_batches_regularization: int = 1
    is_sparse: bool = False
    format: str = ""
    sparse_remote_update: bool = False
    gradient_clipping_threshold: float = 0.0
    is_static: bool = False
    para_id: int = 0
    update_hooks: tuple[UpdateHook, ...] = ()
    need_compact: bool = False
    sparse_update: bool = False
    is_shared: bool = False
    parameter_block_size: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The parameter's shape: ``dims``, or (1, size) if there are no dims."""
        return self.dims or (1, self.size)

    def has_layout_of(self, other: ParameterConfig) -> bool:
        """Return whether the other parameter has the same size and the same dims, ignoring dims of 1."""
        shapes = [[size for size in config.dims if size != 1] for config in (self, other)]
        return self.size == other.size and (not self.dims or not other.dims or shapes[0] == shapes[1])

    def message(self) -> Any:
        """Return the configuration as a message of `paddle.proto.ParameterConfig_pb2`."""
        values = asdict(self).items()
        return _MESSAGE(**{name: each for name, each in values if name in _ALWAYS or each != _DEFAULTS[name]})

    def encode(self) -> bytes:
        """Serialize the configuration as a ParameterConfig message."""
        found: bytes = self.message().SerializeToString()
        return found

    @classmethod
    def decode(cls, message: bytes) -> ParameterConfig:
        """Parse a ParameterConfig message; unknown fields are skipped.

        Raises:
            ModelFileError: the message is damaged or lacks name or size, or the size does not match the dims.
        """
        found = _MESSAGE.FromString(message)
        for name in ("dims", "update_hooks"):
            if len(getattr(found, name)) > _MAX_ITEMS:
                raise ModelFileError(f"{name} of a parameter configuration has more than {_MAX_ITEMS} values")
        hooks = tuple(UpdateHook(each.type, each.sparsity_ratio) for each in found.update_hooks)
        values = {field.name: value for field, value in found.ListFields()}
        config = cls(**{**values, "dims": tuple(found.dims), "update_hooks": hooks})
        config._check_size()
        return config

    def _check_size(self) -> None:
        count = math.prod(self.shape)
        if not 0 < self.size <= MAX_ELEMENTS:
            raise ModelFileError(
                f"parameter {self.name!r} declares {self.size} elements; expected 1 to {MAX_ELEMENTS}"
            )
        # An lstm weight stores [size, size, 4] and the same count; a bias may store [1, size].
        if count != self.size:
            raise ModelFileError(
                f"parameter {self.name!r}: dims {self.dims} hold {count} elements, but size is {self.size}"
            )


def binary(file: IO[Any]) -> IO[bytes]:
    """Return ``file``, or the binary stream of a file that was opened in text mode."""
    stream: object = file
    if isinstance(stream, (str, bytes, os.PathLike)):
        raise UsageTypeError(
            f"expected an open file, got the path {stream!r}: pass open(path, 'rb'), or 'wb' to write"
        )
    if not isinstance(stream, io.TextIOBase):
        return file
    stream.flush()
    buffer: IO[bytes] | None = getattr(stream, "buffer", None)
    if buffer is None:
        raise ModelFileError(f"{file!r} is a text file; open it with mode 'wb' or 'rb'")
    return buffer


def blob(value: NDArray[np.float32]) -> bytes:
    """Encode the value of one parameter: a 16-byte header and float32 data."""
    data = np.ascontiguousarray(value, _FLOAT32)
    return HEADER.pack(0, 4, data.size) + data.tobytes()


def read_blob(raw: bytes, config: ParameterConfig, where: str) -> NDArray[np.float32]:
    """Decode a blob; return its value in the shape ``config.shape``.

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
        raise ModelFileError(f"{where}: {config.name!r} has {width}-byte values; expected 4-byte floats")
    if count != config.size or len(raw) != HEADER.size + 4 * count:
        raise ModelFileError(
            f"{where}: {config.name!r} should have {config.size} values, but its header declares "
            f"{count}, and its data holds {(len(raw) - HEADER.size) / 4:g}"
        )
    value = np.frombuffer(raw, _FLOAT32, count, HEADER.size)
    return value.astype(np.float32).reshape(config.shape)


def write_tar(file: IO[Any], parameters: Iterable[tuple[ParameterConfig, NDArray[np.float32]]]) -> None:
    """Write parameters in the given order to an uncompressed tar."""
    with tarfile.open(fileobj=binary(file), mode="w", format=tarfile.GNU_FORMAT) as tar:
        for config, value in parameters:
            _add(tar, config.name, blob(value))
            _add(tar, config.name + CONFIG_SUFFIX, config.encode())


def read_tar(file: IO[Any]) -> Iterator[tuple[ParameterConfig, NDArray[np.float32]]]:
    """Read the parameters in a tar, and return them in the order of their configurations.

    Raises:
        ModelFileError: the file is not a tar of parameters, a member is missing, or a blob does not match its
            configuration.
    """
    where, stream = str(getattr(file, "name", "") or "parameter tar"), binary(file)
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            members = {member.name: member for member in tar.getmembers()}
            _check_end(stream, tar.offset, list(members), where)
            if not any(name.endswith(CONFIG_SUFFIX) for name in members):
                raise ModelFileError(
                    f"{where} is not a tar of parameters: it has no member *{CONFIG_SUFFIX}, only {list(members)[:5]}"
                )
            seen = set()
            for name, member in members.items():
                if name.endswith(CONFIG_SUFFIX):
                    config, value = _read_parameter(tar, members, member, where)
                    if config.name in seen:
                        raise ModelFileError(f"{where} has {config.name!r} in two folders")
                    seen.add(config.name)
                    yield config, value
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
    ) as error:  # errors that tarfile raises for a damaged header
        raise ModelFileError(f"{where} is not a tar of parameters: {error}") from error


_MAX_ITEMS = 32
_ALWAYS = frozenset(
    {"name", "size", "initial_mean", "initial_std", "dims", "initial_strategy", "initial_smart"}
)
_DEFAULTS = {field.name: field.default for field in fields(ParameterConfig)}


def _check_end(stream: IO[bytes], end: int, names: list[str], where: str) -> None:
    """Check that a tar was not truncated after `end`, where its members end.

    A tar of the original has no blocks of zeros at its end, and tarfile mistakes a truncated header for the end. The
    members show whether it is complete, because each parameter's configuration follows its data.
    """
    stream.seek(end)
    rest = stream.read(tarfile.BLOCKSIZE)
    if any(rest):
        raise ModelFileError(
            f"{where} is truncated inside a header, after member {names[-1] if names else None!r}"
        )
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
            f"{where}: {member.name} has {member.size} bytes; expected a configuration of at most "
            f"{_MAX_CONFIG_BYTES} bytes"
        )
    raw = _member_bytes(tar, member, where)
    try:
        config = ParameterConfig.decode(raw)
    except ModelFileError as error:
        raise ModelFileError(
            f"{where}: {member.name} is not the configuration of a parameter: {error}"
        ) from error
    path = member.name.removesuffix(CONFIG_SUFFIX)  # in a folder, if another tool packed the files again
    data = members.get(path)
    if data is None or not f"/{path}".endswith(f"/{config.name}"):
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
