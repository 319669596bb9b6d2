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
from typing import TYPE_CHECKING, Any, Dict, Iterable, Optional, Tuple

_WRONG = "{}: missing, unknown or repeated arguments: {}"

if TYPE_CHECKING:
    import re
    from contextlib import suppress as suppress
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
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

    def __getattr__(name: str) -> Any:
        if name not in ("asdict", "dataclass", "field", "fields", "replace"):
            raise AttributeError(name)
        from paddle_node.contract import light_dataclasses  # agents have no dataclasses

        found = globals()[name] = getattr(light_dataclasses, name)
        return found
