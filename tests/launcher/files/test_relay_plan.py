# SPDX-License-Identifier: Apache-2.0
"""Who gets which bytes from whom: planned from answers alone."""

from __future__ import annotations

from itertools import pairwise

from paddle_cluster.files.relay_plan import LEAST_BYTES, Member, RelayRoute, late, routes

BIG = {"big": LEAST_BYTES}
EVERYBODY = frozenset(BIG)


def reaches_all(_node: int, _other: int) -> bool:
    return True


def lacking(node_id: int, files: dict[str, int] | None = None) -> Member:
    files = BIG if files is None else files
    return Member(node_id, files, frozenset(files) | EVERYBODY)


def test_few_bytes_go_to_every_node_directly() -> None:
    small = {"small": LEAST_BYTES // 10}
    found = routes([lacking(index, small) for index in range(5)], reaches_all)
    assert found == [RelayRoute(index, frozenset(small), ()) for index in range(5)]


def test_of_many_bytes_one_copy_leaves_and_goes_down_a_chain() -> None:
    head, *others = routes([lacking(index) for index in range(4)], reaches_all)
    assert head.direct == frozenset(BIG)
    assert all(route.direct == frozenset() for route in others)
    for before, route in pairwise([head, *others]):
        assert route.sources[0] == before.node_id


def test_a_node_that_has_all_gives_before_one_that_gets_it() -> None:
    found = routes([lacking(0), lacking(1), Member(2, {}, EVERYBODY), lacking(3)], reaches_all)
    assert {route.node_id for route in found} == {0, 1, 3}
    assert all(route.direct == frozenset() and route.sources[-1] == 2 for route in found)


def test_who_reaches_no_source_is_served_directly() -> None:
    found = routes([lacking(index) for index in range(4)], lambda node, _other: node != 2)
    by_id = {route.node_id: route for route in found}
    assert by_id[2] == RelayRoute(2, frozenset(BIG), ())
    assert by_id[3].sources


def test_who_comes_late_asks_the_last_of_the_others() -> None:
    order = [lacking(index) for index in range(3)]
    assert late(lacking(9), order, reaches_all) == RelayRoute(9, frozenset(), (2, 1, 0))
    assert late(lacking(9), [], reaches_all) == RelayRoute(9, frozenset(BIG), ())
