# SPDX-License-Identifier: Apache-2.0
"""How kernels are compiled, and what numba's language lacks: views on addresses, prefetching, copying by the C library.

Memory that kernels share is passed by address, since thousands of slabs and segments are no fixed set of
arrays. Whoever passes an address keeps its memory alive and its size right; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray  # type: ignore[attr-defined]
from numba.core import types
from numba.extending import intrinsic

from paddle.compiling import compiled as compiled


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
_uint64_at: Any = _pointer_to(types.uint64)
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


@intrinsic
def _copy(typing_context: Any, target: Any, source: Any, nbytes: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, ir.IntType(64)])
        ends = [builder.inttoptr(address, byte) for address in arguments[:2]]
        builder.call(function, [*ends, arguments[2], ir.IntType(1)(0)])
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64), generate


@compiled
def int64s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) int64."""
    return carray(_int64_at(address), count)


@compiled
def uint32s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) uint32."""
    return carray(_uint32_at(address), count)


@compiled
def uint64s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) uint64."""
    return carray(_uint64_at(address), count)


@compiled
def float32s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) float32."""
    return carray(_float32_at(address), count)


@compiled
def prefetch(address: Any) -> None:
    """Begin to bring the cache line at an address (uint64) near; never faults."""
    _prefetch(address)  # type: ignore[call-arg]


@compiled
def copy(target: Any, source: Any) -> None:
    """Copy a C-contiguous array to another of the same size and dtype, without reading what is overwritten."""
    _copy(target.ctypes.data, source.ctypes.data, source.size * source.itemsize)  # type: ignore[call-arg]
