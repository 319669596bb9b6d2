# SPDX-License-Identifier: Apache-2.0
"""The part of `json` that agents use, on the compiled functions of the standard module, without its other imports.

The agent's bytecode imports it in place of `json`; see paddle_cluster.connection.agent_code.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner
from typing import Any, Callable, NoReturn, Tuple

_SPACES = " \t\n\r"


class JSONDecoder:
    """Decodes texts; `parse_int` converts the digits of a whole number."""

    strict, object_hook, object_pairs_hook = True, None, None
    parse_float = parse_constant = float

    def __init__(self, parse_int: Callable[[str], Any] = int) -> None:
        self.parse_int = parse_int
        self._scan: Callable[[str, int], Tuple[Any, int]] = make_scanner(self)  # type: ignore[arg-type]

    def decode(self, text: str) -> Any:
        """Return the value of a text; raise ValueError if it is not JSON."""
        text = text.strip(_SPACES)
        try:
            try:
                value, end = self._scan(text, 0)
            except SystemError:  # Python 3.11 and older raise this error's class only if it is imported
                import json.decoder  # noqa: F401

                value, end = self._scan(text, 0)
        except StopIteration as error:
            raise ValueError("expected a JSON value at character %d" % error.value) from None
        if end != len(text):
            raise ValueError("expected the end of the JSON text at character %d" % end)
        return value


class JSONEncoder:
    """Encodes values; see `dumps`."""

    def __init__(self, separators: Tuple[str, str] = (", ", ": ")) -> None:
        self._separators = separators

    def encode(self, value: Any) -> str:
        """Return a value as JSON."""
        return dumps(value, self._separators)


def loads(text: str) -> Any:
    """Return the value of a text; raise ValueError if it is not JSON."""
    return JSONDecoder().decode(text)


def dumps(value: Any, separators: Tuple[str, str] = (", ", ": ")) -> str:
    """Return a value as JSON.

    Args:
        separators: the text after an item, and after a key.
    """
    item, key = separators
    encode = make_encoder({}, _refuse, encode_basestring_ascii, None, key, item, False, False, True)
    return "".join(encode(value, 0))


def _refuse(value: object) -> NoReturn:
    raise TypeError("%s is not a JSON value" % type(value).__name__)
