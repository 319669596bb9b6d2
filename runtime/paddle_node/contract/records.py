# SPDX-License-Identifier: Apache-2.0
"""Declares and checks records: the JSON objects that cross a process boundary or are read from a file.

A record is a NamedTuple (on the launcher a frozen dataclass works too) in a module that begins with
`from __future__ import annotations`. Its annotations name the limits; LIMITS is the list of them:

    class Started(NamedTuple):
        proc: str
        pid: Pid
        tags: Tuple[str, ...] = ()

    started = read(Started, checked_json.as_object(data), "started", "the agent of node-a")

`read` returns the record, or raises RecordError: "the agent of node-a: started.pid must be a process id, got true".
A member that is missing or null takes the field's default. Members that the record does not declare are ignored, so
that a newer peer may send more. An annotation is a name of LIMITS, another record, or one of Optional[X], X | None,
Tuple[X, ...], Tuple[X, Y], List[X], Dict[str, X] and Literal["a", "b"]. To a type checker the names are aliases.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Type, TypeVar

Fields = Dict[str, Any]
R = TypeVar("R")
Check = Callable[[Any], Any]

PATH_LIMIT = 4096  # bytes, as the kernel's
LONGEST_S = 10 * 366 * 24 * 3600.0  # ten years: the operating system waits no longer
_MOST = (1 << 62) - 1
_JOB_ID = re.compile("[A-Za-z0-9._-]{1,128}")

Number = float
Seconds = float
Whole = int
Pid = int
Port = int
Rank = int
Bytes = int
JobId = str
RelativePath = str
Secret = str


class RecordError(ValueError):
    """A value does not fit its record; the message names the sender, the field and the limit."""


class _Misfit(Exception):
    """A value is not what its limit says; `path` grows from the innermost name outwards."""

    def __init__(self, what: str, value: Any, secret: bool = False) -> None:
        super().__init__()
        self.path: List[str] = []
        self._what = what
        self._value = value
        self._secret = secret

    def within(self, part: str) -> _Misfit:
        """The same one, seen from the value that holds this part."""
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


class _Limit:
    """One row of LIMITS: what a value must be, for messages, and whether it is."""

    def __init__(self, what: str, accepts: Callable[[Any], Any], secret: bool = False) -> None:
        self.what = what
        self._accepts = accepts
        self._secret = secret

    def __call__(self, value: Any) -> Any:
        if not self._accepts(value):
            raise _Misfit(self.what, value, self._secret)
        return value


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_text(value: Any) -> bool:
    return type(value) is str


def is_relative_path(path: Any) -> bool:
    """Whether a path stays below the folder that it is put in, and is written in one way only."""
    return (
        type(path) is str
        and len(path) <= PATH_LIMIT
        and "\0" not in path
        and not any(part in ("", ".", "..") for part in path.split("/"))
    )


LIMITS: Dict[str, _Limit] = {
    "Any": _Limit("a value", lambda value: True),
    "Fields": _Limit("an object", lambda value: type(value) is dict),
    "bool": _Limit("true or false", lambda value: type(value) is bool),
    "str": _Limit("a string", _is_text),
    "Secret": _Limit("a string", _is_text, secret=True),
    "JobId": _Limit(
        "1 to 128 letters, digits, dots, dashes or underscores",
        lambda value: _is_text(value) and _JOB_ID.fullmatch(value),
    ),
    "RelativePath": _Limit("a relative path without empty, `.` and `..` parts", is_relative_path),
    "float": _Limit("a number", _is_number),
    "Number": _Limit("a number from 0 to 2**62", lambda value: _is_number(value) and 0 <= value <= _MOST),
    "Seconds": _Limit(
        "a number of seconds, at least 0 and at most ten years",
        lambda value: _is_number(value) and 0 <= value <= LONGEST_S,
    ),
    "int": _Limit("a whole number of 64 bits", _whole(-(1 << 63), (1 << 63) - 1)),
    "Whole": _Limit("a whole number from 0 to 2**62", _whole(0, _MOST)),
    "Bytes": _Limit("a number of bytes from 0 to 2**62", _whole(0, _MOST)),
    "Rank": _Limit("a rank from 0 to 2**31", _whole(0, (1 << 31) - 1)),
    "Pid": _Limit("a process id", _whole(1, (1 << 31) - 1)),
    "Port": _Limit("a port from 1 to 65535", _whole(1, 65535)),
}
"""Name in an annotation -> what a value must be. Whole numbers are never `true`, and have a range."""


def read(record: Type[R], value: Any, name: str, sender: str) -> R:
    """Return the record that a JSON object holds.

    Args:
        record: its class.
        value: what the JSON text of the sender holds.
        name: what the sender calls it: the kind of a message, the name of a file.
        sender: who sent or wrote it.

    Raises:
        RecordError: a field is missing, or not what its annotation says.
    """
    try:
        result: R = plan(record)(value)
    except _Misfit as misfit:
        raise RecordError("%s: %s" % (sender, misfit.within(name))) from None
    return result


def fields_of(record: Any) -> Fields:
    """The JSON object of a record; what it holds may be shared with the record."""
    return {name: _plain(getattr(record, name)) for name in plan(type(record)).names}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if hasattr(value, "__annotations__"):
        return fields_of(value)
    return [_plain(each) for each in value] if isinstance(value, (tuple, list)) else value


class Column(NamedTuple):
    """One field of a record.

    Attributes:
        text: its annotation.
        default: what it is where it is missing; `...` where it must be there.
    """

    name: str
    text: str
    check: Check
    default: Any


class Plan:
    """How one record is read; calling it checks a value."""

    def __init__(self, record: Type[Any]) -> None:
        names = _Names(vars(sys.modules[record.__module__]))
        fields = getattr(record, "__dataclass_fields__", None)
        types = {name: field.type for name, field in fields.items()} if fields else record.__annotations__
        texts = {name: getattr(kind, "__forward_arg__", kind) for name, kind in types.items()}
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError(f"{record.__module__}: records need `from __future__ import annotations`")
        defaults = _defaults(record)
        self._record = record
        self.columns = [
            Column(name, text, names.check(text), defaults.get(name, ...)) for name, text in texts.items()
        ]
        self.names = list(texts)

    def __call__(self, value: Any) -> Any:
        """The record that a JSON object holds."""
        if type(value) is not dict:
            raise _Misfit("an object", value)
        values = {}
        for name, _, check, default in self.columns:
            found = value.get(name)
            if found is None and default is not ...:
                continue
            try:
                values[name] = check(found)
            except _Misfit as misfit:
                raise misfit.within("." + name) from None
        return self._record(**values)


_plans: Dict[type, Plan] = {}


def plan(record: Type[Any]) -> Plan:
    """How a record is read, made when it is needed for the first time."""
    if record not in _plans:
        _plans[record] = Plan(record)
    return _plans[record]


def _defaults(record: Type[Any]) -> Fields:
    if not hasattr(record, "__dataclass_fields__"):
        return dict(getattr(record, "_field_defaults", {}))
    from dataclasses import MISSING, fields  # agents need no dataclasses

    return {
        field.name: field.default
        for field in fields(record)
        if field.default is not MISSING or field.default_factory is not MISSING
    }


class _Names(Dict[str, Any]):
    """What the names in annotations stand for: limits, forms, and records of the module."""

    def __init__(self, module: Fields) -> None:
        super().__init__(_FORMS)
        self._module = module

    def __missing__(self, name: str) -> _Expression:
        return _Expression(LIMITS[name] if name in LIMITS else plan(self._module[name]))

    def check(self, text: str) -> Check:
        """The check that an annotation asks for."""
        expression: _Expression = eval(text, {"__builtins__": {}}, self)  # noqa: S307 - our own source
        return expression.check


class _Expression:
    """An annotation; `X | None` is one too."""

    def __init__(self, check: Check) -> None:
        self.check = check

    def __or__(self, other: None) -> _Expression:
        return _Expression(_optional(self.check))


class _Form:
    """`Name[X]` and `Name[X, Y]`: makes one check of the checks of its parts."""

    def __init__(self, make: Callable[..., Check]) -> None:
        self._make = make

    def __getitem__(self, parts: Any) -> _Expression:
        parts = parts if isinstance(parts, tuple) else (parts,)
        return _Expression(self._make(*(getattr(part, "check", part) for part in parts)))


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _list(check: Check) -> Check:
    def checked(value: Any) -> Any:
        if type(value) is not list:
            raise _Misfit("a list", value)
        try:
            return [check(each) for each in value]
        except _Misfit as misfit:
            raise misfit.within("[]") from None

    return checked


def _tuple(*checks: Any) -> Check:
    if checks[1:] == (...,):
        as_list = _list(checks[0])
        return lambda value: tuple(as_list(value))

    def checked(value: Any) -> Any:
        if type(value) is not list or len(value) != len(checks):
            raise _Misfit("a list of %d" % len(checks), value)
        try:
            return tuple(check(each) for check, each in zip(checks, value))  # noqa: B905 - Python 3.8
        except _Misfit as misfit:
            raise misfit.within("[]") from None

    return checked


def _dict(_key: Check, check: Check) -> Check:
    def checked(value: Any) -> Any:
        if type(value) is not dict:
            raise _Misfit("an object", value)
        try:
            return {key: check(each) for key, each in value.items()}
        except _Misfit as misfit:
            raise misfit.within("{}") from None

    return checked


def _literal(*allowed: Any) -> Check:
    return _Limit("one of %s" % ", ".join(map(repr, allowed)), lambda value: value in allowed)


_FORMS: Dict[str, Any] = {
    "Optional": _Form(_optional),
    "Literal": _Form(_literal),
    **dict.fromkeys(("List", "list", "Sequence"), _Form(_list)),
    **dict.fromkeys(("Tuple", "tuple"), _Form(_tuple)),
    **dict.fromkeys(("Dict", "dict", "Mapping"), _Form(_dict)),
}
