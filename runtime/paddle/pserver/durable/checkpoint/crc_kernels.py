# SPDX-License-Identifier: Apache-2.0
"""The compiled part of `crc`: folds a buffer to 16 bytes with the same remainder, four times 16 bytes at a time.

Polynomials are bit-reflected, as CRC-32 has them. A step moves 16 bytes by 512 (or 128) bits: each half is multiplied
by the power of x, modulo the polynomial, that this distance is, and what lies there is added.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from paddle.compiling import compiled

_POLYNOMIAL = 0x104C11DB7
_VECTOR = ir.VectorType(ir.IntType(64), 2)
_LANES = 4


def can_run() -> bool:
    """Return whether this processor has the instruction, and code is compiled for this processor."""
    is_native = not (numba.config.CPU_NAME or numba.config.CPU_FEATURES)  # type: ignore[attr-defined]
    return is_native and bool(binding.get_host_cpu_features().get("pclmul"))


def _power(exponent: int) -> int:
    """Return x^exponent modulo the polynomial, reflected, in the place where a product has it."""
    remainder = 1
    for _ in range(exponent):
        remainder <<= 1
        if remainder >> 32:
            remainder ^= _POLYNOMIAL
    return int(f"{remainder:032b}"[::-1], 2) << 1


def _factors(bits: int) -> ir.Constant:
    return ir.Constant(_VECTOR, [_power(bits + 32), _power(bits - 32)])


_FAR, _NEAR = _factors(512), _factors(128)


def _moved(builder: Any, value: Any, factors: Any, there: Any) -> Any:
    """Return 16 bytes moved over a distance, and what lies there added."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, ir.IntType(8)])
    multiply = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, kind, "llvm.x86.pclmulqdq"
    )
    halves = [builder.call(multiply, [value, factors, ir.Constant(ir.IntType(8), n)]) for n in (0x00, 0x11)]
    return builder.xor(builder.xor(*halves), there)


@intrinsic
def _fold(typing_context: Any, address: Any, count: Any, register: Any, out: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, strides, first, target = arguments
        long = ir.IntType(64)

        def read(offset: Any, lane: int) -> Any:
            at = builder.add(builder.add(start, offset), long(16 * lane))
            return builder.load(builder.inttoptr(at, _VECTOR.as_pointer()), align=1)

        lanes = [cgutils.alloca_once(builder, _VECTOR) for _ in range(_LANES)]  # type: ignore[no-untyped-call]
        for lane, place in enumerate(lanes):
            builder.store(read(long(0), lane), place)
        before = builder.insert_element(
            ir.Constant(_VECTOR, [0, 0]), builder.zext(first, long), ir.IntType(32)(0)
        )
        builder.store(builder.xor(builder.load(lanes[0]), before), lanes[0])
        with cgutils.for_range(builder, strides, start=long(1)) as loop:
            offset = builder.mul(loop.index, long(16 * _LANES))
            for lane, place in enumerate(lanes):
                builder.store(_moved(builder, builder.load(place), _FAR, read(offset, lane)), place)
        value = builder.load(lanes[0])
        for place in lanes[1:]:
            value = _moved(builder, value, _NEAR, builder.load(place))
        builder.store(value, builder.inttoptr(target, _VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64, types.uint32, types.uint64), generate


@compiled
def fold(address: Any, count: Any, register: Any, out: Any) -> None:
    """Fold `count` > 0 times 64 bytes at an address (uint64) to out (16,) uint8; register (uint32): before."""
    _fold(address, count, register, out.ctypes.data)  # type: ignore[call-arg]
