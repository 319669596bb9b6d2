# SPDX-License-Identifier: Apache-2.0
"""A replacement of the standard library's `dataclass`, which `classes` exports; agents do not import it.

Importing the standard `dataclasses` takes longer than defining all records of a launcher, so it is imported only by
calls of its functions, which accept these classes.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

_MISSING: Any = object()
_WRONG = "{}: missing, unknown or repeated arguments: {}"


def dataclass(cls: Optional[type] = None, /, *, frozen: bool = False, kw_only: bool = False) -> Any:
    """Turn a class into a record: instances are compared by their fields, and also hashed by them if frozen."""
    return (lambda cls: _made(cls, frozen, kw_only)) if cls is None else _made(cls, frozen, kw_only)


def field(**given: Any) -> Any:
    """Describe a field by arguments of the standard function: default, default_factory, init, repr, compare."""
    return Field(**given)


def replace(one: Any, /, **changes: Any) -> Any:
    """Return a copy of a record with some fields replaced."""
    for name, member in one.__fields__.items():
        if member.init and name not in changes:
            changes[name] = getattr(one, name)
        elif not member.init and name in changes:
            raise ValueError(
                f"{type(one).__name__}: replace() cannot set {name}: it is not an argument of the class"
            )
    return type(one)(**changes)


class Field:
    """A field of a dataclass, with the same attributes as `dataclasses.Field`."""

    __slots__ = ("compare", "default", "default_factory", "init", "repr", "type")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
    ) -> None:
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare = init, repr, compare
        self.type = ""  # the text of its annotation

    @property
    def has_default(self) -> bool:
        """Return whether the field has a default, so that a record can be created without its value."""
        return self.default is not _MISSING or self.default_factory is not _MISSING


class _Standard:
    """The fields in the form that the standard library's functions expect, created on first use."""

    def __get__(self, one: object, cls: Any) -> Dict[str, Any]:
        import dataclasses

        def standard(member: Field) -> Any:
            names = ("default", "default_factory", "init", "repr", "compare")
            given = {name: getattr(member, name) for name in names if getattr(member, name) is not _MISSING}
            return dataclasses.field(**given)

        members = [(name, object, standard(member)) for name, member in cls.__fields__.items()]
        made: Any = dataclasses.make_dataclass(
            cls.__name__, members, init=False, repr=False, eq=False, kw_only=True
        )
        fields: Dict[str, Any] = made.__dataclass_fields__
        cls.__dataclass_fields__ = fields
        return fields


def _made(cls: Any, frozen: bool, kw_only: bool) -> type:
    members: Dict[str, Field] = dict(getattr(cls, "__fields__", {}))
    names = () if kw_only else tuple(getattr(cls, "__match_args__", ()))
    own = {
        name: text for name, text in vars(cls).get("__annotations__", {}).items() if "ClassVar[" not in text
    }
    for name, text in own.items():
        given = vars(cls).get(name, _MISSING)
        members[name] = given if isinstance(given, Field) else Field(default=given)
        members[name].type = text
        if members[name].default is not _MISSING:
            setattr(cls, name, members[name].default)
        elif given is not _MISSING:
            delattr(cls, name)
    cls.__fields__, cls.__dataclass_fields__ = members, _Standard()
    if not kw_only:
        names += tuple(one for one in own if members[one].init and one not in names)
    cls.__match_args__ = names  # type: ignore[misc]
    key = _key([name for name, member in members.items() if member.compare])
    methods: Dict[str, Any] = {"__init__": _init(names, members), "__repr__": _repr}
    methods |= {
        "__eq__": lambda self, other: (
            key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented
        )
    }
    if frozen:
        methods |= {"__hash__": lambda self: hash(key(self)), "__setattr__": _refuse, "__delattr__": _refuse}
    else:
        methods["__hash__"] = None
    for name, method in methods.items():
        if name not in vars(cls) or vars(cls)[name] is None:
            setattr(cls, name, method)
    return cls  # type: ignore[no-any-return]


def _key(names: List[str]) -> Callable[[object], object]:
    return attrgetter(*names) if names else lambda _: ()


def _init(names: Tuple[str, ...], members: Dict[str, Field]) -> Callable[..., None]:
    plain = {name: member.default for name, member in members.items() if member.default is not _MISSING}
    made = {
        name: member.default_factory
        for name, member in members.items()
        if member.default_factory is not _MISSING
    }
    needed = {name for name, member in members.items() if member.init or member.has_default}
    refused = {name for name, member in members.items() if not member.init}

    def init(self: Any, /, *args: Any, **given: Any) -> None:
        values = {**plain, **dict(zip(names, args, strict=False)), **given}
        for name, make in made.items():
            if name not in values:
                values[name] = make()
        if (
            values.keys() != needed
            or not refused.isdisjoint(given)
            or len(args) > len(names)
            or not given.keys().isdisjoint(names[: len(args)])
        ):
            wrong = sorted(values.keys() ^ needed) or sorted(given)
            raise TypeError(_WRONG.format(type(self).__name__, ", ".join(wrong)))
        vars(self).update(values)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    return init


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, member in self.__fields__.items() if member.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    import dataclasses

    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
