# SPDX-License-Identifier: Apache-2.0
"""Where blocks and rows lie: everything once, the same in every process."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle.errors import ConfigError
from paddle.optim.spec import ParameterSpec
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.wire.placement import SERVER_BYTES, block_size, idle_servers, offset, place

WORTH = SERVER_BYTES // 4  # elements
GROWING = TableSpec(ParameterSpec("ids", (1, 4), sparse=True))
SIZES = st.lists(st.integers(1, 9000), min_size=1, max_size=5)


@settings(max_examples=60)
@given(SIZES, st.integers(1, 7))
def test_every_element_lies_on_exactly_one_server(sizes: list[int], num_servers: int) -> None:
    parameters = [ParameterSpec(f"p{i}", (size,)) for i, size in enumerate(sizes)]
    whole = {p.name: np.arange(1, p.size + 1, dtype=np.float32) for p in parameters}
    back = {p.name: np.zeros(p.size, np.float32) for p in parameters}
    total = 0
    for share in place(parameters, num_servers, 0):
        slab = np.full(share.slab_size, -1, np.float32)
        for part in share.dense:
            part.gather(whole[part.parameter.name], slab)
        assert (slab > 0).all()
        total += share.slab_size
        for part in share.dense:
            part.scatter(slab, back[part.parameter.name])
    assert total == sum(sizes)
    assert all(np.array_equal(back[name], whole[name]) for name in whole)


@settings(max_examples=60)
@given(st.integers(1, 200), st.integers(1, 7))
def test_every_row_lies_on_exactly_one_server(height: int, num_servers: int) -> None:
    table = ParameterSpec("emb", (height, 2), sparse=True)
    rows = np.arange(height, dtype=np.int64)
    owners = np.zeros(height, int)
    for share in place([table], 1, num_servers):
        for part in share.tables:
            mine = rows[part.holds(rows)]
            owners[mine] += 1
            assert part.local(mine).tolist() == list(range(part.height))
            assert rows[part.span(0, part.height)].tolist() == mine.tolist()
    assert (owners == 1).all()


def test_blocks_go_round_the_servers_from_a_place_that_the_name_decides() -> None:
    parameter = ParameterSpec("_fc.w0", (5000,))
    shares = place([parameter], 3, 0)
    first = {block: i for i, share in enumerate(shares) for part in share.dense for block in (part.first,)}
    start = offset("_fc.w0", 3)
    assert [first[block] for block in range(3)] == [start, (start + 1) % 3, (start + 2) % 3]


def test_the_place_of_a_name_is_the_same_in_every_process() -> None:
    code = "from paddle.pserver.wire.placement import offset; print([offset(f'p{i}', 7) for i in range(9)])"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": "runtime", "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{[offset(f'p{i}', 7) for i in range(9)]}\n"}


@pytest.mark.parametrize(
    ("total", "servers", "expected"),
    [
        (10, 1, 1024),
        (1 << 17, 1, 2048),
        ((1 << 17) - 1, 1, 1024),
        (600_000, 3, 2048),
        (100_000_000, 2, 1 << 19),
    ],
)
def test_a_block_is_a_power_of_two_and_a_server_has_about_128(
    total: int, servers: int, expected: int
) -> None:
    assert block_size(total, servers) == expected


def test_servers_for_sparse_parameters_hold_no_dense_ones() -> None:
    parameters = [ParameterSpec("w", (9000,)), ParameterSpec("emb", (9, 2), sparse=True)]
    shares = place(parameters, 2, 2)
    assert [bool(share.dense) for share in shares] == [True, True, False, False]
    assert [bool(share.tables) for share in shares] == [False, False, True, True]


def test_without_servers_for_sparse_parameters_rows_lie_on_the_others() -> None:
    shares = place([ParameterSpec("emb", (9, 2), sparse=True)], 3, 0)
    assert [share.tables[0].height for share in shares] == [3, 3, 3]


def test_static_parameters_lie_nowhere() -> None:
    assert place([ParameterSpec("mean", (9,), static=True)], 1, 0)[0].slab_size == 0


def test_a_share_that_no_message_can_carry_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="use more servers"):
        place([ParameterSpec("w", (1 << 29,))], 1, 0)


@pytest.mark.parametrize(
    ("endpoints", "elements", "used"),
    [
        ("a:1 a:2 a:3", 1, {0}),
        ("a:1 a:2 a:3", WORTH, {0}),
        ("a:1 a:2 a:3", WORTH + 1, {0, 1}),
        ("a:1 a:2 a:3", 2 * WORTH + 1, {0, 1, 2}),
        ("a:1 a:2 a:3", 9 * WORTH, {0, 1, 2}),
        ("a:1 b:1 c:1", 1, {0, 1, 2}),
        ("a:1 a:2 b:1 b:2", 2 * WORTH, {0, 2}),
        ("a:1 a:2 b:1 b:2", 2 * WORTH + 1, {0, 1, 2, 3}),
        ("a:1 a:2 a:3 b:1", 4 * WORTH, {0, 1, 3}),
        ("127.0.0.2:1 127.0.0.3:1 localhost:1 [::1]:1", WORTH, {0}),
        ("127.0.0.2:1 127.0.0.2:2 127.0.0.3:1", 2 * WORTH, {0, 2}),  # another process before another port
        ("[fe80::1]:1 [fe80::2]:1 [fe80::1]:2", WORTH, {0, 1}),
    ],
)
def test_each_machine_uses_as_many_servers_as_its_part_of_the_model_is_worth(
    endpoints: str, elements: int, used: set[int]
) -> None:
    names = endpoints.split()
    model = [ParameterSpec("mean", (9 * WORTH,), static=True), ParameterSpec("w", (elements,))]
    assert {*range(len(names))} - {*idle_servers(names, 0, model)} == used


def test_rows_of_known_number_count_for_the_servers_that_hold_them_and_growing_tables_use_all() -> None:
    names = ["a:1", "a:2", "a:3", "a:4"]
    dense, rows = ParameterSpec("w", (WORTH,)), ParameterSpec("emb", (WORTH, 1), sparse=True)
    assert idle_servers(names, 0, [dense, rows]) == (2, 3)
    assert idle_servers(names, 2, [dense, rows]) == (1, 3)
    assert idle_servers(names, 2, [dense]) == (1, 2, 3)
    assert idle_servers(names, 2, [rows]) == (1, 2, 3)
    assert idle_servers(names, 2, [dense], [GROWING]) == (1,)
    assert idle_servers(names, 0, [dense], [GROWING]) == ()
    assert idle_servers(names, 2, []) == (1, 2, 3)
    assert idle_servers(["a:1", "b:1", "a:2", "b:2"], 2, [dense]) == ()


def test_rows_of_a_small_model_lie_with_its_dense_parameters_if_all_servers_are_on_one_machine() -> None:
    dense, rows = ParameterSpec("w", (WORTH // 2,)), ParameterSpec("emb", (WORTH // 2, 1), sparse=True)
    more = ParameterSpec("b", (1,))
    assert idle_servers(["a:1", "a:2"], 1, [dense, rows]) == (1,)
    assert idle_servers(["a:1", "a:2"], 1, [dense, more, rows]) == ()
    assert idle_servers(["a:1", "a:2"], 1, [dense, rows], [GROWING]) == ()
    assert idle_servers(["a:1", "b:1", "a:2", "b:2"], 2, [dense, rows]) == ()
    assert idle_servers(["127.0.0.1:1", "127.0.0.2:1", "127.0.0.1:2", "127.0.0.2:2"], 2, [rows]) == (1, 2, 3)
