# SPDX-License-Identifier: Apache-2.0
"""A replacement of the standard library's `dataclass`, which `classes` exports; agents do not import it.

Importing the standard `dataclasses` takes longer than defining all records of a launcher or a trainer, so it is
imported only by calls of its functions, which accept these classes. The standard decorator compiles six functions per
class. Here, all classes share their methods, and only the constructor of a class with many instances is compiled.
"""

from __future__ import annotations

from operator import attrgetter
from types import MethodType, SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Tuple


class _Missing:
    """The default of an argument whose real default is created for each call."""

    def __repr__(self) -> str:
        return "<factory>"


_MISSING: Any = _Missing()
_FEW = 3  # instances, whose creation takes less time than compiling a constructor

_set = object.__setattr__


def dataclass(
    cls: Optional[type] = None,
    /,
    *,
    frozen: bool = False,
    kw_only: bool = False,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    slots: bool = False,
) -> Any:
    """Turn a class into a record; the arguments are those of the standard function."""
    options = (frozen, kw_only, init, repr, eq, slots)
    return (lambda cls: _made(cls, *options)) if cls is None else _made(cls, *options)


def field(**given: Any) -> Any:
    """Describe a field by arguments of the standard function; see `Field`."""
    return Field(**given)


def fields(one: Any) -> Tuple[Field, ...]:
    """Return the fields of a record or of its class, in order."""
    return tuple(one.__fields__.values())


def asdict(one: Any) -> Dict[str, Any]:
    """Return a record, and the records in it, as dictionaries, by the standard function."""
    import dataclasses

    return dataclasses.asdict(one)


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

    __slots__ = (
        "compare",
        "default",
        "default_factory",
        "init",
        "kw_only",
        "metadata",
        "name",
        "repr",
        "type",
    )

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        kw_only: bool = False,
        metadata: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare, self.kw_only = init, repr, compare, kw_only
        self.metadata = {} if metadata is None else metadata
        self.name = self.type = ""  # `type`: the text of its annotation

    @property
    def has_default(self) -> bool:
        """Return whether the field has a default, so that a record can be created without its value."""
        return self.default is not _MISSING or self.default_factory is not _MISSING


class _Standard:
    """The fields in the form that the standard library's functions expect, created on first use."""

    def __get__(self, one: object, cls: Any) -> Dict[str, Any]:
        import dataclasses

        def standard(member: Field) -> Any:
            names = ("default", "default_factory", "init", "repr", "compare", "kw_only", "metadata")
            given = {name: getattr(member, name) for name in names if getattr(member, name) is not _MISSING}
            return dataclasses.field(**given)

        members = [(name, object, standard(member)) for name, member in cls.__fields__.items()]
        made: Any = dataclasses.make_dataclass(cls.__name__, members, init=False, repr=False, eq=False)
        standard_fields: Dict[str, Any] = made.__dataclass_fields__
        cls.__dataclass_fields__ = standard_fields
        return standard_fields


class _Signature:
    """The signature of a class's constructor for `inspect`, created on first use."""

    def __get__(self, one: object, cls: Any) -> Any:
        if one is not None:  # an instance that can be called
            raise AttributeError("__signature__")
        import inspect

        whole = inspect.signature(cls.__init__)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


def _made(cls: Any, frozen: bool, kw_only: bool, init: bool, repr: bool, eq: bool, slots: bool) -> type:
    members: Dict[str, Field] = dict(getattr(cls, "__fields__", {}))
    names = () if kw_only else tuple(getattr(cls, "__match_args__", ()))
    own = {
        name: text for name, text in vars(cls).get("__annotations__", {}).items() if "ClassVar[" not in text
    }
    for name, text in own.items():
        given = vars(cls).get(name, _MISSING)
        member = members[name] = given if isinstance(given, Field) else Field(default=given)
        member.name, member.type = name, text
        if member.default is not _MISSING and not slots:
            setattr(cls, name, member.default)
        elif given is not _MISSING:
            delattr(cls, name)
    if slots:
        cls = _with_slots(cls, own)
    cls.__fields__, cls.__dataclass_fields__, cls.__signature__ = members, _Standard(), _Signature()
    # The standard decorator reads this from the base classes of a user's dataclass.
    cls.__dataclass_params__ = SimpleNamespace(frozen=frozen)
    if not kw_only:
        names += tuple(
            one for one in own if members[one].init and not members[one].kw_only and one not in names
        )
    cls.__match_args__ = names  # type: ignore[misc]
    key = _key([name for name, member in members.items() if member.compare])
    methods: Dict[str, Any] = {}
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods["__eq__"] = lambda self, other: (
            key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented
        )
        methods["__hash__"] = (lambda self: hash(key(self))) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in vars(cls) or vars(cls)[name] is None:
            setattr(cls, name, method)
    if init and "__init__" not in vars(cls):
        cls.__init__ = _Constructor(cls, names, members)
    return cls  # type: ignore[no-any-return]


def _with_slots(cls: Any, names: Mapping[str, str]) -> Any:
    """Return a copy of a class whose instances have only the given attributes, in addition to inherited ones."""
    body = {name: each for name, each in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    body["__slots__"] = tuple(name for name in names if not hasattr(cls, name))
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _key(names: List[str]) -> Callable[[object], object]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


class _Constructor:
    """The constructor of a class; it is compiled if it is used often, or accessed through the class."""

    def __init__(self, cls: Any, names: Tuple[str, ...], members: Dict[str, Field]) -> None:
        self._cls, self._names, self._members = cls, names, members
        self._plain = {name: each.default for name, each in members.items() if each.default is not _MISSING}
        self._made = {
            name: each.default_factory
            for name, each in members.items()
            if each.default_factory is not _MISSING
        }
        self._needed = {name for name, each in members.items() if each.init or each.has_default}
        self._refused = {name for name, each in members.items() if not each.init}
        self._put = _set if cls.__setattr__ is _refuse else setattr
        self._count = 0

    def __get__(self, one: Any, cls: Any) -> Callable[..., None]:
        return self._compile() if one is None else MethodType(self._create, one)

    def _create(self, one: Any, /, *args: Any, **given: Any) -> None:
        names = self._names
        values = {**self._plain, **dict(zip(names, args, strict=False)), **given}
        for name, make in self._made.items():
            if name not in values:
                values[name] = make()
        self._count += 1
        if (
            self._count > _FEW
            or values.keys() != self._needed
            or not self._refused.isdisjoint(given)
            or len(args) > len(names)
            or not given.keys().isdisjoint(names[: len(args)])
        ):
            self._compile()(one, *args, **given)  # if the arguments do not fit, Python's error says why
            return
        for name, each in values.items():
            self._put(one, name, each)
        if hasattr(type(one), "__post_init__"):
            one.__post_init__()

    def _compile(self) -> Callable[..., None]:
        compiled = _compiled(self._cls, self._names, self._members)
        if vars(self._cls).get("__init__") is self:
            self._cls.__init__ = compiled
        return compiled


def _compiled(cls: Any, names: Tuple[str, ...], members: Dict[str, Field]) -> Callable[..., None]:
    """Return the same constructor as a function of its own, which is created slowly and runs fast."""
    frozen = cls.__setattr__ is _refuse
    known: Dict[str, Any] = {"_set": _set, "_MISSING": _MISSING}
    taken: Dict[str, str] = {}
    lines: List[str] = []
    for name, member in members.items():
        value = name
        if member.default_factory is not _MISSING:
            known[f"_make_{name}"] = member.default_factory
            value = f"_make_{name}() if {name} is _MISSING else {name}" if member.init else f"_make_{name}()"
            default = " = _MISSING"
        elif member.default is not _MISSING:
            known[f"_default_{name}"] = member.default
            value, default = (name if member.init else f"_default_{name}"), f" = _default_{name}"
        elif not member.init:
            continue
        else:
            default = ""
        if member.init:
            taken[name] = name + default
        lines.append(f"    _set(self, {name!r}, {value})" if frozen else f"    self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    named = [text for name, text in taken.items() if name not in names]
    head = ", ".join(["self", *map(taken.__getitem__, names), *(["*", *named] if named else [])])
    made: Dict[str, Any] = {}
    exec(f"def __init__({head}):\n" + "\n".join(lines or ["    pass"]), known, made)  # noqa: S102 - names of fields
    init: Callable[..., None] = made["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {name: members[name].type for name in taken}
    return init


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, member in self.__fields__.items() if member.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _state(self: Any) -> List[Any]:
    return [getattr(self, name) for name in self.__fields__]


def _set_state(self: Any, state: List[Any]) -> None:
    for name, each in zip(self.__fields__, state, strict=True):
        _set(self, name, each)


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    import dataclasses

    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
