# SPDX-License-Identifier: Apache-2.0
"""Replacements of the standard library's `NamedTuple`, `dataclass` and `regex` that cost little to define.

The standard library compiles functions for every class, but a process that imports the records of a hundred messages
creates only a tenth of them. Here, all NamedTuples share their methods, and so do all dataclasses. Importing the
standard `dataclasses` takes longer than defining all records, so it is imported only by calls of its functions, which
accept these classes. A regular expression is compiled when it is first used. `suppress` replaces that of `contextlib`
in agents, whose bytecode omits the modules that `contextlib` imports.
"""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, NoReturn, Optional, Tuple

if TYPE_CHECKING:
    import re
    from contextlib import suppress as suppress
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace

    regex = re.compile
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter

    class _Meta(type):
        """Turns a class's annotations into fields; a class with another base is an ordinary class."""

        def __new__(cls, name: str, bases: Tuple[type, ...], body: Dict[str, Any]) -> type:
            if not bases or bases[0].__dict__.get("_fields") is not None:
                return type.__new__(cls, name, bases, body)
            fields = tuple(map(sys.intern, body.get("__annotations__", ())))
            defaults = {each: body.pop(each) for each in fields if each in body}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default follows one that has one")
            getters = {
                each: _tuplegetter(at, f"Alias for field number {at}") for at, each in enumerate(fields)
            }
            made = {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields, "__slots__": ()}
            return type.__new__(cls, name, bases, {**made, **getters, **body})

    class NamedTuple(tuple, metaclass=_Meta):
        """The base class of records."""

        __slots__ = ()
        _fields = None

        def __new__(cls, *given: Any, **named: Any) -> Any:
            """Create a record from values in the order of the fields, and from named ones."""
            library = sys.modules.get("collections")
            if library is not None:  # the constructor of later records is faster; agents do without it
                home = next(one for one in cls.__mro__ if one.__dict__.get("_fields") is not None)
                defaults = home._field_defaults.values()
                made = library.namedtuple(
                    home.__name__, home._fields, defaults=defaults, module=home.__module__
                )
                home.__new__ = staticmethod(made.__new__)
                return made.__new__(cls, *given, **named)
            fields = cls._fields
            count = len(given) - len(fields)
            if count == 0 and not named:
                return tuple.__new__(cls, given)
            ends = tuple(cls._field_defaults.values())
            if not named and -len(ends) <= count < 0:
                return tuple.__new__(cls, given + ends[count:])
            values = {**cls._field_defaults, **dict(zip(fields, given)), **named}  # noqa: B905 - Python 3.8
            is_repeated = count > 0 or not named.keys().isdisjoint(fields[: len(given)])
            if is_repeated or values.keys() != set(fields):
                wrong = sorted(values.keys() ^ set(fields)) or sorted(named)
                raise TypeError(_WRONG.format(cls.__name__, ", ".join(wrong)))
            return tuple.__new__(cls, map(values.__getitem__, fields))

        @classmethod
        def _make(cls, values: Iterable[Any]) -> Any:
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, **named: Any) -> Any:
            made = self._make(map(named.pop, self._fields, self))
            if named:
                raise ValueError(f"Got unexpected field names: {list(named)!r}")
            return made

        def _asdict(self) -> Dict[str, Any]:
            return dict(zip(self._fields, self))  # noqa: B905 - Python 3.8 has no strict=

        def __repr__(self) -> str:
            shown = ", ".join(map("{}={!r}".format, self._fields, self))
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self) -> Tuple[Any, ...]:
            return tuple(self)

    def dataclass(cls: Optional[type] = None, /, *, frozen: bool = False, kw_only: bool = False) -> Any:
        """Turn a class into a record: instances are compared by their fields, and also hashed by them if frozen."""
        return (lambda cls: _made(cls, frozen, kw_only)) if cls is None else _made(cls, frozen, kw_only)

    class regex:  # noqa: N801 - used as the function `re.compile`
        """A regular expression that is compiled when it is first used."""

        def __init__(self, text: Any, flags: int = 0) -> None:
            self._given = text, flags

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            import re  # most agents use none

            compiled = re.compile(*self._given)
            for each in ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"):
                setattr(self, each, getattr(compiled, each))
            return getattr(compiled, name)

    class suppress:  # noqa: N801 - used as `contextlib.suppress`
        """A context manager that suppresses the given exceptions, like `contextlib.suppress`."""

        def __init__(self, *kinds: type) -> None:
            self._kinds = kinds

        def __enter__(self) -> None: ...

        def __exit__(self, kind: Optional[type], *_: object) -> bool:
            return kind is not None and issubclass(kind, self._kinds)

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


_MISSING: Any = object()
_WRONG = "{}: missing, unknown or repeated arguments: {}"


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
