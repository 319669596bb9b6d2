# SPDX-License-Identifier: Apache-2.0
"""How kernels are compiled, and the three things that numba's language lacks: views on addresses, and prefetching.

Memory that kernels share is passed by address, since thousands of slabs and segments are no fixed set of
arrays. Whoever passes an address keeps its memory alive and its size right; nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray  # type: ignore[attr-defined]
from numba.core import types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function at its first call; it runs without the interpreter's lock.

    What was compiled is kept beside the source where that can be written to, or in the user's cache.
    """
    try:
        return cast(F, numba.njit(nogil=True, cache=True, error_model="numpy")(function))
    except RuntimeError:  # nowhere to keep it
        return cast(F, numba.njit(nogil=True, error_model="numpy")(function))


def _pointer_to(kind: Any) -> Any:
    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        signature = types.CPointer(kind)(types.uint64)  # type: ignore[no-untyped-call]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, generate

    return pointer


_int64_at: Any = _pointer_to(types.int64)
_uint32_at: Any = _pointer_to(types.uint32)
_float32_at: Any = _pointer_to(types.float32)


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        # For reading, to be kept in all caches, data.
        builder.call(function, [builder.inttoptr(arguments[0], byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


@compiled
def int64s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) int64."""
    return carray(_int64_at(address), count)


@compiled
def uint32s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) uint32."""
    return carray(_uint32_at(address), count)


@compiled
def float32s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) float32."""
    return carray(_float32_at(address), count)


@compiled
def prefetch(address: Any) -> None:
    """Begin to bring the cache line at an address (uint64) near; never faults."""
    _prefetch(address)  # type: ignore[call-arg]
