# SPDX-License-Identifier: Apache-2.0
"""Sequences become arrays of time steps and come back, alone and around a loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.graph import Executor, Scope
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.control_flow_programs import Build, check_gradients

_RNG = np.random.default_rng(12)
_LENGTHS = [[1, 0, 3, 2]]


def _run(build: Build, feed: dict[str, Any], *fetches: str) -> list[Any]:
    return Executor().run(build.program, feed, list(fetches), Scope())


def _table(build: Build, x: str) -> str:
    return build.op("lod_rank_table", {"X": x})


def test_time_steps_hold_the_longest_sequence_first_and_join_again() -> None:
    build = Build()
    x = build.data("x", (-1, 2), lod_level=1)
    table = _table(build, x)
    array = build.op("lod_tensor_to_array", {"X": x, "RankTable": table})
    first = build.op("read_from_array", {"X": array, "I": build.constant(0, "int64")})
    joined = build.op("array_to_lod_tensor", {"X": array, "RankTable": table})
    longest = build.op("max_sequence_len", {"RankTable": table}, slot="Out")
    rows = np.arange(12.0).reshape(6, 2)
    got = _run(build, {"x": LoDArray(rows, offsets_of(_LENGTHS))}, first, joined, longest)
    assert got[0].tolist() == rows[[1, 4, 0]].tolist()
    np.testing.assert_array_equal(got[1].data, rows)
    assert got[1].lengths() == _LENGTHS
    assert got[2].tolist() == [3]


def test_rows_and_sequences_are_put_in_the_order_of_a_table() -> None:
    build = Build()
    x, y = build.data("x", (-1, 1), lod_level=1), build.data("y", (-1, 1))
    table = _table(build, x)
    ranked = build.op("reorder_lod_tensor_by_rank", {"X": y, "RankTable": table})
    turned = build.op("reorder_lod_tensor_by_rank", {"X": x, "RankTable": table})
    feed = {"x": LoDArray(np.arange(6.0)[:, None], offsets_of(_LENGTHS)), "y": np.arange(4.0)[:, None]}
    plain, sequences = _run(build, feed, ranked, turned)
    assert plain[:, 0].tolist() == [2, 3, 0, 1]
    assert (sequences.data[:, 0].tolist(), sequences.lengths()) == ([1, 2, 3, 4, 5, 0], [[3, 2, 1, 0]])


def test_a_loop_over_time_steps_has_gradients() -> None:
    build = Build()
    x, h0, w = build.data("x", (-1, 2), lod_level=1), build.data("h0", (4, 2)), build.data("w", (2, 2))
    table = _table(build, x)
    steps = build.op("lod_tensor_to_array", {"X": x, "RankTable": table})
    states = build.op("create_array", {}, dtype="float64")
    outputs = build.op("create_array", {}, dtype="float64")
    counter, limit = build.constant(0, "int64"), build.op("max_sequence_len", {"RankTable": table})
    first = build.op("reorder_lod_tensor_by_rank", {"X": h0, "RankTable": table})
    build.op("write_to_array", {"X": first, "I": counter, "Array": states}, states)
    holds = build.op("less_than", {"X": counter, "Y": limit}, "holds")

    def fill() -> None:
        before = build.op("read_from_array", {"X": states, "I": counter})
        live = build.op("shrink_rnn_memory", {"X": before, "I": counter, "RankTable": table})
        row = build.op("read_from_array", {"X": steps, "I": counter})
        total = build.op("sum", {"X": [row, build.op("mul", {"X": live, "Y": w})]})
        after = build.op("tanh", {"X": total})
        build.op("write_to_array", {"X": after, "I": counter, "Array": outputs}, outputs)
        build.op("increment", {"X": counter}, counter, step=1.0)
        build.op("write_to_array", {"X": after, "I": counter, "Array": states}, states)
        build.op("less_than", {"X": counter, "Y": limit}, holds)

    reads = [states, outputs, steps, table, counter, limit, w]
    build.loop(holds, reads, [states, outputs, counter, holds], fill)
    joined = build.op("array_to_lod_tensor", {"X": outputs, "RankTable": table})
    loss = build.scored(joined)
    feed: dict[str, Any] = {
        "x": LoDArray(_RNG.standard_normal((6, 2)), offsets_of(_LENGTHS)),
        "h0": _RNG.standard_normal((4, 2)),
        "w": _RNG.standard_normal((2, 2)),
    }
    expected, row = np.zeros((6, 2)), 0
    for number, length in enumerate(_LENGTHS[0]):
        h = feed["h0"][number]
        for _ in range(length):
            h = expected[row] = np.tanh(feed["x"].data[row] + h @ feed["w"])
            row += 1
    np.testing.assert_allclose(_run(build, feed, joined)[0].data, expected)
    check_gradients(build, loss, feed, ["x", "h0", "w"])
