# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages (proto2) without the protobuf package: classes made from a table of fields.

A table has a line per message, its name and a colon, then a line per field: number, type, name, and optionally ``!``
(required), ``*`` (repeated), ``**`` (repeated and packed) or ``=default``. An ``enum NAME: A=0 B=1`` is one line.
Values are checked where they are set; as with the protobuf package, a message is changed through its fields, and
reading an unset field returns its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, Self, SupportsIndex

from paddle import protobuf
from paddle.errors import ConfigError, ModelFileError
from paddle.proto.field import ZEROS, Field, MessageTypeError, decoded, encoded, shown, unpacked

_DEEPEST = 100


class Repeated(list[Any]):
    """The list of values of a repeated field."""

    def __init__(self, field: Field, values: Iterable[Any] = ()) -> None:
        super().__init__(map(field.checked, values))
        self._field = field

    def append(self, value: Any) -> None:
        """Append a value to the list; a message is copied."""
        self.extend([value])

    def extend(self, values: Iterable[Any]) -> None:
        """Append several values to the list; messages are copied."""
        found = [self._field.checked(each) for each in values]
        super().extend(_copied(each) if isinstance(each, Message) else each for each in found)

    MergeFrom = extend

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(values)
        return self

    def __reduce__(self) -> Any:
        return Repeated, (self._field, list(self))

    def insert(self, index: SupportsIndex, value: Any) -> None:
        """Insert a value at an index of the list."""
        super().insert(index, self._field.checked(value))

    def add(self, **values: Any) -> Any:
        """Append a new message with the given fields, and return it."""
        kind = self._field.kind
        if isinstance(kind, str):
            raise MessageTypeError(
                f"{self._field.name} holds values of type {kind}: append them instead of calling add"
            )
        super().append(kind(**values))
        return self[-1]

    def __setitem__(self, index: Any, value: Any) -> None:
        several = isinstance(index, slice)
        super().__setitem__(
            index, [*map(self._field.checked, value)] if several else self._field.checked(value)
        )


class Message:
    """Base class of protobuf messages; keyword arguments set fields."""

    __slots__ = ("_is_set", "_values")
    FIELDS: ClassVar[Mapping[str, Field]] = {}

    def __init__(self, **values: Any) -> None:
        self._values: dict[str, Any] = {}
        self._is_set = False
        for name, value in values.items():
            field = self._field(name)
            if field.is_repeated:
                self._values[name] = Repeated(field)
                for each in value:
                    self._values[name].append(_given(field, each))
            elif isinstance(field.kind, type):
                getattr(self, name).CopyFrom(_given(field, value))
            elif value is not None:
                setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        field = self._field(name)
        if name not in self._values:
            if field.is_repeated:
                self._values[name] = Repeated(field)
            elif isinstance(field.kind, type):
                self._values[name] = field.kind()
            else:
                return field.default
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Message.__slots__:
            object.__setattr__(self, name, value)
            return
        field = self._field(name)
        if field.is_repeated or isinstance(field.kind, type):
            how = "append or extend" if field.is_repeated else "CopyFrom"
            raise AttributeError(f"{name} of {type(self).__name__} cannot be assigned; use {how}")
        self._values[name] = field.checked(value)

    def __eq__(self, other: object) -> bool:
        alike = isinstance(other, Message) and type(other).FIELDS is type(self).FIELDS
        return alike and self.ListFields() == other.ListFields()  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    __repr__ = __str__

    def __deepcopy__(self, memo: Any) -> Message:
        return _copied(self)

    def __reduce__(self) -> Any:
        return _restored, (type(self), self.SerializePartialToString(), self._is_set)

    def ListFields(self) -> list[tuple[Field, Any]]:  # noqa: N802 - protobuf's names, from here on
        """Return the (field, value) pairs of all fields that are set, by field number."""
        return [(field, self._values[name]) for name, field in self.FIELDS.items() if self._has(field)]

    def HasField(self, name: str) -> bool:  # noqa: N802
        """Return whether a field that is not repeated is set."""
        field = self._field(name, ConfigError)
        if field.is_repeated:
            raise ConfigError(f"{type(self).__name__}.{name} is a repeated field: use len()")
        return self._has(field)

    def ClearField(self, name: str) -> None:  # noqa: N802
        """Unset a field, so that reading it returns its default."""
        self._values.pop(self._field(name, ConfigError).name, None)

    def Clear(self) -> None:  # noqa: N802
        """Unset all fields, so that reading them returns their defaults."""
        self._values.clear()

    def SetInParent(self) -> None:  # noqa: N802
        """Mark the message as set in its parent message, even if it has no fields."""
        self._is_set = True

    def CopyFrom(self, other: Message) -> None:  # noqa: N802
        """Replace all fields with those of a message of the same type."""
        if other is not self:
            self._check_type(other)
            self.Clear()
            self.MergeFrom(other)

    def MergeFrom(self, other: Message) -> None:  # noqa: N802
        """Merge a message of the same type into this one: set its set fields, and append its repeated values."""
        self._check_type(other)
        self._is_set = True
        for field, value in other.ListFields():
            if field.is_repeated:
                getattr(self, field.name).extend(value)
            elif isinstance(value, Message):
                getattr(self, field.name).MergeFrom(value)
            else:
                self._values[field.name] = value

    def IsInitialized(self) -> bool:  # noqa: N802
        """Return whether all required fields are set, in inner messages too."""
        return next(self._missing(), None) is None

    def FindInitializationErrors(self) -> list[str]:  # noqa: N802
        """Return the names of the required fields that are not set."""
        return list(self._missing())

    def SerializeToString(self) -> bytes:  # noqa: N802
        """Serialize the message in protobuf's wire format.

        Raises:
            ConfigError: a required field is not set.
        """
        missing = self.FindInitializationErrors()
        if missing:
            raise ConfigError(f"{type(self).__name__} lacks required fields: {', '.join(missing)}")
        return self.SerializePartialToString()

    def SerializePartialToString(self) -> bytes:  # noqa: N802
        """Serialize the message in protobuf's wire format, even if required fields are not set."""
        return b"".join(encoded(field, value) for field, value in self.ListFields())

    def ByteSize(self) -> int:  # noqa: N802
        """Return the length of the serialized message in bytes."""
        return len(self.SerializePartialToString())

    def ParseFromString(self, serialized: bytes) -> int:  # noqa: N802
        """Replace all fields with those of a serialized message; return its length in bytes.

        Raises:
            ModelFileError: the bytes are damaged; the message is unchanged.
        """
        found = type(self)()
        found.MergeFromString(serialized)
        missing = found.FindInitializationErrors()
        if missing:
            raise ModelFileError(f"{type(self).__name__} lacks required fields: {', '.join(missing)}")
        self._values, self._is_set = found._values, True
        return len(serialized)

    def MergeFromString(self, serialized: bytes) -> int:  # noqa: N802
        """Merge a serialized message into this one; return its length in bytes. Unknown fields are skipped.

        Raises:
            ModelFileError: the bytes are damaged, or nest more than 100 messages, protobuf's limit.
        """
        if not isinstance(serialized, (bytes, bytearray, memoryview)):
            raise MessageTypeError(
                f"a serialized {type(self).__name__} must be bytes, got {serialized!r:.80}"
            )
        self._merge(bytes(serialized), 0)
        return len(serialized)

    @classmethod
    def FromString(cls, serialized: bytes) -> Message:  # noqa: N802
        """Parse a serialized message and return it; see `ParseFromString`."""
        found = cls()
        found.ParseFromString(serialized)
        return found

    def _field(self, name: str, error: type[Exception] = AttributeError) -> Field:
        field = type(self).FIELDS.get(name)
        if field is None:
            raise error(f"{type(self).__name__} has no field {name!r}; it has {', '.join(self.FIELDS)}")
        return field

    def _has(self, field: Field) -> bool:
        value = self._values.get(field.name)
        if isinstance(value, Message):
            return value._is_set or bool(value.ListFields())
        return value is not None and not (field.is_repeated and not value)

    def _missing(self, prefix: str = "") -> Iterator[str]:
        for name, field in self.FIELDS.items():
            if field.label == "!" and not self._has(field):
                yield prefix + name
            if isinstance(field.kind, type) and self._has(field):
                value = self._values[name]
                for each in value if field.is_repeated else [value]:
                    yield from each._missing(f"{prefix}{name}.")

    def _check_type(self, other: object) -> None:
        if not isinstance(other, Message) or type(other).FIELDS is not type(self).FIELDS:
            raise MessageTypeError(f"expected a {type(self).__name__}, got {other!r:.80}")

    def _merge(self, serialized: bytes, depth: int) -> None:
        if depth > _DEEPEST:
            raise ModelFileError(
                f"{type(self).__name__}: messages are nested more than {_DEEPEST} levels deep"
            )
        by_number = {field.number: field for field in self.FIELDS.values()}
        for number, raw in protobuf.fields(serialized):
            if number in by_number:
                self._take(by_number[number], raw, depth)
        self._is_set = True

    def _take(self, field: Field, raw: int | float | bytes, depth: int) -> None:
        kind = field.kind
        if isinstance(kind, type):
            if not isinstance(raw, bytes):
                raise ModelFileError(f"{field.name} should be a message, but is a number")
            inner = getattr(self, field.name).add() if field.is_repeated else getattr(self, field.name)
            inner._merge(raw, depth + 1)
        elif field.is_repeated and isinstance(raw, bytes) and kind not in ("string", "bytes"):
            getattr(self, field.name).extend(unpacked(field, raw))
        else:
            value = decoded(field, raw)
            if field.is_repeated:
                getattr(self, field.name).append(value)
            else:
                self._values[field.name] = value

    def _lines(self) -> Iterator[str]:
        for field, value in self.ListFields():
            for each in value if field.is_repeated else [value]:
                if isinstance(each, Message):
                    yield f"{field.name} {{"
                    yield from (f"  {line}" for line in each._lines())
                    yield "}"
                else:
                    yield f"{field.name}: {shown(each)}"


def messages(module: str, table: str, known: Iterable[Mapping[str, Any]] = ()) -> MutableMapping[str, Any]:
    """Create the classes and enum values of a table, and return them by name; `known` are those of other modules."""
    kinds: dict[str, Any] = {name: each for names in known for name, each in names.items()}
    found: dict[str, Any] = {}
    lines = [line.strip() for line in table.strip().splitlines()]
    for line in lines:
        if line.endswith(":"):
            body = {"__slots__": (), "__module__": module, "__doc__": "A message.", "FIELDS": {}}
            found[line[:-1]] = type(line[:-1], (Message,), body)
    kinds |= found
    for line in lines:
        if line.startswith("enum "):
            name, _, values = line.removeprefix("enum ").partition(":")
            kinds[name] = "int32"
            found |= {each: int(value) for each, _, value in (item.partition("=") for item in values.split())}
        elif line.endswith(":"):
            fields = found[line[:-1]].FIELDS
        elif line:
            field = _parsed(line, kinds, found)
            fields[field.name] = field
    for each in found.values():
        if isinstance(each, type) and issubclass(each, Message):
            ordered = sorted(each.FIELDS.values(), key=lambda field: field.number)
            each.FIELDS = {field.name: field for field in ordered}
    return found


def _parsed(line: str, kinds: Mapping[str, Any], values: Mapping[str, Any]) -> Field:
    number, kind, name, *rest = line.split()
    found = kinds.get(kind, kind)
    label = rest[0] if rest and rest[0][0] in "!*" else ""
    given = next((each[1:] for each in rest if each[0] == "="), None)
    default = ZEROS.get(found, 0) if isinstance(found, str) else None
    if given is not None and found == "bool":
        default = given == "true"
    elif given is not None:
        default = values[given] if given in values else type(ZEROS.get(found, 0))(given)
    return Field(int(number), name, found, label, default)


def _given(field: Field, value: Any) -> Any:
    is_inner = isinstance(field.kind, type) and isinstance(value, Mapping)
    return field.kind(**value) if is_inner else value


def _restored(kind: type[Message], serialized: bytes, is_set: bool) -> Message:
    found = kind()
    found.MergeFromString(serialized)
    found._is_set = is_set
    return found


def _copied(message: Message) -> Message:
    found = type(message)()
    found.MergeFrom(message)
    found._is_set = message._is_set
    return found
