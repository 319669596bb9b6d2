# SPDX-License-Identifier: Apache-2.0
"""Descriptions of MultiSlot data in protocol buffer text format, as in DataFeedDesc files and `desc()`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddle.fluid.errors import ModelFileError
from paddle.fluid.multislot.samples import Slot, SlotType
from paddle_node.contract.classes import dataclass, field

_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<name>\w+)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<sign>[-:{}<>;,\[\]])"""
)
_ESCAPED = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BOOLS = {
    "true": True,
    "True": True,
    "t": True,
    "1": True,
    "false": False,
    "False": False,
    "f": False,
    "0": False,
}


@dataclass
class Description:
    """A parsed DataFeedDesc; missing fields have the original's defaults."""

    name: str = ""
    batch_size: int = 32
    pipe_command: str = "cat"
    thread_num: int = 0
    slots: list[Slot] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the description in protobuf text format."""
        lines = [f"name: {_quoted(self.name)}"] if self.name else []
        lines.append(f"batch_size: {self.batch_size}")
        if self.slots:
            lines.append("multi_slot_desc {")
            for slot in self.slots:
                lines += [
                    "  slots {",
                    f"    name: {_quoted(slot.name)}",
                    f"    type: {_quoted(slot.type.value)}",
                ]
                lines += [
                    f"    is_dense: {str(slot.is_dense).lower()}",
                    f"    is_used: {str(slot.is_used).lower()}",
                ]
                lines.append("  }")
            lines.append("}")
        lines.append(f"pipe_command: {_quoted(self.pipe_command)}")
        if self.thread_num:
            lines.append(f"thread_num: {self.thread_num}")
        return "\n".join(lines) + "\n"


def parse_description(text: str, what: str) -> Description:
    """Parse a DataFeedDesc in text format; fields of later versions are ignored.

    Args:
        what: name of the description's source, for error messages.

    Raises:
        ModelFileError: the description is malformed, or a slot has no name or an unknown type.
    """
    fields = _Parser(text, what).message("")
    slots = [
        slot
        for described in fields.get("multi_slot_desc", [])
        for slot in (_slot(each, what) for each in described.get("slots", []))
    ]
    description = Description(slots=slots)
    for name, kind in (("name", str), ("batch_size", int), ("pipe_command", str), ("thread_num", int)):
        if name in fields:
            setattr(description, name, _last(fields, name, kind, what))
    if description.batch_size < 1:
        raise ModelFileError(f"{what}: batch_size: expected at least 1, got {description.batch_size}")
    return description


def _slot(fields: Mapping[str, Sequence[Any]], what: str) -> Slot:
    for name in ("name", "type"):
        if name not in fields:
            raise ModelFileError(f"{what}: a slot has no {name}")
    name, kind = _last(fields, "name", str, what), _last(fields, "type", str, what)
    if kind not in {each.value for each in SlotType} | {"uint32", "int64"}:
        raise ModelFileError(f"{what}: slot {name!r}: expected the type uint64 or float, got {kind!r}")
    return Slot(
        name,
        SlotType.FLOAT if kind == "float" else SlotType.UINT64,
        "is_dense" in fields and _last(fields, "is_dense", bool, what),
        "is_used" in fields and _last(fields, "is_used", bool, what),
        (-1,),
    )


def _last(fields: Mapping[str, Sequence[Any]], name: str, kind: type, what: str) -> Any:
    value = fields[name][-1]
    try:
        if kind is bool:
            return _BOOLS[value]
        if kind is int:
            return int(value, 0)
        if isinstance(value, _Text):
            return str(value)
    except (KeyError, ValueError, TypeError):
        pass
    raise ModelFileError(f"{what}: {name}: expected {_KINDS[kind]}, got {value!r:.40}")


_KINDS = {bool: "true or false", int: "an integer", str: "a quoted string"}


class _Text(str):
    """A quoted string."""

    __slots__ = ()


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(char, char) for char in text) + '"'


class _Parser:
    """Reads messages: `name: value`, `name { ... }` and `name: [a, b]`."""

    def __init__(self, text: str, what: str) -> None:
        self._what = what
        self._tokens = self._scan(text)
        self._next: tuple[int, str, str] = (1, "end", "")
        self._advance()

    def message(self, closing: str, depth: int = 0) -> dict[str, list[Any]]:
        """Return the fields up to a closing bracket: name -> its values."""
        if depth > 10:
            raise self._error("at most ten levels of nested messages")
        found: dict[str, list[Any]] = {}
        while self._next[2] != closing or self._next[1] == "text":
            _, kind, name = self._next
            if kind != "name":
                raise self._error("the name of a field")
            self._advance()
            colon = self._taken(":")
            values = found.setdefault(name, [])
            if self._taken("{"):
                values.append(self.message("}", depth + 1))
                self._advance()
            elif self._taken("<"):
                values.append(self.message(">", depth + 1))
                self._advance()
            elif not colon:
                raise self._error(f"`:` or `{{` after {name!r}")
            elif self._taken("["):
                while not self._taken("]"):
                    values.append(self._value())
                    self._taken(",")
            else:
                values.append(self._value())
            while self._taken(",") or self._taken(";"):
                pass
        return found

    def _value(self) -> str:
        sign = "-" if self._taken("-") else ""
        _, kind, text = self._next
        if kind == "text":
            parts = []
            while self._next[1] == "text":
                parts.append(self._next[2])
                self._advance()
            return _Text("".join(parts))
        if kind != "name":
            raise self._error("a value")
        self._advance()
        return sign + text

    def _taken(self, sign: str) -> bool:
        if self._next[1:] != ("sign", sign):
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        self._next = next(self._tokens)

    def _scan(self, text: str) -> Iterator[tuple[int, str, str]]:
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ModelFileError(
                    f"{self._what}, line {line}: expected a field, got {text[at : at + 20]!r}"
                )
            kind, token = match.lastgroup, match.group()
            if kind is not None:
                try:
                    yield line, kind, _unquoted(token) if kind == "text" else token
                except UnicodeDecodeError as error:
                    raise ModelFileError(f"{self._what}, line {line}: {token:.40} is not UTF-8") from error
            line += token.count("\n")
            at = match.end()
        while True:
            yield line, "end", ""

    def _error(self, expected: str) -> ModelFileError:
        line, kind, text = self._next
        got = "the end" if kind == "end" else repr(text[:40])
        return ModelFileError(f"{self._what}, line {line}: expected {expected}, got {got}")


def _unquoted(text: str) -> str:
    """Return the value of a quoted string, in which bytes of UTF-8 can be octal or hexadecimal escapes."""
    return _ESCAPED.sub(_escaped, text[1:-1].encode()).decode()


def _escaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, char = found.groups()
    if char is None:
        return bytes((int(octal, 8) & 0xFF if octal else int(hexadecimal, 16),))
    return {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(char, char)
