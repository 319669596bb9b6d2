# SPDX-License-Identifier: Apache-2.0
"""The operator table: the slots, attributes with defaults, kernel, shape rule and gradient of each operator.

A kernel is a plain function. Its positional arguments are the arrays of the input slots, in order: a list for a slot
marked `*`, and None for an absent slot marked `?`. Attributes are keywords (`lambda_` for `lambda`), whose defaults are
those of the attributes; the decorator lists all others. It returns the arrays of the output slots, in order, or the
array itself if there is one slot. A kernel never changes an input array unless it is `spent`. It may return an input or
a view of it, unless it is registered as `fresh`.

A kernel may also declare these keywords:

    attrs    all attributes by name
    rng      a random generator for this operator and step
    xp       the array library, for kernels without an input array to derive it from
    needs    the frozenset of output slots that are read: the kernel may return None for the others
    names    the variable names of each slot
    spent    the frozenset of input slots whose arrays are not read afterwards and can store the result
    room     a function from an output slot to an array for the result, or None
    body     the block that the attribute `sub_block` refers to, as an `ops.base.body.Body`
    remote   the executor's connection to other processes, as an `ops.base.body.Remote`, or None
    runs     an iterator over the numbers, from 0, of the runs of this operator that advance it

Where the value has sequences, a slot marked `+` gets a `LoDArray`, and its operator sets the LoD of the outputs itself.
All others get plain arrays, and their outputs share the LoD of the first input that has one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from types import MappingProxyType
from typing import Any

from paddle.errors import did_you_mean
from paddle.ops.base import families
from paddle.ops.base.attributes import COMMON_ATTRS, IDLE_ATTRS, Limit, canonical, idle_value
from paddle.ops.base.errors import AttrError, OpError, UnknownOpError
from paddle.ops.base.shape_rule import Spec as Spec
from paddle.ops.base.shape_rule import shape_rule
from paddle_node.contract.classes import NamedTuple, dataclass, field, replace

GRAD = "@GRAD"

Names = Mapping[str, Sequence[str]]
"""Slot -> names of variables."""

NO_SLOTS: frozenset[str] = frozenset()
_SPECIAL = frozenset({"attrs", "rng", "xp", "needs", "names", "spent", "room", "body", "remote", "runs"})


class Slot(NamedTuple):
    """An input or output slot, written `Name` with `*` if a list, `?` if optional, `~` if internal, `+` if LoD."""

    name: str
    many: bool = False
    optional: bool = False
    intermediate: bool = False
    lod: bool = False


class LiteralName(str):
    """A variable name in a `GradOp` that is used as is, even if it ends with @GRAD."""


@dataclass(frozen=True)
class GradOp:
    """An operator to append in a backward pass, in which `name@GRAD` stands for the gradient of a variable.

    The variables that gradient operators themselves read and write are named by `LiteralName`.
    """

    type: str
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    attrs: Mapping[str, object]


@dataclass(frozen=True)
class OpDef:
    """An entry of the operator table: the definition of one operator type.

    Attributes:
        in_place: output slot -> input slot whose array the kernel changes and returns. If the slots have different
            variables, the kernel gets a copy.
        has_effect: whether it has side effects, and therefore runs even if its outputs are never read.
        fresh: whether its outputs share no memory with each other or with its inputs, except spent ones.
        overwrites: whether it sets all outputs, possibly in the arrays that the scope has for them.
    """

    type: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attrs: Mapping[str, object]
    kernel: Callable[..., Any]
    infer: Callable[..., Any] | None
    keywords: frozenset[str]
    infer_keywords: frozenset[str]
    shares_lod: bool | Callable[[Mapping[str, Any], int], bool] = True
    in_place: Mapping[str, str] = field(default_factory=dict)
    has_effect: bool = False
    fresh: bool = False
    overwrites: bool = False
    gradient: str | Callable[..., list[GradOp]] | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)

    @property
    def lod_aware(self) -> bool:
        """Return whether the kernel takes or returns values with LoD."""
        return any(slot.lod for slot in (*self.inputs, *self.outputs))

    @property
    def is_random(self) -> bool:
        """Return whether the kernel draws random numbers."""
        return "rng" in self.keywords

    def input(self, name: str) -> Slot | None:
        """Return the input slot with this name, or None."""
        return next((slot for slot in self.inputs if slot.name == name), None)

    def complete(self, given: Mapping[str, object]) -> dict[str, object]:
        """Check attributes, fill in defaults, and convert all values to their canonical types.

        Raises:
            AttrError: a name is unknown, a required attribute is missing, a value has the wrong type or is outside its
                limits, or an attribute that this implementation lacks would change the results.
        """
        allowed = {**self.attrs, **COMMON_ATTRS}
        idle = {name: value for name, value in given.items() if name in IDLE_ATTRS and name not in allowed}
        for name in given:
            if name not in allowed and name not in idle:
                listed = f"; its attributes are {', '.join(sorted(self.attrs)) or 'none'}"
                hint = did_you_mean(name, [*allowed, *IDLE_ATTRS]) or listed
                raise AttrError(f"operator {self.type!r} has no attribute {name!r}{hint}")
        result: dict[str, object] = {}
        for name, default in self.attrs.items():
            if name in given:
                result[name] = canonical(self.type, name, given[name], default, self.limits.get(name))
            elif isinstance(default, type):
                raise AttrError(f"operator {self.type!r} needs the attribute {name!r} ({default.__name__})")
            else:
                result[name] = default
        result.update((name, given[name]) for name in COMMON_ATTRS if name in given)
        result.update((name, idle_value(self.type, name, value)) for name, value in idle.items())
        return result


_TABLE: dict[str, OpDef] = {}
_complete: set[str] = set()  # types whose modules are loaded, and those of their gradients


def operator(
    op_type: str,
    signature: str,
    *,
    attrs: Mapping[str, object] | None = None,
    infer: Callable[..., Any] | str | None = None,
    shares_lod: bool | Callable[[Mapping[str, Any], int], bool] = True,
    in_place: Mapping[str, str] | None = None,
    has_effect: bool = False,
    fresh: bool = False,
    overwrites: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated kernel as an operator.

    Args:
        signature: the slots, as `X Bias? -> Out Mask~`.
        attrs: attribute -> default, or -> type if the attribute is required, or -> `Limit`; lists are given as tuples.
            Keywords of the kernel with a default need no entry.
        infer: a shape rule as text, see `shape_rule`; or a function from the `Spec`s of the inputs, and attributes as
            keywords, to the `Spec`s of the outputs, called like the kernel. None means outputs that are all `in_place`
            have the specs of those inputs; otherwise the code that appends the operator declares them.
        shares_lod: whether outputs with as many rows as the first input that has LoD share that LoD; or a function
            from the attributes and that input's rank to that. False for an output that is never one row per input row.
        in_place: see `OpDef`.
        has_effect: see `OpDef`.
        fresh: see `OpDef`.
        overwrites: see `OpDef`.
    """
    inputs, outputs = _parse(signature)
    limits = {name: each for name, each in (attrs or {}).items() if isinstance(each, Limit)}
    listed = {**(attrs or {}), **{name: each.default for name, each in limits.items()}}
    if infer is None and in_place and all(slot.name in in_place for slot in outputs):
        infer = ", ".join(in_place[slot.name] for slot in outputs)
    rule = shape_rule([slot.name for slot in inputs], infer) if isinstance(infer, str) else infer

    def add(kernel: Callable[..., Any]) -> Callable[..., Any]:
        if op_type in _TABLE:
            raise OpError(f"operator {op_type!r} is registered twice")
        defaults = inspect.unwrap(kernel).__kwdefaults__ or {}
        own = {attribute_of(name): value for name, value in defaults.items() if name not in _SPECIAL}
        table_attrs = MappingProxyType({**listed, **own, **listed})
        keywords = _keywords(op_type, kernel, table_attrs)
        infer_keywords = _keywords(op_type, rule, table_attrs) if rule else frozenset()
        _TABLE[op_type] = OpDef(
            op_type,
            inputs,
            outputs,
            table_attrs,
            kernel,
            rule,
            keywords,
            infer_keywords,
            shares_lod,
            MappingProxyType(dict(in_place or {})),
            has_effect,
            fresh,
            overwrites,
            limits=limits,
        )
        return kernel

    return add


def gradient(
    op_type: str, signature: str, *, fresh: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated kernel as `<type>_grad`, with the operator's attributes, as its gradient.

    Args:
        op_type: the forward operator, registered before.
        signature: slots of the forward operator and their gradients, such as `X Y Out@GRAD -> X@GRAD Y@GRAD`. A
            gradient input marked `?` may be absent; otherwise a missing one is filled with zeros.
        fresh: see `OpDef`.
    """
    forward = registered_so_far(op_type)

    def add(kernel: Callable[..., Any]) -> Callable[..., Any]:
        operator(f"{op_type}_grad", signature, attrs=forward.attrs, shares_lod=False, fresh=fresh)(kernel)
        _TABLE[op_type] = replace(forward, gradient=f"{op_type}_grad")
        return kernel

    return add


def gradient_maker(op_type: str) -> Callable[[Callable[..., list[GradOp]]], Callable[..., list[GradOp]]]:
    """Register the decorated function, which expresses the gradient of an operator by other operators.

    The function is called with (inputs, outputs, attrs) of the forward operator, slot -> names, and returns the
    operators to append. A maker with the keyword `bodies`, for an operator with a body, is passed an object that
    differentiates blocks: see `graph.grad_builder.BodyGradients`.
    """

    def add(maker: Callable[..., list[GradOp]]) -> Callable[..., list[GradOp]]:
        _TABLE[op_type] = replace(registered_so_far(op_type), gradient=maker)
        return maker

    return add


def lookup(op_type: str) -> OpDef:
    """Return the table entry of an operator; modules that may register it are imported.

    Raises:
        UnknownOpError: no operator of that type is registered.
    """
    found = find(op_type)
    if found is None:
        raise UnknownOpError(f"operator {op_type!r} has not been registered{did_you_mean(op_type, _TABLE)}")
    return found


def registered_so_far(op_type: str) -> OpDef:
    """Return an operator's table entry, without a search if a loaded module has registered it; see `lookup`."""
    return _TABLE.get(op_type) or lookup(op_type)


def find(op_type: str) -> OpDef | None:
    """Return the entry of an operator, or None."""
    if op_type not in _complete:
        families.load(op_type, _TABLE)
        if op_type in _TABLE:
            _complete.add(op_type)
    return _TABLE.get(op_type)


def attribute_of(keyword: str) -> str:
    """Return the name of the attribute for a kernel's keyword, which ends in `_` if the name is reserved in Python."""
    return keyword[:-1] if keyword.endswith("_") and iskeyword(keyword[:-1]) else keyword


def registered() -> tuple[str, ...]:
    """Return all operator types, sorted."""
    families.load_all()
    return tuple(sorted(_TABLE))


def _parse(signature: str) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    left, _, right = signature.partition("->")
    return tuple(map(_slot, left.split())), tuple(map(_slot, right.split()))


def _slot(text: str) -> Slot:
    return Slot(
        text.rstrip("*?~+"), many="*" in text, optional="?" in text, intermediate="~" in text, lod="+" in text
    )


def _keywords(op_type: str, function: Callable[..., Any], attrs: Mapping[str, object]) -> frozenset[str]:
    if hasattr(function, "__signature__"):
        parameters = inspect.signature(function).parameters.values()
        names = frozenset(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)
    else:  # a shortcut for a plain function; inspect.signature would take a tenth of `import paddle.fluid`
        code = inspect.unwrap(function).__code__
        names = frozenset(code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount])
    unknown = {attribute_of(name) for name in names} - set(attrs) - _SPECIAL
    if unknown:
        raise OpError(
            f"operator {op_type!r}: its function has parameters that are not attributes: {sorted(unknown)}"
        )
    return names
