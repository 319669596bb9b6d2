# SPDX-License-Identifier: Apache-2.0
"""The compiled loop over MultiSlot text finds the tokens and numbers of the plain form, at every speed level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle.fluid.multislot import tokens
from paddle.fluid.multislot.tokens import Tokens
from paddle.kernels import library

ODD = (
    "-",
    "+",
    ".",
    "-.5",
    "7.",
    "1e5",
    "nan",
    "12.3.4",
    "--1",
    "1-",
    "00012",
    "9" * 19,
    "9" * 20,
    "9" * 400,
)
words = st.one_of(
    st.sampled_from(ODD),
    st.integers(-(10**21), 10**21).map(str),
    st.decimals(-(10**9), 10**9, places=12).map(str),
    st.text("+-.0123456789e\xff", min_size=1, max_size=24),
)
blanks = st.sampled_from([" ", "  ", "\t", "\n", "\r\n", "\n\n", " \n "])


@pytest.mark.skipif(not library.level(), reason="no compiled kernels")
@pytest.mark.parametrize("level", library.levels())
@given(st.lists(st.tuples(words, blanks), max_size=30), st.sampled_from(["", " ", "\n"]), st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_text_has_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch, level: int, pairs: list[tuple[str, str]], start: str, is_cut: bool
) -> None:
    text = (start + "".join(map("".join, pairs))).encode("latin1")
    text = text.rstrip() if is_cut else text
    with monkeypatch.context() as patch:
        patch.setattr(tokens.KERNELS, "loaded", tokens.KERNELS.at_level(level))
        found = Tokens(text)
        patch.setattr(tokens.KERNELS, "loaded", None)
        wanted = Tokens(text)
    for name in ("starts", "ends", "line_starts", "line_ends", "plain", "exact"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), name)
    for name in ("whole", "behind", "negative"):
        ours, theirs = (getattr(each, name)[wanted.exact] for each in (found, wanted))
        np.testing.assert_array_equal(ours, theirs, name)
