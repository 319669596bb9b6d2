# SPDX-License-Identifier: Apache-2.0
"""Reads JSON written by another process, such as a state file or a message, and checks the values in it. Pure.

A decoded value can always be compared, printed and written again: integers of more than 64 bits become floats, which
can be infinite. Nesting deeper than DEPTH raises ValueError before the text is decoded. The decoder recurses, and
Python 3.12 and later limit its depth only to what fits into a stack of several megabytes.

The checks are the functions behind the annotations of records. Each returns a valid value, possibly converted, or
raises Misfit.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any, Callable, List, Optional

Check = Callable[[Any], Any]

DEPTH = 64
_DIGITS = 20  # of a 64-bit number, including its sign
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_IRRELEVANT = bytes({*range(256)} - {*_STEPS, ord('"')})


def loads(data: bytes | str) -> Any:
    """Decode a JSON text that another process wrote.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    encoded = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if encoded.count(b"[") + encoded.count(b"{") > DEPTH and _depth(encoded) > DEPTH:
        raise ValueError(f"the JSON is nested more than {DEPTH} levels deep")
    return _DECODER.decode(encoded.decode("utf-8", "surrogatepass"))


def as_object(data: bytes | str) -> dict[str, Any]:
    """Decode a JSON text that must be an object.

    Raises:
        ValueError: the text is not a JSON object.
    """
    value = loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {value!r:.80}")
    return value


def _depth(data: bytes) -> int:
    """Return the depth of a text without decoding it; of a malformed one, at least that of its valid beginning."""
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = unescaped.translate(None, _IRRELEVANT).split(b'"')[::2]
    return max(accumulate(map(_STEPS.__getitem__, b"".join(outside_strings))), default=0)


def _whole(text: str) -> int | float:
    value = int(text) if len(text) <= _DIGITS else 1 << 64
    return value if -(1 << 63) <= value < 1 << 64 else float(text)


_DECODER = json.JSONDecoder(parse_int=_whole)


def words(annotation: str) -> List[str]:
    """Return the names, texts and signs of an annotation; a text must not contain spaces or signs."""
    for sign in "[],|":
        annotation = annotation.replace(sign, " %s " % sign)
    return annotation.split()


class Misfit(Exception):
    """Raised for an invalid value; `path` is built from the innermost name outwards."""

    def __init__(self, what: str, value: Any, secret: bool = False) -> None:
        super().__init__()
        self.path: List[str] = []
        self._what = what
        self._value = value
        self._secret = secret

    def within(self, part: str) -> Misfit:
        """Return the misfit with the name of the enclosing field prepended to its path."""
        self.path.append(part)
        return self

    def __str__(self) -> str:
        where = "".join(reversed(self.path))
        if self._value is None:
            return "%s is missing: it must be %s" % (where, self._what)
        if self._secret:
            return "%s must be %s" % (where, self._what)
        shown = str(self._value).lower() if type(self._value) is bool else repr(self._value)
        return "%s must be %s, got %.80s" % (where, self._what, shown)


class Limit:
    """A row of LIMITS: the check of a value, and a description of valid values for messages."""

    def __init__(
        self,
        what: str,
        accepts: Callable[[Any], Any],
        secret: bool = False,
        convert: Optional[Callable[[Any], Any]] = None,
    ) -> None:
        self.what = what
        self._accepts = accepts
        self._secret = secret
        self._convert = convert

    def __call__(self, value: Any) -> Any:
        """Return the value, converted if the limit has a conversion. Raises Misfit if it is invalid."""
        if not self._accepts(value):
            raise Misfit(self.what, value, self._secret)
        return value if self._convert is None else self._convert(value)


def optional(check: Check) -> Check:
    """Return a check that accepts None and the values that `check` accepts."""
    return lambda value: None if value is None else check(value)


class Rows:
    """A check for a list of any length; `make` builds the result from the checked rows."""

    def __init__(self, check: Check, make: Any = list) -> None:
        self._check = check
        self.make = make

    def __call__(self, value: Any) -> Any:
        """Return the result of `make` for the checked rows. Raises Misfit if the value or a row is invalid."""
        if type(value) is not list:
            raise Misfit("a list", value)
        try:
            return self.make([self._check(each) for each in value])
        except Misfit as misfit:
            raise misfit.within("[]") from None


def tuple_of(*checks: Any) -> Check:
    """Return a check for a list with one item per check, or, for `tuple_of(check, ...)`, any number of items."""
    if checks[1:] == (...,):
        return Rows(checks[0], tuple)

    def checked(value: Any) -> Any:
        if type(value) is not list or len(value) != len(checks):
            raise Misfit("a list of %d" % len(checks), value)
        try:
            return tuple(check(each) for check, each in zip(checks, value))  # noqa: B905 - Python 3.8
        except Misfit as misfit:
            raise misfit.within("[]") from None

    return checked


def dict_of(key_check: Check, check: Check) -> Check:
    """Return a check for an object whose keys and values pass the given checks."""

    def checked(value: Any) -> Any:
        if type(value) is not dict:
            raise Misfit("an object", value, secret=True)
        try:
            return {key_check(key): check(each) for key, each in value.items()}
        except Misfit as misfit:
            raise misfit.within("{}") from None

    return checked


def literal(*allowed: Any, convert: Optional[Callable[[Any], Any]] = None) -> Check:
    """Return a check that accepts only the given values, and converts them with `convert` if it is given."""
    what = "one of %s" % ", ".join(map(repr, allowed))
    return Limit(what, lambda value: type(value) is not bool and value in allowed, convert=convert)
