# SPDX-License-Identifier: Apache-2.0
"""Shape rules as text: the sizes that the inputs of an operator must have, and the specs of its outputs.

    X(N, C * groups, ...), Index(N, 1) -> X(N, C, ...), int64(N, 1, lod=1)

A name in brackets is an attribute or else a size. Sizes, and the dimensions of `...`, are the same wherever they occur.
`_` is any size, and `*shape` all numbers of an attribute. A new name at the start of a product is the size divided by
the other factors, without remainder. Optional inputs may be absent; all items of a list must match.

An output begins with the input whose dtype and LoD level it has, or with a dtype or an attribute that holds one; it
then has no LoD, unless `lod=` gives a level or an input with that level. An input's name without brackets is its whole
spec. -1 is an unknown size: it agrees with any, and sizes that depend on it are unknown.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.shapes import agree, known
from paddle_node.contract.classes import NamedTuple

_ARITHMETIC: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"len": len, "max": max}


class Spec(NamedTuple):
    """The shape, dtype and LoD level of a value before the program runs; -1 in a shape stands for the batch size."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    lod_level: int = 0


def shape_rule(slots: Sequence[str], text: str) -> Callable[..., Any]:
    """Return the function that a shape rule defines, from the inputs' specs and the attributes to the outputs' specs.

    Args:
        slots: the names of the inputs.
        text: the rule; without an arrow, the inputs may have any shape.
    """
    if "(" not in text and "->" not in text:  # most rules
        chosen = operator.itemgetter(*(slots.index(each.strip()) for each in text.split(",")))
        return lambda *specs: chosen(specs)

    def infer(*specs: Any, attrs: Mapping[str, Any]) -> Any:
        expected, results = _parsed(text)
        given = dict(zip(slots, specs, strict=True))
        sizes = dict(attrs)  # name -> the attribute, or the size that it stands for
        for slot, dims in expected:
            for spec in _listed(given[slot]):
                if not _fits(dims, spec.shape, sizes):
                    raise ShapeError(_mismatch(text, given, attrs))
        found = tuple(_made(result, given, sizes) for result in results)
        return found[0] if len(found) == 1 else found

    return infer


@functools.cache
def _parsed(text: str) -> tuple[list[tuple[str, list[Any]]], list[Any]]:
    left, _, right = text.rpartition("->")
    return [(each.func.id, each.args) for each in _expressions(left)], _expressions(right)


def _expressions(text: str) -> list[Any]:
    return ast.parse(f"[{text}]", mode="eval").body.elts  # type: ignore[attr-defined, no-any-return]


def _listed(value: Any) -> Sequence[Spec]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _fits(dims: Sequence[Any], shape: tuple[int, ...], sizes: dict[str, Any]) -> bool:
    """Return whether a shape is as expected; names that occur for the first time get their sizes."""
    if not shape and len(dims) == 2 and _is_rest(dims[1]):
        shape = (-1,)  # rows of a value that nothing has declared yet
    for at, dim in enumerate(dims):
        if _is_rest(dim):
            after = len(shape) - (len(dims) - at - 1)
            rest = shape[at:after]
            before = sizes.setdefault("...", rest)
            if after < at or len(before) != len(rest) or not all(map(agree, before, rest)):
                return False
            sizes["..."] = tuple(map(known, before, rest))
            dims, shape = (*dims[:at], *dims[at + 1 :]), (*shape[:at], *shape[after:])
            break
    return len(dims) == len(shape) and all(_agrees(*pair, sizes) for pair in zip(dims, shape, strict=True))


def _agrees(dim: Any, size: int, sizes: dict[str, Any]) -> bool:
    if isinstance(dim, ast.Name):
        before = -1 if dim.id == "_" else sizes.get(dim.id, -1)
        sizes[dim.id] = known(before, size)
        return agree(before, size)
    if isinstance(dim, ast.BinOp) and isinstance(dim.left, ast.Name) and dim.left.id not in sizes:
        factor = _value(dim.right, sizes)
        return factor > 0 and (size < 0 or size % factor == 0) and _agrees(dim.left, size // factor, sizes)
    return agree(_value(dim, sizes), size)


def _value(node: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, names)
    if isinstance(node, ast.Call):
        return _FUNCTIONS[node.func.id](*(_value(each, names) for each in node.args))  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, names), _value(node.right, names)
        return -1 if left < 0 or right < 0 else _ARITHMETIC[type(node.op)](left, right)
    return node.value


def _made(result: Any, given: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
    if isinstance(result, ast.Name):
        return given[result.id]
    name, shape = result.func.id, list[int]()
    for dim in result.args:
        if _is_rest(dim):
            shape += sizes["..."]
        elif isinstance(dim, ast.Starred):
            shape += _value(dim.value, sizes)
        else:
            shape.append(_value(dim, sizes))
    if name in given:
        spec = _listed(given[name])[0]._replace(shape=tuple(shape))
    else:
        kind = sizes.get(name, name)
        spec = Spec(tuple(shape), kind.numpy if isinstance(kind, VarType) else np.dtype(kind))
    if not result.keywords:
        return spec
    levels = {slot: each.lod_level for slot, value in given.items() for each in _listed(value)[:1]}
    return spec._replace(lod_level=_value(result.keywords[0].value, levels))


def _is_rest(dim: Any) -> bool:
    return isinstance(dim, ast.Constant) and dim.value is ...


def _mismatch(text: str, given: Mapping[str, Any], attrs: Mapping[str, Any]) -> str:
    expected = text.rpartition("->")[0].strip()
    nodes = [node for each in _expressions(expected) for node in ast.walk(each)]
    named = sorted({node.id for node in nodes if isinstance(node, ast.Name)} & set(attrs))
    values = ", ".join(f"{name}={attrs[name]!r}" for name in named)
    shapes = ", ".join(f"{slot} {spec.shape}" for slot, value in given.items() for spec in _listed(value))
    return f"expected {expected}{f' with {values}' if values else ''}, got {shapes}"
