# SPDX-License-Identifier: Apache-2.0
"""Parses the flags of `paddle.init`, `paddle train` and `paddle pserver`, which `contract.flags` lists.

The syntax is that of gflags: `--name=value`, `--name value`, `--bool` or `--nobool`, with one dash or two. The last
value of a repeated flag wins. The error for an unknown name suggests the nearest known name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle.errors import FlagError, did_you_mean
from paddle_node.contract.flags import MAX_PORT, Flag, Value, value_of


def read_flags(table: Mapping[str, Flag], given: Mapping[str, object]) -> dict[str, Value]:
    """Return the value of every flag of `table`: the given value, parsed strictly, or the default.

    Raises:
        FlagError: a name is unknown, a value is invalid, or a port would exceed the highest port number.
    """
    unknown = [name for name in given if name not in table]
    if unknown:
        raise FlagError(f"unknown command line flag '{unknown[0]}'{did_you_mean(unknown[0], table)}")
    flags = {
        name: _read(flag, name, given[name]) if name in given else flag.default
        for name, flag in table.items()
    }
    port, dense, sparse = (int(flags[name]) for name in ("port", "ports_num", "ports_num_for_sparse"))
    last = port + dense + sparse - 1
    if port and last > MAX_PORT:
        raise FlagError(
            f"flags --port, --ports_num, --ports_num_for_sparse: expected ports up to {MAX_PORT}, "
            f"got {port} to {last} ({dense} dense and {sparse} sparse ports)"
        )
    return flags


def _read(flag: Flag, name: str, value: object) -> Value:
    """Convert a value, written as text or given as a Python value, to a flag's type.

    Raises:
        FlagError: the value is invalid; the message names the flag, the value and the expected type.
    """
    try:
        return value_of(flag, value)
    except ValueError as error:
        raise FlagError(f"flag --{name}: {error}") from None


def parse_arguments(table: Mapping[str, Flag], arguments: Sequence[str]) -> dict[str, str]:
    """Return the flags that a command line sets, as {name: text}; values are not parsed.

    Raises:
        FlagError: an unknown flag, a flag without its value, or an argument that is not a flag.
    """
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            raise FlagError(f"Unknown commandline argument: {word}")
        name, equals, text = word.lstrip("-").partition("=")
        negated = name.removeprefix("no")
        if name not in table and not equals and negated != name and _is_bool(table, negated):
            given[negated] = "false"
        elif name not in table:
            raise FlagError(f"unknown command line flag '{name}'{did_you_mean(name, table)}")
        elif equals:
            given[name] = text
        elif _is_bool(table, name):
            given[name] = "true"
        elif rest:
            given[name] = rest.pop(0)
        else:
            raise FlagError(f"flag --{name} needs a value: write --{name}=<value>")
    return given


def describe(table: Mapping[str, Flag]) -> str:
    """Return the text of `--help`: one line per flag that has an effect, then the names of the flags without effect."""
    lines = [
        f"    --{name}  ({flag.about}; default {flag.default!r})"
        for name, flag in table.items()
        if not flag.ignored
    ]
    ignored = [name for name, flag in table.items() if flag.ignored]
    return "\n".join([*lines, "", "Accepted without effect: " + ", ".join(ignored)])


def _is_bool(table: Mapping[str, Flag], name: str) -> bool:
    return name in table and isinstance(table[name].default, bool)
