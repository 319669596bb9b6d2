# SPDX-License-Identifier: Apache-2.0
"""Who gets which bytes from whom: planned from answers alone."""

from __future__ import annotations

from itertools import pairwise

from paddle_cluster.files.relay_plan import LEAST_BYTES, Member, RelayWay, late, ways

BIG = {"big": LEAST_BYTES}
EVERYBODY = frozenset(BIG)


def reaches_all(_node: int, _other: int) -> bool:
    return True


def lacking(node_id: int, files: dict[str, int] | None = None) -> Member:
    files = BIG if files is None else files
    return Member(node_id, files, frozenset(files) | EVERYBODY)


def test_few_bytes_go_to_every_node_directly() -> None:
    small = {"small": LEAST_BYTES // 10}
    found = ways([lacking(index, small) for index in range(5)], reaches_all)
    assert found == [RelayWay(index, frozenset(small), ()) for index in range(5)]


def test_of_many_bytes_one_copy_leaves_and_goes_down_a_chain() -> None:
    head, *others = ways([lacking(index) for index in range(4)], reaches_all)
    assert head.direct == frozenset(BIG)
    assert all(way.direct == frozenset() for way in others)
    for before, way in pairwise([head, *others]):
        assert way.sources[0] == before.node_id


def test_a_node_that_has_all_gives_before_one_that_gets_it() -> None:
    found = ways([lacking(0), lacking(1), Member(2, {}, EVERYBODY), lacking(3)], reaches_all)
    assert {way.node_id for way in found} == {0, 1, 3}
    assert all(way.direct == frozenset() and way.sources[-1] == 2 for way in found)


def test_who_reaches_no_source_is_served_directly() -> None:
    found = ways([lacking(index) for index in range(4)], lambda node, _other: node != 2)
    by_id = {way.node_id: way for way in found}
    assert by_id[2] == RelayWay(2, frozenset(BIG), ())
    assert by_id[3].sources


def test_who_comes_late_asks_the_last_of_the_others() -> None:
    order = [lacking(index) for index in range(3)]
    assert late(lacking(9), order, reaches_all) == RelayWay(9, frozenset(), (2, 1, 0))
    assert late(lacking(9), [], reaches_all) == RelayWay(9, frozenset(BIG), ())
