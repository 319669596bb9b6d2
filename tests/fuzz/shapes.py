# SPDX-License-Identifier: Apache-2.0
"""What is thrown at an entry point: any JSON, right messages with wrong parts, right bytes that were damaged."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

NUMBERS = st.sampled_from(
    [
        *(0, -1, 1, 255, 256, 1 << 31, 1 << 53, 1 << 62, 1 << 64, 10**400, -(10**400)),
        *(0.5, -0.0, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan")),
    ]
)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *(
                "",
                "\n",
                "x\nFIRST ERROR: y",
                "\x1b[2J\x1b]0;t\x07",
                "\0",
                "\ud800",
                "\u2028",
                "é" * 200,
                "n" * 300,
            ),
            *(
                "a/" * 3000 + "b",
                "..",
                "../x",
                "/etc/x",
                "log/x",
                "output/x",
                "trainer-1",
                "9" * 5000,
                "%s{}\\",
            ),
        ]
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def spoiled(draw: st.DrawFn, template: Any, odd: st.SearchStrategy[Any] = JSON, most: int = 3) -> Any:
    """A template in which up to so many parts are gone or something else."""
    value = copy.deepcopy(template)
    for _ in range(draw(st.integers(0, most))):
        place, key = value, None
        while isinstance(place, dict | list) and place:
            key = draw(
                st.sampled_from(sorted(place, key=str) if isinstance(place, dict) else range(len(place)))
            )
            if not isinstance(place[key], dict | list) or not place[key] or draw(st.booleans()):
                break
            place = place[key]
        if key is None:
            return draw(odd)
        if isinstance(place, dict) and draw(st.booleans()) and draw(st.booleans()):
            del place[key]
        else:
            place[key] = draw(odd)
    return value


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of which some are cut off, doubled, changed or put in."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 16)))
        match draw(st.sampled_from(["cut", "drop", "double", "change", "put"])):
            case "cut":
                del data[at:]
            case "drop":
                del data[at:end]
            case "double":
                data[at:at] = data[at:end]
            case "change":
                data[at:end] = draw(st.binary(min_size=end - at, max_size=end - at))
            case _:
                data[at:at] = draw(st.binary(max_size=16))
    return bytes(data)
