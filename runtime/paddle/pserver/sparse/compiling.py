# SPDX-License-Identifier: Apache-2.0
"""How kernels are compiled, and what numba's language lacks: views on addresses, prefetching, copying by the C library.

Memory that kernels share is passed by address, since thousands of slabs and segments are no fixed set of
arrays. Whoever passes an address keeps its memory alive and its size right; nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray  # type: ignore[attr-defined]
from numba.core import types
from numba.extending import intrinsic

from paddle.compiling import compiled as compiled
from paddle.compiling import inner as inner

# Typed as what kernels call it with, which lacks numba's own first argument.
_primitive = cast(Callable[[Callable[..., Any]], Any], intrinsic)


def _pointer_to(kind: Any) -> Any:
    @_primitive
    def pointer(typing_context: Any, address: Any) -> Any:
        signature = types.CPointer(kind)(types.uint64)  # type: ignore[no-untyped-call]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, generate

    return pointer


_uint32_at: Any = _pointer_to(types.uint32)
_uint64_at: Any = _pointer_to(types.uint64)
_float32_at: Any = _pointer_to(types.float32)


def _value_at(kind: Any) -> tuple[Any, Any]:
    """Return what reads and what writes one value at an address. Views of arrays take far longer to compile."""

    @_primitive
    def value_at(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = context.get_value_type(signature.return_type).as_pointer()
            return builder.load(builder.inttoptr(arguments[0], pointer))

        return kind(types.uint64), generate

    @_primitive
    def set_value(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.store(arguments[1], builder.inttoptr(arguments[0], arguments[1].type.as_pointer()))
            return context.get_dummy_value()

        return types.void(types.uint64, kind), generate

    return value_at, set_value


int64_at, set_int64 = _value_at(types.int64)
uint32_at, set_uint32 = _value_at(types.uint32)


@_primitive
def first_equal(typing_context: Any, address: Any, value: Any) -> Any:
    """Return which of 5 int64 at an address, of the 8 in its cache line, is the first that equals a value; 5: none.

    All are compared at once.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, byte, line = ir.IntType(64), ir.IntType(8), ir.VectorType(ir.IntType(64), 8)
        there = builder.load(builder.inttoptr(arguments[0], line.as_pointer()), align=64)
        one = builder.insert_element(ir.Constant(line, ir.Undefined), arguments[1], ir.IntType(32)(0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
        same = builder.icmp_signed("==", there, builder.shuffle_vector(one, one, lanes))
        # The sixth bit is always set, so that the first one is never beyond it.
        bits = builder.or_(builder.bitcast(same, byte), byte(1 << 5))
        return builder.zext(builder.cttz(bits, ir.IntType(1)(1)), word)

    return types.uint64(types.uint64, types.int64), generate


@_primitive
def prefetch(typing_context: Any, address: Any) -> Any:
    """Begin to bring the cache line at an address (uint64) near; never faults."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        # For reading, to be kept in all caches, data.
        builder.call(function, [builder.inttoptr(arguments[0], byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


@_primitive
def touch_at(typing_context: Any, address: Any) -> Any:
    """Let the byte at an address (uint64) be written without being changed: if it is 0, it becomes 0, at once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8)
        where = builder.inttoptr(arguments[0], byte.as_pointer())
        # Adding 0 would be made a read, which brings no memory.
        builder.cmpxchg(where, byte(0), byte(0), "monotonic", "monotonic")
        return context.get_dummy_value()

    return types.void(types.uint64), generate


@_primitive
def copy_bytes(typing_context: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """Copy so many bytes from one address to another, without reading what is overwritten."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, ir.IntType(64)])
        ends = [builder.inttoptr(address, byte) for address in arguments[:2]]
        builder.call(function, [*ends, arguments[2], ir.IntType(1)(0)])
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64), generate


@inner
def uint32s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) uint32."""
    return carray(_uint32_at(address), count)


@inner
def uint64s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) uint64."""
    return carray(_uint64_at(address), count)


@inner
def float32s(address: Any, count: Any) -> Any:
    """Return the memory at an address (uint64) as (count,) float32."""
    return carray(_float32_at(address), count)
