# SPDX-License-Identifier: Apache-2.0
"""MultiSlot text: parsed as a plain loop would, damaged lines named, batches across blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle.fluid.multislot.samples import Samples, Slot, SlotType, batches
from paddle.fluid.multislot.text import DataLineError, Lines, parse
from paddle.ops.base.lod import LoDArray

SLOTS = (
    Slot("numbers", SlotType.FLOAT, is_dense=True, shape=(2,)),
    Slot("words", SlotType.UINT64),
    Slot("skipped", SlotType.FLOAT, is_used=False),
    Slot("label", SlotType.UINT64, is_dense=True),
)


def parsed(text: bytes, slots: Sequence[Slot] = SLOTS) -> Samples:
    return parse(Lines(text, "part-0", 1), slots).samples


def slowly(text: bytes, slots: Sequence[Slot]) -> dict[str, list[list[Any]]]:
    """What is in the lines, by a loop over tokens."""
    found: dict[str, list[list[Any]]] = {slot.name: [] for slot in slots if slot.is_used}
    for line in text.split(b"\n"):
        tokens = line.split()
        for slot in slots if tokens else ():
            count = int(tokens[0])
            values, tokens = tokens[1 : 1 + count], tokens[1 + count :]
            if slot.is_used:
                read = (
                    np.float32
                    if slot.type is SlotType.FLOAT
                    else lambda token: np.int64(np.uint64(int(token) % 2**64))
                )
                found[slot.name].append([read(value) for value in values])
    return found


def columns(samples: Samples) -> dict[str, list[list[Any]]]:
    return {
        slot.name: [
            column.values[a:b].tolist() for a, b in zip(column.offsets, column.offsets[1:], strict=False)
        ]
        for slot, column in zip(samples.slots, samples.columns, strict=True)
    }


integers = st.integers(-(2**63), 2**64 - 1) | st.integers(0, 1000)
floats = (
    st.floats(width=32, allow_nan=False).map(repr)
    | st.integers(-(10**30), 10**30).map(str)
    | st.decimals(-1000, 1000, places=6).map(str)
    | st.sampled_from(["1e-3", "+2.5", ".5", "7.", "-0", "inf", "00012"])
)


@given(
    st.lists(
        st.tuples(
            st.lists(floats, min_size=2, max_size=2),
            st.lists(integers.map(str), min_size=1, max_size=4),
            st.lists(floats, min_size=1, max_size=2),
            st.lists(integers.map(str), min_size=1, max_size=1),
        ),
        max_size=6,
    ),
    st.sampled_from([" ", "\t", "  "]),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_lines_are_parsed_as_by_a_loop(rows: list[tuple[list[str], ...]], blank: str, end: str) -> None:
    text = end.join(
        blank.join(token for values in row for token in (str(len(values)), *values)) for row in rows
    ).encode()
    found = columns(parsed(text))
    wanted = slowly(text, SLOTS)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(found, len(rows))
    for name, samples in wanted.items():
        for ours, theirs in zip(found[name], samples, strict=True):
            np.testing.assert_array_equal(np.array(ours), np.array(theirs))


@pytest.mark.parametrize(
    ("line", "slot", "told"),
    [
        (b"2 1 2 1 7 1 0", "label", "expected the number of its values, but the line ends"),
        (b"2 1 2 3 7 8", "words", "expected 3 values, but the line ends after 2"),
        (b"3 1 2 3 1 7 1 0 1 0", "numbers", "expected 2 values, the size of its variable, got '3'"),
        (b"2 1 2 1 7.5 1 0 1 0", "words", "expected an integer, got '7.5'"),
        (b"2 1 x 1 7 1 0 1 0", "numbers", "expected a number, got 'x'"),
        (b"2 1 2 0 1 0 1 0", "words", "expected the number of its values, at least 1, got '0'"),
        (b"2 1 2 -1 1 0 1 0", "words", "expected the number of its values, at least 1, got '-1'"),
        (b"2 1 1-2 1 7 1 0 1 0", "numbers", "expected a number, got '1-2'"),
        (b"2 1 2 1 18446744073709551616 1 0 1 0", "words", "expected an integer, got '18446744073709551616'"),
        (b"2 1 2 1000000000000000000 1 0 1 0", "words", "expected 1000000000000000000 values"),
        (b"\xff\xfe", "numbers", "expected the number of its values, at least 1"),
    ],
)
def test_a_bad_line_is_named_with_its_slot_and_what_was_expected(line: bytes, slot: str, told: str) -> None:
    good = b"2 1 2 1 7 1 0 1 0\n"
    with pytest.raises(DataLineError) as caught:
        parsed(good + b"\n" + good + line + b"\n" + good)
    assert str(caught.value).startswith(f"part-0, line 4, slot {slot!r}: {told}")
    assert (caught.value.source, caught.value.line, caught.value.slot) == ("part-0", 4, slot)


def test_values_behind_the_last_slot_are_noticed() -> None:
    good = b"2 1 2 1 7 1 0 1 0\n"
    assert parse(Lines(good, "x", 1), SLOTS).longer_line is None
    found = parse(Lines(good + b"2 1 2 1 7 1 0 1 0 1 9\n", "x", 5), SLOTS)
    assert (found.longer_line, found.samples.count) == (6, 2)


@given(st.lists(st.integers(1, 7), max_size=6), st.integers(1, 5))
def test_batches_have_their_size_across_blocks_and_lose_nothing(sizes: list[int], size: int) -> None:
    slots = (Slot("x", SlotType.UINT64),)
    numbers = iter(range(1000))
    blocks = [b"".join(b"2 %d %d\n" % ((n := next(numbers)), -n) for _ in range(count)) for count in sizes]
    found = list(batches((parsed(block, slots) for block in blocks), size))
    assert [batch.count for batch in found[:-1]] == [size] * (len(found) - 1)
    assert [row for batch in found for row in columns(batch)["x"]] == [[n, -n] for n in range(sum(sizes))]


def test_sequences_become_lod_and_dense_slots_arrays() -> None:
    feed = parsed(b"2 .5 2 1 7 1 0 1 1\n2 3 4 3 1 2 3 1 0 1 0\n").feed()
    assert feed["numbers"].tolist() == [[0.5, 2], [3, 4]]
    assert feed["label"].tolist() == [[1], [0]]
    assert isinstance(feed["words"], LoDArray)
    assert (feed["words"].data.tolist(), feed["words"].lengths()) == ([[7], [1], [2], [3]], [[1, 3]])
    assert set(feed) == {"numbers", "words", "label"}


def test_a_dense_slot_of_unknown_width_takes_what_the_samples_of_a_batch_agree_on() -> None:
    slots = (Slot("x", SlotType.FLOAT, is_dense=True, shape=(-1, 2)),)
    assert parsed(b"4 1 2 3 4\n4 5 6 7 8\n", slots).feed()["x"].shape == (2, 2, 2)
    with pytest.raises(ValueError, match="slot 'x' is dense, but the samples of a batch have 2 to 4 values"):
        parsed(b"4 1 2 3 4\n2 5 6\n", slots).feed()
    with pytest.raises(ValueError, match="got 3 values"):
        parsed(b"3 1 2 3\n3 5 6 7\n", slots).feed()


def test_samples_are_taken_in_any_order() -> None:
    samples = parsed(
        b"".join(b"2 0 0 %d %s 1 0 1 %d\n" % (n, b" ".join([b"%d" % n] * n), n) for n in (1, 2, 3))
    )
    taken = columns(samples.take(np.array([2, 0, 2])))
    assert taken["words"] == [[3, 3, 3], [1], [3, 3, 3]]
    assert taken["label"] == [[3], [1], [3]]
