# SPDX-License-Identifier: Apache-2.0
"""What is computed over dense blocks: checksums, whether all is finite, and plain gradient descent on a sum.

Large blocks go to compiled loops if numba is there, once there were so many that loading them pays. The plain forms
give the same bits.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

# Below it loading compiled code costs more than it saves: many models are never larger.
_COMPILED_FROM_BYTES = 1 << 18
# Loading takes a third of a second of the processor, the plain forms 0.03 to 0.06 ns a byte more: until the first steps
# are done nobody waits for numba, and a short job never does.
_LOADED_AFTER_BYTES = 1 << 30
_LOADED_AT_ONCE_BYTES = 1 << 22  # arrays so large reach that within seconds: better before the first step
_MASK = 0xFFFFFFFFFFFFFFFF
_NO_WORDS = np.zeros(0, np.uint64)
_WORD, _FLOAT = np.dtype("<u8"), np.dtype("<f4")


class Findings(NamedTuple):
    """What one look at an array's bytes tells.

    Attributes:
        checksum: the sum of the 64-bit words, a CRC of the rest added: any flipped bit changes it.
        is_finite: whether the bytes, read as float32, hold neither NaN nor infinity.
    """

    checksum: int
    is_finite: bool


class Descent(NamedTuple):
    """What a step tells beside its values.

    Attributes:
        checksum: `Findings.checksum` of the values, if that cost nothing.
        is_finite: whether the sum of the gradients holds neither NaN nor infinity. If a gradient does, its sum with
            others does too; finite ones may sum up to infinity.
    """

    checksum: int | None
    is_finite: bool


def is_looked_at_once(nbytes: int) -> bool:
    """Return whether `inspect` costs no more than `checksum_of` for so many bytes."""
    return nbytes >= _COMPILED_FROM_BYTES


def inspect(frame: bytes | memoryview) -> Findings:
    """Look at a frame once."""
    count = len(frame) // 8
    if (kernels := loops(len(frame))) is not None:
        total, strange = kernels.inspect(_read_only(np.frombuffer(frame, "<u8", count)))
        rest = frame[8 * count :]
        return Findings(_with_rest(int(total), rest), not strange and (not rest or is_finite(rest)))
    return inspect_plainly(frame)


def inspect_plainly(frame: bytes | memoryview) -> Findings:
    """The plain form of `inspect`."""
    count = len(frame) // 8
    total = int(np.frombuffer(frame, "<u8", count).sum(dtype=np.uint64))
    return Findings(_with_rest(total, frame[8 * count :]), is_finite(frame))


def checksum_of(frame: bytes | memoryview) -> int:
    """Return `Findings.checksum` alone.

    A CRC of the whole would take several times as long as everything else that happens to a frame.
    """
    if len(frame) >= _COMPILED_FROM_BYTES:
        return inspect(frame).checksum
    if not len(frame) % 8:  # as nearly all are; every small message pays for each call here
        return int(np.add.reduce(np.frombuffer(frame, _WORD)))
    count = len(frame) // 8
    return _with_rest(int(np.add.reduce(np.frombuffer(frame, _WORD, count))), frame[8 * count :])


def is_finite(frame: bytes | memoryview) -> bool:
    """Return whether bytes, read as float32, hold neither NaN nor infinity."""
    return bool(np.isfinite(np.frombuffer(frame, _FLOAT, len(frame) // 4)).all())


def is_small_finite(floats: Floats) -> bool:
    """Return what `is_finite` does, faster for an array so small that calling a reduction is most of it."""
    return b"\0" not in np.isfinite(floats).tobytes()


def descend(
    w: Floats, gradients: Sequence[Floats], eta: float, out: Floats, scratch: Floats, *, look: bool = False
) -> Descent:
    """out = w − η Σg, added in the order given.

    Args:
        w: (n,), not changed.
        gradients: one or more (n,), not changed.
        out: (n,), overwritten; another array than `w`.
        scratch: at least (n,), overwritten.
        look: look whether the sum is finite, and for no checksum; else the sum is taken for finite.
    """
    kernels = loops(w.nbytes)
    if kernels is None:
        return Descent(None, descend_plainly(w, gradients, eta, out, scratch, look=look))
    words = _NO_WORDS if look else out[: out.size // 2 * 2].view(_WORD)
    if not words.flags.aligned:
        words = _NO_WORDS
    *before, last = map(_read_only, gradients)
    if before:
        total = _read_only(_sum(before, scratch[: w.size]))
        found = kernels.descend_two(w, total, last, np.float32(eta), out, words)
    else:
        found = kernels.descend_one(w, last, np.float32(eta), out, words)
    checksum, strange = found
    if not words.size:
        return Descent(None, not (look and strange))
    rest = out[2 * words.size :].data.cast("B") if out.size % 2 else b""
    return Descent(_with_rest(int(checksum), rest), True)


def descend_plainly(
    w: Floats, gradients: Sequence[Floats], eta: float, out: Floats, scratch: Floats, *, look: bool = False
) -> bool:
    """The plain form of `descend`; return `Descent.is_finite`."""
    step = scratch[: w.size]
    total = _sum(gradients, step)
    is_finite = not look or bool(np.isfinite(total).all())
    np.multiply(total, eta, out=step)
    np.subtract(w, step, out=out)
    return is_finite


def prepare(nbytes: int) -> None:
    """Load or compile what blocks of so many bytes need, before somebody waits for it."""
    if is_worth_loading(nbytes):
        block = np.zeros(_COMPILED_FROM_BYTES // 4, np.float32)
        inspect(block.data.cast("B"))
        for gradients in ([block], [block, block]):
            descend(block, gradients, 0.0, np.empty_like(block), np.empty_like(block))


def _sum(arrays: Sequence[Floats], into: Floats) -> Floats:
    """Return the sum in the order given: one array as it is, more in `into`."""
    if len(arrays) == 1:
        return arrays[0]
    np.add(arrays[0], arrays[1], out=into)
    for array in arrays[2:]:
        into += array
    return into


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view that one compiled form serves, wherever the array came from."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _with_rest(total: int, rest: bytes | memoryview) -> int:
    return (total + zlib.crc32(rest)) & _MASK if rest else total


def is_worth_loading(nbytes: int) -> bool:
    """Return whether compiled loops are loaded before the first array of so many bytes; from then on they are used."""
    if nbytes < _LOADED_AT_ONCE_BYTES:
        return False
    _patience.end()
    return True


def loops(nbytes: int) -> Any:
    """Return `kernels` for an array of so many bytes, or None where the plain form is to do it."""
    return None if nbytes < _COMPILED_FROM_BYTES or _patience.waits(nbytes) else _loaded()


class _Patience:
    """How many bytes the plain forms still do before the loops are loaded."""

    def __init__(self) -> None:
        self._left = _LOADED_AFTER_BYTES

    def waits(self, nbytes: int) -> bool:
        """Return whether the plain form does these bytes too."""
        self._left -= nbytes  # a few may get lost between threads, which does not matter
        return self._left > 0

    def end(self) -> None:
        """Wait no longer."""
        self._left = 0


_patience = _Patience()


@functools.cache
def _loaded() -> Any:
    try:
        return importlib.import_module("paddle.pserver.wire.kernels")
    except ImportError:
        return None
