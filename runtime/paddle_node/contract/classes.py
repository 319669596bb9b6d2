# SPDX-License-Identifier: Apache-2.0
"""`NamedTuple` and `dataclass` like the standard library's, for classes that cost almost nothing to define.

The standard ones compile functions for every class. A process imports the records of a hundred messages and creates
a tenth of them: a NamedTuple's constructor is compiled, by the standard library, when the first record is created, and
dataclasses share their methods. Nodes have no dataclasses, whose library takes longer than all records.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, NoReturn, Optional, Tuple

if TYPE_CHECKING:
    import dataclasses
    from dataclasses import dataclass as dataclass
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
        """Base of records."""

        __slots__ = ()
        _fields = None

        def __new__(cls, *given: Any, **named: Any) -> Any:
            """Create the first record, and the constructor of later ones."""
            home = next(one for one in cls.__mro__ if one.__dict__.get("_fields") is not None)
            defaults = home._field_defaults.values()
            made = namedtuple(home.__name__, home._fields, defaults=defaults, module=home.__module__)
            home.__new__ = staticmethod(made.__new__)
            return made.__new__(cls, *given, **named)

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
        """Make a class a record; its fields are compared, and hashed if it is frozen."""
        return (lambda cls: _made(cls, frozen, kw_only)) if cls is None else _made(cls, frozen, kw_only)


def _made(cls: type, frozen: bool, kw_only: bool) -> type:
    import dataclasses

    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    fields = dataclasses.fields(made)
    key = _key([field.name for field in fields if field.compare])
    methods: Dict[str, Any] = {"__init__": _init(made.__match_args__, fields), "__repr__": _repr}
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
    return cls


def _key(names: List[str]) -> Callable[[object], object]:
    return attrgetter(*names) if names else lambda _: ()


def _init(names: Tuple[str, ...], fields: Tuple[dataclasses.Field[Any], ...]) -> Callable[..., None]:
    import dataclasses

    missing = dataclasses.MISSING
    plain = {one.name: one.default for one in fields if one.default is not missing}
    made = {one.name: one.default_factory for one in fields if one.default_factory is not missing}
    needed = {one.name for one in fields if one.init} | plain.keys() | made.keys()

    def init(self: Any, /, *args: Any, **given: Any) -> None:
        values = {**plain, **dict(zip(names, args, strict=False)), **given}
        for name, make in made.items():
            if name not in values:
                values[name] = make()
        if (
            values.keys() != needed
            or len(args) > len(names)
            or not given.keys().isdisjoint(names[: len(args)])
        ):
            wrong = sorted(values.keys() ^ needed) or sorted(given)
            raise TypeError(f"{type(self).__name__}: missing, unknown or given twice: {', '.join(wrong)}")
        vars(self).update(values)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    return init


def _repr(self: Any) -> str:
    import dataclasses

    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    import dataclasses

    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
