# SPDX-License-Identifier: Apache-2.0
"""Declares and checks records: the JSON objects that cross a process boundary or are read from a file.

A record is a NamedTuple (on the launcher a frozen dataclass works too) in a module that begins with
`from __future__ import annotations`. Its annotations name the limits; LIMITS is the list of them:

    class Started(NamedTuple):
        proc: str
        pid: Pid
        tags: Tuple[str, ...] = ()

    started = read(Started, checked_json.as_object(data), "started", "the agent of node-a")

`read` returns the record, or raises RecordError: "the agent of node-a: started.pid must be a process id, got true". A
member that is missing or null takes the field's default. Members that the record does not declare are ignored, so that
a newer peer can send more. A nested record can also be the list of its fields in order, which is the JSON form of a
NamedTuple; fields with defaults can be missing at its end. An annotation is a name of LIMITS, another record, an enum,
or one of Optional[X], X | None, Tuple[X, ...], Tuple[X, Y], List[X], Dict[str, X], Literal["a", "b"] and Union[A, B] of
records, which a Literal `kind` distinguishes. To a type checker the names are aliases.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Optional, Type, TypeVar

from paddle_node.contract import checked_json
from paddle_node.contract.checked_json import (
    Check,
    Limit,
    Misfit,
    Rows,
    dict_of,
    literal,
    optional,
    tuple_of,
    words,
)
from paddle_node.contract.classes import NamedTuple
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

LONGEST_S = 10 * 366 * 24 * 3600.0  # ten years: the maximum wait of the operating system
LAST_MOMENT = 253402300800.0  # the end of the year 9999
_MOST = (1 << 62) - 1
_HEXADECIMAL = frozenset("0123456789abcdef")
_PUNCTUATION = dict.fromkeys(map(ord, "._-"))  # of job IDs

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
Mode = int
OneLine = str
JobId = str
LocalPath = str
NodePath = str
RelativePath = str
LinkTarget = str
Address = str
Digest = str
Nonce = str
VariableName = str
Secret = str


class RecordError(ValueError):
    """Raised for a value that does not match its record; the message names the sender, the field and the limit."""


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_text(value: Any) -> bool:
    return type(value) is str


# without regular expressions: importing and compiling these takes an agent longer than all its checks


def _is_hexadecimal(digits: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is str and len(value) == digits and _HEXADECIMAL.issuperset(value)


def _is_job_id(value: Any) -> bool:
    if type(value) is not str or not 1 <= len(value) <= 128 or not value.isascii():
        return False
    rest = value.translate(_PUNCTUATION)
    return rest.isalnum() or not rest


def _is_bytes(value: Any) -> bool:
    try:
        return type(value) is str and value.encode("utf-8", "surrogateescape") is not None
    except UnicodeEncodeError:
        return False


LIMITS: Dict[str, Limit] = {
    "Any": Limit("a value", lambda value: True),
    "Fields": Limit("an object", lambda value: type(value) is dict),
    "bool": Limit("true or false", lambda value: type(value) is bool),
    "str": Limit("a string", _is_text),
    "bytes": Limit(
        "a string of bytes",
        _is_bytes,
        convert=lambda value: value.encode("utf-8", "surrogateescape"),
    ),
    "OneLine": Limit("a string", _is_text, convert=visible_line),
    "Secret": Limit("a string", _is_text, secret=True),
    "JobId": Limit("1 to 128 letters, digits, dots, dashes or underscores", _is_job_id),
    "Digest": Limit("64 hexadecimal digits", _is_hexadecimal(64)),
    "VariableName": Limit(
        "a name of an environment variable",
        lambda value: _is_text(value) and value.isascii() and value.isidentifier(),
    ),
    "RelativePath": Limit("a relative path without empty, `.` and `..` parts", is_relative_path),
    "LocalPath": Limit("a path that can be opened", is_local_path),
    "NodePath": Limit("a path without control characters", is_node_path),
    "Address": Limit("an IP address", is_address, convert=address),
    "float": Limit("a number", _is_number),
    "Finite": Limit("a finite number", lambda value: _is_number(value) and abs(value) <= sys.float_info.max),
    "Number": Limit("a number from 0 to 2**62", lambda value: _is_number(value) and 0 <= value <= _MOST),
    "Seconds": Limit(
        "a number of seconds from 0 to 2**62",
        lambda value: _is_number(value) and 0 <= value <= _MOST,
        convert=lambda value: min(value, LONGEST_S),  # a longer time is replaced by this one
    ),
    "Moment": Limit(
        "seconds since 1970, up to the year 9999",
        lambda value: _is_number(value) and 0 <= value <= LAST_MOMENT,
    ),
    "int": Limit("a whole number of 64 bits", _whole(-(1 << 63), (1 << 63) - 1)),
    "Whole": Limit("a whole number from 0 to 2**62", _whole(0, _MOST)),
    "Count": Limit("a whole number from 0 to 2**53", _whole(0, 1 << 53)),
    "Trainer": Limit("a trainer from 0 to 65534", _whole(0, 65534)),
    "Servers": Limit("a number of servers from 1 to 65535", _whole(1, 65535)),
    "Bytes": Limit("a number of bytes from 0 to 2**62", _whole(0, _MOST)),
    "Rank": Limit("a rank from 0 to 2**31", _whole(0, (1 << 31) - 1)),
    "Pid": Limit("a process id", _whole(1, (1 << 31) - 1)),
    "Port": Limit("a port from 1 to 65535", _whole(1, 65535)),
    "PortOrZero": Limit("a port from 0 to 65535", _whole(0, 65535)),
    "Mode": Limit(
        "permissions", _whole(0, _MOST), convert=lambda value: value & 0o777
    ),  # never setuid or sticky
    "LinkTarget": Limit(
        "a path without NUL bytes", lambda value: _is_text(value) and value and "\0" not in value
    ),
    "Nonce": Limit("32 hexadecimal digits", _is_hexadecimal(32)),
    "ExitCode": Limit("an exit code from 0 to 255", _whole(0, 255)),
}
"""Name in an annotation -> the check of a value. Whole numbers have a range, and `true` is not one."""


def read(record: Type[R], value: Any, name: str, sender: str) -> R:
    """Convert a JSON object to a record, after checking every field.

    Args:
        record: the record's class.
        value: the value of the sender's JSON text.
        name: the sender's name for it: the kind of a message, the name of a file.
        sender: the process that sent or wrote it.

    Raises:
        RecordError: a field is missing, or does not match its annotation.
    """
    try:
        if type(value) is not dict:
            raise Misfit("an object", value)
        result: R = plan(record)(value)
    except Misfit as misfit:
        raise RecordError("%s: %s" % (sender, misfit.within(name))) from None
    return result


def read_text(record: Type[R], data: "bytes | str", name: str, sender: str) -> R:
    """Decode a JSON text and convert it to a record; a JSON list becomes the record's only field.

    Raises:
        RecordError: the text is not JSON, or does not match the record.
    """
    try:
        value = checked_json.loads(data)
    except ValueError as error:
        raise RecordError("%s: %s is not JSON: %s" % (sender, name, error)) from None
    names = plan(record).names
    return read(record, {names[0]: value} if type(value) is list and len(names) == 1 else value, name, sender)


def read_fitting(record: Type[R], value: Fields, name: str, sender: str, faults: List[str]) -> R:
    """Return the record of the valid members of a JSON object; like `read`, raise if a required field is invalid.

    Args:
        faults: receives a message for each row of a list, and each other field, that is omitted.
    """
    misfits: List[Misfit] = []
    found = fitting(record, value, misfits)
    if any(column.default is ... and column.name not in found for column in plan(record).columns):
        return read(record, value, name, sender)
    faults += ["%s: %s" % (sender, misfit.within(name)) for misfit in misfits]
    return record(**found)


def fitting(record: Type[Any], value: Fields, misfits: Optional[List[Misfit]] = None) -> Fields:
    """Return the valid members of a JSON object, and the valid rows of its lists; append the others to `misfits`."""
    found = {}
    for name, _, check, _ in plan(record).columns:
        given = value.get(name)
        if given is None:
            continue
        has_rows = isinstance(check, Rows) and type(given) is list
        kept: List[Any] = []
        for part in [[row] for row in given] if has_rows else [given]:
            try:
                kept += check(part) if has_rows else (check(part),)
            except Misfit as misfit:
                if misfits is not None:
                    misfits.append(misfit.within("." + name))
        if has_rows:
            found[name] = check.make(kept)
        elif kept:
            found[name] = kept[0]
    return found


def fields_of(record: Any) -> Fields:
    """Convert a record to a JSON object, which may share values with the record."""
    return {name: _plain(getattr(record, name)) for name in plan(type(record)).names}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if hasattr(value, "__annotations__"):
        return fields_of(value)
    return [_plain(each) for each in value] if isinstance(value, (tuple, list)) else value


class Column(NamedTuple):
    """A field of a record, as its plan uses it.

    Attributes:
        text: the annotation of the field.
        default: the value if it is missing; `...` if it is required.
    """

    name: str
    text: str
    check: Any
    default: Any


class Plan:
    """The compiled checks of one record's fields; calling a plan checks one value."""

    def __init__(self, record: Type[Any]) -> None:
        module = vars(sys.modules[record.__module__])
        fields = getattr(record, "__fields__", None)
        types = {name: field.type for name, field in fields.items()} if fields else record.__annotations__
        texts = {name: getattr(kind, "__forward_arg__", kind) for name, kind in types.items()}
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError(f"{record.__module__}: records need `from __future__ import annotations`")
        defaults = _defaults(record)
        self._record = record
        self._is_tuple = issubclass(record, tuple)
        self.columns = [
            Column(name, text, _Annotation(text, module).check(), defaults.get(name, ...))
            for name, text in texts.items()
        ]
        self.names = list(texts)
        self._least = sum(column.default is ... for column in self.columns)
        self._begun = {column.name: column.default for column in self.columns} if self._is_tuple else {}

    def __call__(self, value: Any) -> Any:
        """Return the record for a JSON object or for the list of its fields."""
        if type(value) is list:
            if not self._least <= len(value) <= len(self.names):
                raise Misfit("a list of %d" % len(self.names), value)
            value = dict(zip(self.names, value))  # noqa: B905 - Python 3.8
        if type(value) is not dict:
            raise Misfit("an object", value)
        values = self._begun.copy()
        for name, _, check, default in self.columns:
            found = value.get(name)
            if found is None and default is not ...:
                continue
            try:
                values[name] = check(found)
            except Misfit as misfit:
                raise misfit.within("." + name) from None
        return tuple.__new__(self._record, values.values()) if self._is_tuple else self._record(**values)


_plans: Dict[type, Plan] = {}


def plan(record: Type[Any]) -> Plan:
    """Return the checks of a record, which are compiled on first use."""
    if record not in _plans:
        _plans[record] = Plan(record)
    return _plans[record]


def _defaults(record: Type[Any]) -> Fields:
    members = getattr(record, "__fields__", None)
    if members is None:
        return dict(getattr(record, "_field_defaults", {}))
    return {name: member.default for name, member in members.items() if member.has_default}


_SELF: Fields = {"...": ..., "None": None}


class _Annotation:
    """Parses one annotation: NAME, NAME[X, Y], X | None, "text", `...` and None."""

    def __init__(self, text: str, module: Fields) -> None:
        self._words = words(text)[::-1]  # in reverse order: the next one is the last
        self._module = module

    def check(self) -> Any:
        """Return the check that it describes; a literal text or `...` stands for itself."""
        word = self._words.pop()
        if word in _SELF:
            found = _SELF[word]
        elif word[0] == '"' or word[0] == "'":
            found = word[1:-1]
        elif word in _FORMS:
            found = _FORMS[word](*self._parts())
        elif _is_enum(self._module.get(word)):
            found = literal(*(each.value for each in self._module[word]), convert=self._module[word])
        else:
            found = LIMITS[word] if word in LIMITS else plan(self._module[word])
        if self._words and self._words[-1] == "|":
            del self._words[-2:]
            return optional(found)
        return found

    def _parts(self) -> List[Any]:
        parts = []
        while self._words.pop() != "]":  # the bracket or comma before each part, and the last bracket
            parts.append(self.check())
        return parts


def _is_enum(kind: Any) -> bool:
    enum = sys.modules.get("enum")  # which no agent imports
    return enum is not None and isinstance(kind, enum.EnumMeta)


def _union(*plans: Plan) -> Check:
    at = plans[0].names.index("kind")
    named = ((word, each) for each in plans for word in words(each.columns[at].text))
    by_kind = {word[1:-1]: each for word, each in named if word[0] in "\"'"}

    def checked(value: Any) -> Any:
        listed = value[at] if type(value) is list and len(value) > at else None
        kind = value.get("kind") if type(value) is dict else listed
        if type(kind) is not str or kind not in by_kind:
            raise Misfit("of kind %s" % " or ".join(map(repr, by_kind)), value)
        return by_kind[kind](value)

    return checked


_FORMS: Dict[str, Callable[..., Check]] = {
    "Optional": optional,
    "Union": _union,
    "Literal": literal,
    **dict.fromkeys(("List", "list", "Sequence"), Rows),
    **dict.fromkeys(("Tuple", "tuple"), tuple_of),
    **dict.fromkeys(("Dict", "dict", "Mapping"), dict_of),
}
