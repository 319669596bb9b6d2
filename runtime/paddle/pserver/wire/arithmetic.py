# SPDX-License-Identifier: Apache-2.0
"""Numeric loops over dense blocks: checksums, checks for NaN and infinity, and gradient descent.

Large blocks are processed by compiled loops where available; the plain forms give bitwise equal results.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.kernels import library
from paddle_node.contract.classes import NamedTuple

Floats = npt.NDArray[np.float32]

KERNELS = library.Kernels(inspect="pnpp", descend="pppfpnp:i", look="pp", receive="ipnpnp")
"""The loops of `dense.c`."""

AT_ONCE_BYTES = 1 << 16
"""From this size on, calling a compiled loop costs less than the calls of NumPy that it replaces."""

SMALL_BYTES = 1 << 14
"""Below this size, copying an array costs less than referring to it, and a CRC costs less than calling `inspect`."""

_MASK = 0xFFFFFFFFFFFFFFFF
_FLOAT = np.dtype("<f4")
_Found = ctypes.c_uint64 * 2
_SECOND = ctypes.sizeof(ctypes.c_uint64)


class Findings(NamedTuple):
    """The checksum and finiteness of an array, from one pass over its bytes.

    Attributes:
        checksum: the sum of the 64-bit words plus a CRC of the remaining bytes: any flipped bit changes it.
        is_finite: whether the bytes, read as float32, contain neither NaN nor infinity.
    """

    checksum: int
    is_finite: bool


class Descent(NamedTuple):
    """The checksum and finiteness that a descent step yields besides its values.

    Attributes:
        checksum: `Findings.checksum` of the values, if it was available without extra cost.
        is_finite: whether the sum of the gradients contains neither NaN nor infinity. If a gradient does, so does the
            sum; the sum of finite gradients can be infinite, too.
    """

    checksum: int | None
    is_finite: bool


def inspect(frame: bytes | memoryview) -> Findings:
    """Return the checksum and the finiteness of a frame, from one pass over its bytes."""
    size, kernels = len(frame), KERNELS.loaded
    if kernels is None or not size:
        return inspect_plainly(frame)
    found = _Found()
    at = frame if type(frame) is bytes else address_of(frame)
    kernels.inspect(at, size >> 3, found, ctypes.byref(found, _SECOND))
    total, strange = found
    if not size & 7:
        return tuple.__new__(Findings, (total, not strange))
    rest = frame[size & ~7 :]
    return Findings(_with_rest(total, rest), not strange and is_finite(rest))


def inspect_plainly(frame: bytes | memoryview) -> Findings:
    """Compute `inspect` in plain numpy."""
    count = len(frame) // 8
    total = int(np.frombuffer(frame, "<u8", count).sum(dtype=np.uint64))
    # A CRC of the whole frame would take several times as long as all other processing of it.
    return Findings(_with_rest(total, frame[8 * count :]), is_finite(frame))


def is_finite(frame: bytes | memoryview) -> bool:
    """Return whether bytes, read as float32, contain neither NaN nor infinity."""
    return bool(np.isfinite(np.frombuffer(frame, _FLOAT, len(frame) // 4)).all())


def is_small_finite(floats: Floats) -> bool:
    """Return the same result as `is_finite`, faster for arrays of a few elements."""
    return b"\0" not in np.isfinite(floats).tobytes()


def descend(
    w: Floats, gradients: Sequence[Floats], eta: float, out: Floats, scratch: Floats, *, check: bool = False
) -> Descent:
    """Compute out = w − η Σg, adding the gradients in the given order.

    Args:
        w: (n,), not changed.
        gradients: one or more (n,), not changed.
        out: (n,), overwritten; a different array than `w`.
        scratch: an array of at least (n,), overwritten.
        check: whether to check that the sum is finite, without a checksum; otherwise, the sum is assumed to be finite.
    """
    kernels = KERNELS.loaded if w.nbytes >= AT_ONCE_BYTES else None
    if kernels is None or not all(each.flags.aligned for each in (w, *gradients, out)):
        return Descent(None, descend_plainly(w, gradients, eta, out, scratch, check=check))
    *before, last = gradients
    first = library.address(_sum(before, scratch[: w.size]), np.float32, w.size) if before else None
    where, step, to = (library.address(each, np.float32, w.size) for each in (w, last, out))
    checksum = None if check else ctypes.c_uint64()
    total = None if checksum is None else ctypes.byref(checksum)
    strange = kernels.descend(where, step, first, eta, to, w.size, total)
    if checksum is None:
        return Descent(None, not strange)
    rest = out[w.size // 2 * 2 :].data.cast("B") if w.size % 2 else b""
    return Descent(_with_rest(checksum.value, rest), True)


def descend_plainly(
    w: Floats, gradients: Sequence[Floats], eta: float, out: Floats, scratch: Floats, *, check: bool = False
) -> bool:
    """Compute `descend` in plain numpy; return `Descent.is_finite`."""
    step = scratch[: w.size]
    total = gradients[0] if len(gradients) == 1 else _sum(gradients, step)
    is_finite = not check or bool(np.isfinite(total).all())
    np.multiply(total, eta, out=step)
    np.subtract(w, step, out=out)
    return is_finite


def _sum(arrays: Sequence[Floats], into: Floats) -> Floats:
    """Return the sum, added in the given order: a single array unchanged, several summed in `into`."""
    if len(arrays) == 1:
        return arrays[0]
    np.add(arrays[0], arrays[1], out=into)
    for array in arrays[2:]:
        into += array
    return into


def _with_rest(total: int, rest: bytes | memoryview) -> int:
    return (total + zlib.crc32(rest)) & _MASK if rest else total


def address_of(frame: bytes | memoryview) -> int:
    """Return the address of the first byte of a buffer; ten times as fast as numpy for writable memory."""
    if isinstance(frame, bytes) or frame.readonly:
        return int(np.frombuffer(frame, np.uint8).ctypes.data)
    return ctypes.addressof(ctypes.c_char.from_buffer(frame))


def loops(nbytes: int) -> Any:
    """Return the compiled loops for an array of this many bytes, or None if the plain form should be used."""
    return None if nbytes < AT_ONCE_BYTES else KERNELS.loaded
