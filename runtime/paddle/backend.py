# SPDX-License-Identifier: Apache-2.0
"""The selection of the array library: numpy on the CPU, cupy on a GPU.

This is the only module that imports cupy, and only when a GPU is requested. Code for both devices takes its functions
from `array_module(x)`. Random numbers always come from the host, so that a run gives the same masks and the same
initial weights on either device.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np

from paddle.errors import ConfigError
from paddle_node.contract.classes import dataclass, regex

# A numpy or a cupy array; cupy has no types to check against.
Array: TypeAlias = Any

_DEVICE = regex(r"cpu|gpu:(\d+)")
_STEP, _TURN, _TURNS = 40, 24, 72  # bits of a step, of an iteration, and of iterations of nested loops


class DeviceError(ConfigError):
    """Raised when a requested device does not exist on this machine."""


@dataclass(frozen=True)
class Device:
    """A device on which arrays are stored and computed: `cpu`, or `gpu:<index>`."""

    name: str = "cpu"

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.name):
            raise DeviceError(
                f"device {self.name!r} is unknown: expected 'cpu' or 'gpu:<index>', for example 'gpu:0'"
            )

    @property
    def is_gpu(self) -> bool:
        """Return whether arrays of this device are cupy arrays."""
        return self.name != "cpu"

    @property
    def index(self) -> int:
        """Return the index of the GPU among those that CUDA shows; 0 for the CPU."""
        return int(self.name.partition(":")[2] or 0)

    def module(self) -> Any:
        """Return the array library of this device, numpy or cupy.

        Raises:
            DeviceError: cupy is not installed.
        """
        return _cupy() if self.is_gpu else np

    def check(self) -> None:
        """Check that this device is available.

        Raises:
            DeviceError: the device is not available; the message has the reason.
        """
        if not self.is_gpu:
            return
        try:
            count = int(self.module().cuda.runtime.getDeviceCount())
        except (RuntimeError, OSError) as error:  # no driver, no library
            raise DeviceError(f"cannot use the GPUs of this machine: {error}") from error
        if self.index >= count:
            raise DeviceError(f"no GPU for {self.name}: this machine has {count} GPUs, counted from 0")

    def active(self) -> AbstractContextManager[object]:
        """Return a context in which new arrays are created on this device."""
        return _cupy().cuda.Device(self.index) if self.is_gpu else nullcontext()


def array_module(first: object = None, *others: object) -> Any:
    """Return cupy if one of the given arrays is on a GPU, otherwise numpy."""
    if type(first) is np.ndarray and not others:  # most calls
        return np
    for array in (first, *others):
        if type(array) is not np.ndarray and type(array).__module__.partition(".")[0] == "cupy":
            return _cupy()
    return np


def from_host(array: Array, like: object) -> Array:
    """Return a numpy array copied to the device of `like` (a `Device` or an array); unchanged if that is the CPU."""
    if isinstance(like, Device):
        if not like.is_gpu:
            return array
        with like.active():
            moved: Array = _cupy().asarray(array)
        return moved
    xp = array_module(like)
    return array if xp is np else xp.asarray(array)


def to_host(array: Array) -> Array:
    """Return an array as a numpy array; a copy if it is on a GPU, otherwise the array itself."""
    if type(array) is np.ndarray or array_module(array) is np:
        return np.asarray(array)
    return array.get()


def settled() -> None:
    """Wait until the GPU has finished the work of this thread; return immediately if it used no GPU."""
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        cupy.cuda.get_current_stream().synchronize()


def rng(*key: int) -> np.random.Generator:
    """Return a Philox generator determined by a key alone: up to four 64-bit numbers, such as (seed, name, step).

    Philox is counter based, so the generator for step 1000 costs the same as that for step 0.
    """
    words = [number & 0xFFFFFFFFFFFFFFFF for number in key] + [0] * (4 - len(key))
    # The lowest counter word stays zero: it counts the blocks drawn.
    counter = np.array([0, 0, words[2], words[3]], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=np.array(words[:2], dtype=np.uint64), counter=counter))


def first_moment(lane: int) -> int:
    """Return the first step number of a lane, which is 0 to 65,535; each step adds 1.

    Bits 0 to 39 of such a number are the step, 40 to 111 the iterations of up to three nested loops, the innermost
    lowest, and 112 to 127 the lane. No two runs of an operator have the same number if there are fewer than 2^40 steps,
    2^24 iterations of a loop and four levels of loops; beyond these limits, numbers repeat.
    """
    return lane << _STEP + _TURNS


def within(moment: int, turn: int | None) -> int:
    """Return the step number for iteration `turn` of a loop in step `moment`; None means for a conditional block."""
    if turn is None:
        return moment
    lane, step = moment >> _STEP + _TURNS, moment & (1 << _STEP) - 1
    turns = (moment >> _STEP << _TURN | turn & (1 << _TURN) - 1) & (1 << _TURNS) - 1
    return (lane << _TURNS | turns) << _STEP | step


def random_words(generator: np.random.Generator, count: int) -> Array:
    """Return `count` uniform random uint32 numbers (count,), by the generator's fastest method."""
    words: Array = generator.bit_generator.random_raw((count + 1) // 2).view(np.uint32)
    return words[:count]


def _cupy() -> Any:
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise DeviceError(
            "a GPU was requested, but cupy is not installed: pip install 'paddle-cluster[gpu]', or use the CPU: "
            "fluid.CPUPlace(), or paddle.init(use_gpu=False)"
        ) from error
