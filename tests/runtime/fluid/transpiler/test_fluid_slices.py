# SPDX-License-Identifier: Apache-2.0
"""How parameters are cut, and which server gets which slice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paddle.fluid.transpiler import HashName, RoundRobin, slice_variable

EPS = ["127.0.0.1:6174", "127.0.0.1:6175"]


class Named(SimpleNamespace):
    name: str
    shape: tuple[int, ...]


@pytest.mark.parametrize(
    ("shape", "servers", "least", "sizes"),
    [
        ((3, 5), 10, 1024, [15]),
        ((1024,), 10, 1024, [1024]),
        ((28, 784), 10, 1024, [2352] * 9 + [784]),
        ((8, 1020), 10, 1024, [2040] * 4),
        ((800, 10), 10, 1024, [1150] * 6 + [1100]),
        ((28, 784), 10, 8192, [10976] * 2),
        ((8, 1020), 10, 8192, [8160]),
        ((800, 10), 10, 8192, [8000]),
        ((6, 33, 33, 33), 10, 8192, [35937] * 6),
        ((1000, 1000), 2, 8192, [500000] * 2),
        ((10000, 1), 2, 8192, [10000]),
        ((16384,), 2, 8192, [8192] * 2),
        ((5, 5000), 2, 8192, [15000, 10000]),
        ((3, 8192), 4, 8192, [8192] * 3),
        ((7, 4096), 3, 8192, [12288, 12288, 4096]),
    ],
)
def test_slices_are_whole_rows_of_a_least_size(
    shape: tuple[int, ...], servers: int, least: int, sizes: list[int]
) -> None:
    expected = [f"v:{index}:{size}" for index, size in enumerate(sizes)]
    assert slice_variable([Named(name="v", shape=shape)], servers, least) == expected


def test_hashed_names_send_a_gradient_to_its_parameter() -> None:
    dispatcher = HashName([f"127.0.0.1:{port}" for port in range(6170, 6180)])
    for name in ("fc_0.w_0", "fc_0.b_0", "emb.block3"):
        base, _, block = name.partition(".block")
        grad = f"{base}@GRAD" + (f".block{block}" if block else "")
        where = dispatcher.dispatch([Named(name=name), Named(name=grad), Named(name=f"{grad}.trainer_4")])
        assert len(set(where)) == 1


def test_round_robin_goes_on_where_it_ended() -> None:
    dispatcher = RoundRobin(EPS)
    three = [Named(name=name) for name in "abc"]
    assert dispatcher.dispatch(three) == [EPS[0], EPS[1], EPS[0]]
    assert dispatcher.dispatch(three[:1]) == [EPS[1]]
    dispatcher.reset()
    assert dispatcher.dispatch(three[:1]) == [EPS[0]]
