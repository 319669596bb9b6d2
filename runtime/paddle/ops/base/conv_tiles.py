# SPDX-License-Identifier: Apache-2.0
"""Register tiles: the innermost loops of compiled convolutions, written as vectors.

A compiler that is given scalar loops does not keep a block of sums in registers. So these two are emitted as vector
instructions of LLVM; it makes of them what the processor has. Callers pad their arrays: a tile has no edges.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _lanes() -> int:
    """Return how many float32 numbers a register of this processor holds."""
    features = binding.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx2") else 4


LANES = _lanes()
# Sums that stay in registers: 24 of 32 registers, or 12 of 16 where they are fewer.
ROWS, VECTORS = (8, 3) if LANES == 16 else (4, 3)
WIDE = VECTORS * LANES
"""A `multiply` gives (ROWS, WIDE) sums."""
LEFT, RIGHT = {16: (4, 4), 8: (4, 2), 4: (2, 2)}[LANES]
"""A `dots` gives LEFT · RIGHT = LANES sums: as many as one register holds."""

_F32, _I64 = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_F32, LANES)
_INT = types.int64


class _Emitter:
    """One tile that is being written: pointers, vectors, and a loop with its sums."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self._context, self.builder, self._types, self._args = context, builder, signature.args, args

    def pointer(self, at: int) -> Any:
        """Return where the data of an array argument begins."""
        array = self._context.make_array(self._types[at])
        return array(self._context, self.builder, self._args[at]).data

    def step(self, pointer: Any, count: Any) -> Any:
        return self.builder.gep(pointer, [count])

    def vector(self, pointer: Any) -> Any:
        return self.builder.load(self.builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, self.builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)

    def spread(self, pointer: Any) -> Any:
        """Return a vector of one number."""
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        one = self.builder.insert_element(
            undefined, self.builder.load(pointer), ir.Constant(ir.IntType(32), 0)
        )
        return self.shuffle(one, undefined, [0] * LANES)

    def shuffle(self, a: Any, b: Any, lanes: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
        return self.builder.shuffle_vector(a, b, mask)

    def added_product(self, a: Any, b: Any, total: Any) -> Any:
        """Return a b + total, rounded once where the processor can."""
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        insert: Any = cgutils.get_or_insert_function
        function = insert(self.builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
        return self.builder.call(function, [a, b, total])

    def loop(self, count: Any, step: int, totals: int, body: Any) -> list[Any]:
        """Return the sums after `body(index, sums)` for each index below count; the sums begin at zero."""
        builder = self.builder
        before = builder.block
        inside = builder.append_basic_block("tile")
        after = builder.append_basic_block("done")
        zero, none = ir.Constant(_I64, 0), ir.Constant(_VECTOR, None)
        builder.cbranch(builder.icmp_signed(">", count, zero), inside, after)
        builder.position_at_end(inside)
        index = builder.phi(_I64)
        index.add_incoming(zero, before)
        sums = [builder.phi(_VECTOR) for _ in range(totals)]
        for each in sums:
            each.add_incoming(none, before)
        found = body(index, sums)
        following = builder.add(index, ir.Constant(_I64, step))
        index.add_incoming(following, inside)
        for each, new in zip(sums, found, strict=True):
            each.add_incoming(new, inside)
        builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
        builder.position_at_end(after)
        result = []
        for new in found:
            each = builder.phi(_VECTOR)
            each.add_incoming(none, before)
            each.add_incoming(new, inside)
            result.append(each)
        return result


def _multiply(
    typing: Any,
    a: Any,
    a_at: Any,
    x: Any,
    x_at: Any,
    offsets: Any,
    k_at: Any,
    count: Any,
    out: Any,
    out_at: Any,
    pitch: Any,
    more: Any,
) -> Any:
    """out[out_at + m pitch + v] = Σ a[a_at + k ROWS + m] x[x_at + offsets[k_at + k] + v], k < count.

    m goes over ROWS, v over WIDE; a, x and out are (n,) float32, offsets (n,) int64. With `more` that is added.
    """
    signature = types.void(a, _INT, x, _INT, offsets, _INT, _INT, out, _INT, _INT, types.boolean)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        on = _Emitter(context, builder, signature, args)
        left, right = on.step(on.pointer(0), args[1]), on.step(on.pointer(2), args[3])
        offset, target = on.step(on.pointer(4), args[5]), on.step(on.pointer(7), args[8])

        def body(k: Any, sums: list[Any]) -> list[Any]:
            source = on.step(right, builder.load(on.step(offset, k)))
            vectors = [on.vector(on.step(source, ir.Constant(_I64, v * LANES))) for v in range(VECTORS)]
            row = on.step(left, builder.mul(k, ir.Constant(_I64, ROWS)))
            result = []
            for m in range(ROWS):
                factor = on.spread(on.step(row, ir.Constant(_I64, m)))
                result += [
                    on.added_product(factor, vector, sums[m * VECTORS + v])
                    for v, vector in enumerate(vectors)
                ]
            return result

        sums = on.loop(args[6], 1, ROWS * VECTORS, body)
        for m in range(ROWS):
            row = on.step(target, builder.mul(args[9], ir.Constant(_I64, m)))
            for v in range(VECTORS):
                place = on.step(row, ir.Constant(_I64, v * LANES))
                found = sums[m * VECTORS + v]
                before = builder.select(args[10], on.vector(place), ir.Constant(_VECTOR, None))
                on.store(builder.fadd(before, found), place)
        return context.get_dummy_value()

    return signature, emit


def _dots(
    typing: Any,
    a: Any,
    a_at: Any,
    pitch: Any,
    x: Any,
    x_at: Any,
    offsets: Any,
    k_at: Any,
    count: Any,
    out: Any,
    out_at: Any,
) -> Any:
    """out[out_at + k LEFT + m] += Σ a[a_at + m pitch + q] x[x_at + offsets[k_at + k] + q], q < count.

    m goes over LEFT, k over RIGHT; count is a multiple of LANES.
    """
    signature = types.void(a, _INT, _INT, x, _INT, offsets, _INT, _INT, out, _INT)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        on = _Emitter(context, builder, signature, args)
        left, right = on.step(on.pointer(0), args[1]), on.step(on.pointer(3), args[4])
        offset, target = on.step(on.pointer(5), args[6]), on.step(on.pointer(8), args[9])
        rows = [on.step(left, builder.mul(args[2], ir.Constant(_I64, m))) for m in range(LEFT)]
        lines = [on.step(right, builder.load(on.step(offset, ir.Constant(_I64, k)))) for k in range(RIGHT)]

        def body(q: Any, sums: list[Any]) -> list[Any]:
            vectors = [on.vector(on.step(row, q)) for row in rows]
            result = []
            for k, line in enumerate(lines):
                other = on.vector(on.step(line, q))
                result += [
                    on.added_product(vector, other, sums[k * LEFT + m]) for m, vector in enumerate(vectors)
                ]
            return result

        on.store(builder.fadd(on.vector(target), _across(on, on.loop(args[7], LANES, LANES, body))), target)
        return context.get_dummy_value()

    return signature, emit


def _across(on: _Emitter, sums: list[Any]) -> Any:
    """Return the vector whose lane i is the sum of the lanes of sums[i].

    Pairs are merged until one vector is left: of (a0 a1 a2 a3) and (b0 b1 b2 b3) comes (a0+a1 b0+b1 a2+a3 b2+b3).
    """
    width = 1
    while len(sums) > 1:
        even, odd = [], []
        for lane in range(LANES):
            group, inner = divmod(lane, 2 * width)
            source, at = (0, inner) if inner < width else (LANES, inner - width)
            even.append(source + group * 2 * width + at)
            odd.append(source + group * 2 * width + width + at)
        sums = [
            on.builder.fadd(on.shuffle(a, b, even), on.shuffle(a, b, odd))
            for a, b in zip(sums[::2], sums[1::2], strict=True)
        ]
        width *= 2
    return sums[0]


def _copy_rows(
    typing: Any,
    target: Any,
    at: Any,
    pitch: Any,
    source: Any,
    source_at: Any,
    source_pitch: Any,
    rows: Any,
    width: Any,
) -> Any:
    """target[at + y pitch + x] = source[source_at + y source_pitch + x], y < rows, x < width."""
    signature = types.void(target, _INT, _INT, source, _INT, _INT, _INT, _INT)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        on = _Emitter(context, builder, signature, args)
        to, where = on.step(on.pointer(0), args[1]), on.step(on.pointer(3), args[4])
        _copied(on, (to, args[2]), (where, args[5]), args[6], args[7], LANES)
        return context.get_dummy_value()

    return signature, emit


def _copied(on: _Emitter, target: Any, source: Any, rows: Any, width: Any, lanes: int) -> None:
    """Copy rows in vectors of so many lanes, the last of which may overlap the one before, or of fewer lanes."""
    builder, size = on.builder, ir.Constant(_I64, lanes)
    kind = ir.VectorType(_F32, lanes).as_pointer()

    def move(to: Any, where: Any, at: Any) -> None:
        value = builder.load(builder.bitcast(on.step(where, at), kind), align=4)
        builder.store(value, builder.bitcast(on.step(to, at), kind), align=4)

    with builder.if_else(builder.icmp_signed(">=", width, size)) as (enough, less):
        with enough:
            last = builder.sub(width, size)
            with cgutils.for_range(builder, rows) as row:
                to, where = (on.step(each, builder.mul(row.index, pitch)) for each, pitch in (target, source))
                with cgutils.for_range_slice(builder, ir.Constant(_I64, 0), last, size) as (at, _):
                    move(to, where, at)
                move(to, where, last)
        with less:
            if lanes > 1:
                _copied(on, target, source, rows, width, lanes // 2)


multiply: Any = intrinsic(_multiply)
dots: Any = intrinsic(_dots)
copy_rows: Any = intrinsic(_copy_rows)
