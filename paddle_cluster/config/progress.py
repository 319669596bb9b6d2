# SPDX-License-Identifier: Apache-2.0
"""PROGRESS of conf.py: regular expressions that find numbers in log lines, or the names of predefined ones."""

from __future__ import annotations

import re
from collections.abc import Mapping

from paddle_cluster.config.values import ValueMismatchError, list_of, mismatch, nearest

MOST_CHARACTERS = 1000

_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_PAIR = rf"(?P<name>(?!v_num\b)\w+)(?:=|: )(?P<value>{_NUMBER})"

READY: Mapping[str, tuple[str, ...]] = {
    "tqdm": (r"(?:^|[|\s])(?P<step>\d+)/\d+ \[", rf"[ ,]{_PAIR}", r"[ ,](?P<steps_per_s>\d+(?:\.\d+)?)it/s"),
    "lightning": (r"^Epoch (?P<epoch>\d+)\b.*[|\s](?P<step>\d+)/\d+ ", rf"(?:(?<=, )|(?<=\s)){_PAIR}"),
    "transformers": (
        rf"'(?P<name>(?!train_loss)\w+)': '?(?P<value>{_NUMBER})",
        r"(?:^|[|\s])(?P<step>\d+)/\d+ \[",
    ),
    "keras": (r"^Epoch (?P<epoch>\d+)/\d", r"(?:^|\s|1m)(?P<step>\d+)/\d+(?:\x1b\[0m)? ", rf" - {_PAIR}"),
}
"""Name -> its patterns. A group is a number of that name; groups `name` and `value` are a number of any name."""


def read(value: object) -> tuple[str, ...]:
    """Return the regular expressions for a text or a list of texts."""
    given = (_patterns(value),) if isinstance(value, str) else _list(value)
    return tuple(pattern for patterns in given for pattern in patterns)


def _patterns(value: object) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise mismatch(_EXPECTED, value)
    if value in READY:
        return READY[value]
    try:
        groups = set(re.compile(value).groupindex)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueMismatchError(f"{value!r} is not a regular expression: {error}") from error
    if len(value) > MOST_CHARACTERS:
        raise ValueMismatchError(
            f"the pattern has {len(value)} characters; at most {MOST_CHARACTERS} are allowed"
        )
    if not groups:
        near = nearest(value, tuple(READY))
        raise mismatch(_EXPECTED + (f" (did you mean {near!r}?)" if near else ""), value)
    if ("name" in groups) != ("value" in groups):
        raise ValueMismatchError(f"{value!r}: the groups `name` and `value` must appear together")
    return (value,)


_EXPECTED = (
    f"a regular expression with named groups, such as r'loss=(?P<loss>[0-9.]+)', or one of {', '.join(READY)}"
)
_list = list_of(_patterns, "regular expressions with named groups, or names of predefined ones")
