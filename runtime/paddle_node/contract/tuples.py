# SPDX-License-Identifier: Apache-2.0
"""`NamedTuple` that costs next to nothing until it is used: the standard one compiles code for every class and field.

A process imports the records of a hundred messages and makes a tenth of them. A class here has all that one of
`typing.NamedTuple` has; its constructor is compiled by the standard library when the first record is made.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import TYPE_CHECKING, Any, Dict, Iterable, Tuple

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter

    class _Meta(type):
        """Makes a class whose annotations are its fields; one with another base is a plain class."""

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
            """Make the first record, and the constructor of those after it."""
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
