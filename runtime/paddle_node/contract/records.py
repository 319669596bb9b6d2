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
that a newer peer may send more. Within a record, another one may also be the list of all its fields in order, as JSON
has a NamedTuple. An annotation is a name of LIMITS, another record, or one of Optional[X], X | None,
Tuple[X, ...], Tuple[X, Y], List[X], Dict[str, X] and Literal["a", "b"]. To a type checker the names are aliases.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Type, TypeVar

from paddle_node.contract.text import (
    address,
    is_address,
    is_local_path,
    is_node_path,
    is_relative_path,
    visible_line,
)

Fields = Dict[str, Any]
R = TypeVar("R")
Check = Callable[[Any], Any]

LONGEST_S = 10 * 366 * 24 * 3600.0  # ten years: the operating system waits no longer
LAST_MOMENT = 253402300800.0  # the end of the year 9999
_MOST = (1 << 62) - 1
_JOB_ID = re.compile("[A-Za-z0-9._-]{1,128}")
_DIGEST = re.compile("[0-9a-f]{64}")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")

Finite = float
Number = float
Seconds = float
Moment = float
Whole = int
Count = int
Trainer = int
Servers = int
Pid = int
Port = int
PortOrZero = int
Rank = int
Bytes = int
ExitCode = int
OneLine = str
JobId = str
LocalPath = str
NodePath = str
RelativePath = str
Address = str
Digest = str
VariableName = str
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
        if not self._accepts(value):
            raise _Misfit(self.what, value, self._secret)
        return value if self._convert is None else self._convert(value)


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_text(value: Any) -> bool:
    return type(value) is str


LIMITS: Dict[str, _Limit] = {
    "Any": _Limit("a value", lambda value: True),
    "Fields": _Limit("an object", lambda value: type(value) is dict),
    "bool": _Limit("true or false", lambda value: type(value) is bool),
    "str": _Limit("a string", _is_text),
    "OneLine": _Limit("a string", _is_text, convert=visible_line),
    "Secret": _Limit("a string", _is_text, secret=True),
    "JobId": _Limit(
        "1 to 128 letters, digits, dots, dashes or underscores",
        lambda value: _is_text(value) and _JOB_ID.fullmatch(value),
    ),
    "Digest": _Limit("64 hexadecimal digits", lambda value: _is_text(value) and _DIGEST.fullmatch(value)),
    "VariableName": _Limit(
        "a name of an environment variable", lambda value: _is_text(value) and _VARIABLE.fullmatch(value)
    ),
    "RelativePath": _Limit("a relative path without empty, `.` and `..` parts", is_relative_path),
    "LocalPath": _Limit("a path that can be opened", is_local_path),
    "NodePath": _Limit("a path without control characters", is_node_path),
    "Address": _Limit("an IP address", is_address, convert=address),
    "float": _Limit("a number", _is_number),
    "Finite": _Limit("a finite number", lambda value: _is_number(value) and abs(value) <= sys.float_info.max),
    "Number": _Limit("a number from 0 to 2**62", lambda value: _is_number(value) and 0 <= value <= _MOST),
    "Seconds": _Limit(
        "a number of seconds from 0 to 2**62",
        lambda value: _is_number(value) and 0 <= value <= _MOST,
        convert=lambda value: min(value, LONGEST_S),  # a longer time is taken for this
    ),
    "Moment": _Limit(
        "seconds since 1970, up to the year 9999",
        lambda value: _is_number(value) and 0 <= value <= LAST_MOMENT,
    ),
    "int": _Limit("a whole number of 64 bits", _whole(-(1 << 63), (1 << 63) - 1)),
    "Whole": _Limit("a whole number from 0 to 2**62", _whole(0, _MOST)),
    "Count": _Limit("a whole number from 0 to 2**53", _whole(0, 1 << 53)),
    "Trainer": _Limit("a trainer from 0 to 65534", _whole(0, 65534)),
    "Servers": _Limit("a number of servers from 1 to 65535", _whole(1, 65535)),
    "Bytes": _Limit("a number of bytes from 0 to 2**62", _whole(0, _MOST)),
    "Rank": _Limit("a rank from 0 to 2**31", _whole(0, (1 << 31) - 1)),
    "Pid": _Limit("a process id", _whole(1, (1 << 31) - 1)),
    "Port": _Limit("a port from 1 to 65535", _whole(1, 65535)),
    "PortOrZero": _Limit("a port from 0 to 65535", _whole(0, 65535)),
    "ExitCode": _Limit("an exit code from 0 to 255", _whole(0, 255)),
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
        if type(value) is not dict:
            raise _Misfit("an object", value)
        result: R = plan(record)(value)
    except _Misfit as misfit:
        raise RecordError("%s: %s" % (sender, misfit.within(name))) from None
    return result


def read_fitting(record: Type[R], value: Fields, name: str, sender: str, faults: List[str]) -> R:
    """Return the record of what fits in a JSON object; like `read`, it raises where a field without a default does not.

    Args:
        faults: one message is added for each row of a list, and each other field, that is left out.
    """
    misfits: List[_Misfit] = []
    found = fitting(record, value, misfits)
    if any(column.default is ... and column.name not in found for column in plan(record).columns):
        return read(record, value, name, sender)
    faults += ["%s: %s" % (sender, misfit.within(name)) for misfit in misfits]
    return record(**found)


def fitting(record: Type[Any], value: Fields, misfits: Optional[List[_Misfit]] = None) -> Fields:
    """The members of a JSON object that fit the record, and the rows of lists that do; `misfits` gets the others."""
    found = {}
    for name, _, check, _ in plan(record).columns:
        given = value.get(name)
        if given is None:
            continue
        has_rows = isinstance(check, _Rows) and type(given) is list
        kept: List[Any] = []
        for part in [[row] for row in given] if has_rows else [given]:
            try:
                kept += check(part) if has_rows else (check(part),)
            except _Misfit as misfit:
                if misfits is not None:
                    misfits.append(misfit.within("." + name))
        if has_rows:
            found[name] = check.make(kept)
        elif kept:
            found[name] = kept[0]
    return found


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
    check: Any
    default: Any


class Plan:
    """How one record is read; calling it checks a value."""

    def __init__(self, record: Type[Any]) -> None:
        module = vars(sys.modules[record.__module__])
        fields = getattr(record, "__dataclass_fields__", None)
        types = {name: field.type for name, field in fields.items()} if fields else record.__annotations__
        texts = {name: getattr(kind, "__forward_arg__", kind) for name, kind in types.items()}
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError(f"{record.__module__}: records need `from __future__ import annotations`")
        defaults = _defaults(record)
        self._record = record
        self.columns = [
            Column(name, text, _Annotation(text, module).check(), defaults.get(name, ...))
            for name, text in texts.items()
        ]
        self.names = list(texts)

    def __call__(self, value: Any) -> Any:
        """The record that a JSON object, or the list of its fields, holds."""
        if type(value) is list:
            if len(value) != len(self.names):
                raise _Misfit("a list of %d" % len(self.names), value)
            value = dict(zip(self.names, value))  # noqa: B905 - Python 3.8
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


class _Annotation:
    """Reads one annotation: NAME, NAME[X, Y], X | None, "text", `...` and None."""

    def __init__(self, text: str, module: Fields) -> None:
        self._words = _WORD.findall(text)[::-1]  # the next one is the last
        self._module = module

    def check(self) -> Any:
        """The check that it asks for; a literal text or `...` stands for itself."""
        word = self._words.pop()
        if word in _SELF:
            found = _SELF[word]
        elif word[0] == '"' or word[0] == "'":
            found = word[1:-1]
        elif word in _FORMS:
            found = _FORMS[word](*self._parts())
        else:
            found = LIMITS[word] if word in LIMITS else plan(self._module[word])
        if self._words and self._words[-1] == "|":
            del self._words[-2:]
            return _optional(found)
        return found

    def _parts(self) -> List[Any]:
        parts = []
        while self._words.pop() != "]":  # the bracket or comma before each part, and the last bracket
            parts.append(self.check())
        return parts


_WORD = re.compile(r"""\w+|"[^"]*"|'[^']*'|\.\.\.|[][,|]""")
_SELF: Fields = {"...": ..., "None": None}


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


class _Rows:
    """The check of a list of any length; `make` makes it of the checked rows."""

    def __init__(self, check: Check, make: Any = list) -> None:
        self._check = check
        self.make = make

    def __call__(self, value: Any) -> Any:
        if type(value) is not list:
            raise _Misfit("a list", value)
        try:
            return self.make([self._check(each) for each in value])
        except _Misfit as misfit:
            raise misfit.within("[]") from None


def _tuple(*checks: Any) -> Check:
    if checks[1:] == (...,):
        return _Rows(checks[0], tuple)

    def checked(value: Any) -> Any:
        if type(value) is not list or len(value) != len(checks):
            raise _Misfit("a list of %d" % len(checks), value)
        try:
            return tuple(check(each) for check, each in zip(checks, value))  # noqa: B905 - Python 3.8
        except _Misfit as misfit:
            raise misfit.within("[]") from None

    return checked


def _dict(key_check: Check, check: Check) -> Check:
    def checked(value: Any) -> Any:
        if type(value) is not dict:
            raise _Misfit("an object", value, secret=True)
        try:
            return {key_check(key): check(each) for key, each in value.items()}
        except _Misfit as misfit:
            raise misfit.within("{}") from None

    return checked


def _literal(*allowed: Any) -> Check:
    return _Limit("one of %s" % ", ".join(map(repr, allowed)), lambda value: value in allowed)


_FORMS: Dict[str, Callable[..., Check]] = {
    "Optional": _optional,
    "Literal": _literal,
    **dict.fromkeys(("List", "list", "Sequence"), _Rows),
    **dict.fromkeys(("Tuple", "tuple"), _tuple),
    **dict.fromkeys(("Dict", "dict", "Mapping"), _dict),
}
