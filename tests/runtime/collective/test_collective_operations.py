# SPDX-License-Identifier: Apache-2.0
"""Sums, broadcasts, gathers: what comes out, on every way that data can go."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from paddle.collective import Membership, Ranks
from paddle.errors import ConfigError
from tests.runtime.collective.ranks import KEY, members, together

# name -> the node of each rank, and settings
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "two of one node": ("aa", {}),
    "three of one node": ("aaa", {}),
    "two nodes": ("ab", {"wire": "plain"}),
    "two nodes, encrypted": ("ab", {"wire": "curve"}),
    "three nodes": ("abc", {"wire": "plain"}),
    "five nodes": ("abcde", {"wire": "plain"}),
    "nodes of several ranks": ("abab", {"wire": "plain"}),
    "a node of three beside one of one": ("aaba", {"wire": "plain", "job_key": None}),
}
SIZES = (0, 1, 7, 20_000, 150_001)


def laid_out(name: str) -> list[Membership]:
    nodes, settings = LAYOUTS[name]
    return [replace(me, node=node) for me, node in zip(members(len(nodes), **settings), nodes, strict=True)]


def numbers(rank: int, size: int, dtype: Any = np.float32) -> npt.NDArray[Any]:
    return (np.random.default_rng((rank, size)).standard_normal(size) * 100).astype(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sum_is_that_of_all_ranks_and_has_the_same_bits_everywhere(layout: str) -> None:
    everyone = laid_out(layout)

    def act(group: Ranks) -> list[npt.NDArray[Any]]:
        sums = []
        for size in SIZES:
            array = numbers(group.rank, size)
            group.all_reduce(array)
            sums.append(array)
        return sums

    results = together(everyone, act)
    for which, size in enumerate(SIZES):
        expected = sum(numbers(rank, size).astype(np.float64) for rank in range(len(everyone)))
        np.testing.assert_allclose(results[0][which], expected, rtol=1e-5, atol=1e-4)
        assert {result[which].tobytes() for result in results} == {results[0][which].tobytes()}


@pytest.mark.parametrize("layout", ["three of one node", "three nodes"])
def test_a_run_that_is_repeated_has_the_same_bits(layout: str) -> None:
    def act(group: Ranks) -> bytes:
        array = numbers(group.rank, 150_001)
        group.all_reduce(array)
        return array.tobytes()

    assert together(laid_out(layout), act) == together(laid_out(layout), act)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sums_of_one_node_are_added_in_the_order_of_the_ranks_whatever_came_before(dtype: Any) -> None:
    # Each way of a sum behind each other one: of all at once, of all slots, chunk by chunk; and a broadcast.
    ways = [(10,), (50_000,), (530_000,), (5, 0, 70_000), (2_000,) * 3]
    order = np.random.default_rng(7).integers(-1, len(ways), 40).tolist()

    def act(group: Ranks) -> bool:
        right = True
        for way in order:
            if way < 0:
                array = numbers(group.rank, 3000, dtype)
                group.broadcast(array, 2)
                right &= array.tobytes() == numbers(2, 3000, dtype).tobytes()
                continue
            arrays = [numbers(group.rank, size, dtype) for size in ways[way]]
            group.all_reduce(arrays)
            for array, expected in zip(arrays, totals[way], strict=True):
                right &= array.tobytes() == expected.tobytes()
        return right

    totals = [
        [functools.reduce(np.add, [numbers(rank, size, dtype) for rank in range(4)]) for size in sizes]
        for sizes in ways
    ]
    everyone = [replace(me, node="a") for me in members(4)]
    assert together(everyone, act) == [True] * 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_broadcast_gives_the_values_of_any_rank(layout: str) -> None:
    everyone = laid_out(layout)

    def act(group: Ranks) -> list[npt.NDArray[Any]]:
        got = []
        for root in range(group.size):
            array = numbers(group.rank, 100_003)
            group.broadcast(array, root)
            got.append(array)
        return got

    for result in together(everyone, act):
        for root, array in enumerate(result):
            np.testing.assert_array_equal(array, numbers(root, 100_003))


@pytest.mark.parametrize("layout", ["three of one node", "three nodes"])
def test_many_arrays_are_summed_as_one_and_where_they_lie(layout: str) -> None:
    shapes = [(3, 5), (), (0,), (70_000,), (11, 13, 17), (1,)]

    def act(group: Ranks) -> list[npt.NDArray[Any]]:
        arrays = [np.full(shape, group.rank + at, np.float32) for at, shape in enumerate(shapes)]
        group.all_reduce(arrays)
        return arrays

    for arrays in together(laid_out(layout), act):
        for at, array in enumerate(arrays):
            np.testing.assert_array_equal(array, np.full(shapes[at], 3 + 3 * at))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int64, np.uint32])
def test_numbers_of_other_types_are_summed_in_their_own(dtype: Any) -> None:
    def act(group: Ranks) -> npt.NDArray[Any]:
        array = np.full(70_001, 2 + group.rank, dtype)
        group.all_reduce(array)
        return array

    for layout in ("two of one node", "two nodes"):
        for array in together(laid_out(layout), act):
            assert array.dtype == dtype
            np.testing.assert_array_equal(array, np.full(70_001, 5, dtype))


@pytest.mark.parametrize("layout", ["three of one node", "three nodes", "nodes of several ranks"])
def test_a_gather_takes_arrays_of_any_length(layout: str) -> None:
    everyone = laid_out(layout)
    results = together(everyone, lambda group: group.all_gather(np.full((2 * group.rank, 3), group.rank)))
    for gathered in results:
        assert [each.tolist() for each in gathered] == [
            [[rank] * 3] * (2 * rank) for rank in range(len(everyone))
        ]


def test_one_rank_alone_needs_nobody() -> None:
    def act(group: Ranks) -> list[Any]:
        array = np.ones(3)
        group.all_reduce(array)
        group.barrier()
        group.agree("program", "x")
        return [array.tolist(), [each.tolist() for each in group.all_gather(array)]]

    assert together(members(1), act) == [[[1, 1, 1], [[1, 1, 1]]]]


def test_ways_follow_from_where_ranks_run() -> None:
    def ways(layout: str) -> set[tuple[str, ...]]:
        return set(together(laid_out(layout), lambda group: group.ways))

    assert ways("two of one node") == {("shared memory",)}
    assert ways("two nodes") == {("tcp",)}
    assert ways("nodes of several ranks") == {("shared memory", "tcp")}
    assert set(together(members(2, way="tcp"), lambda group: group.ways)) == {("tcp",)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.ones(2, np.float32), np.ones(2)], "float32 and float64"),
        ([np.ones((4, 4))[:, 1]], "contiguous"),
        ([np.ones(2, bool)], "got bool"),
        ([np.broadcast_to(np.ones(1), 1)], "writable"),
    ],
)
def test_arrays_that_cannot_be_summed_are_refused(arrays: list[npt.NDArray[Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        together(members(1), lambda group: group.all_reduce(arrays))


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "PADDLE_TRAINER_ENDPOINTS is not set"),
        ({"PADDLE_TRAINER_ENDPOINTS": "a:1,b:2"}, "PADDLE_CURRENT_ENDPOINT '' is not among a:1, b:2"),
        ({"PADDLE_TRAINER_ENDPOINTS": "a:1,a:1", "PADDLE_TRAINER_ID": "0"}, "listed twice"),
        (
            {"PADDLE_TRAINER_ENDPOINTS": "a:1,b", "PADDLE_TRAINER_ID": "0"},
            "PADDLE_TRAINER_ENDPOINTS: endpoint 'b': expected 'ip:port'",
        ),
        ({"PADDLE_TRAINER_ENDPOINTS": "a:1", "PADDLE_TRAINER_ID": "1"}, "0 to 0, got 1"),
        (
            {"PADDLE_TRAINER_ENDPOINTS": "a:1", "PADDLE_TRAINER_ID": "0", "PADDLE_COLLECTIVE_TIMEOUT_S": "x"},
            "expected a number of seconds, got 'x'",
        ),
        (
            {"PADDLE_TRAINER_ENDPOINTS": "a:1", "PADDLE_TRAINER_ID": "0", "PADDLE_WIRE": "curve"},
            "set PADDLE_JOB_KEY",
        ),
    ],
)
def test_an_environment_that_does_not_fit_is_told(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Membership.of_environment(environ)


def test_the_environment_of_a_job_says_who_one_is() -> None:
    environ = {
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:6170,[::1]:6171",
        "PADDLE_CURRENT_ENDPOINT": "[::1]:6171",
        "PADDLE_JOB_KEY": KEY,
        "PADDLE_COLLECTIVE_TIMEOUT_S": "7.5",
        "PADDLE_COLLECTIVE_WAY": "tcp",
    }
    me = Membership.of_environment(environ)
    assert (me.rank, me.size, me.sealed, me.timeout_s, me.way) == (1, 2, True, 7.5, "tcp")
    assert KEY not in repr(me)
    assert str(me.secret) not in repr(me)
    assert not Membership.of_environment({**environ, "PADDLE_WIRE": "plain"}).sealed
