# SPDX-License-Identifier: Apache-2.0
"""Functions on shapes, in which -1 stands for an unknown size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle.backend import Array
from paddle.ops.base.errors import AttrError, InputError, ShapeError


def product(sizes: Sequence[int]) -> int:
    """Return the product of sizes; -1 if any size is unknown."""
    total = 1
    for size in sizes:
        if size < 0:
            return -1
        total *= size
    return total


def agree(left: int, right: int) -> bool:
    """Return whether two sizes can be equal; a negative size is unknown and can equal any other."""
    return left == right or left < 0 or right < 0


def known(left: int, right: int) -> int:
    """Return the size that is known of two sizes that must be equal; -1 if both are unknown."""
    return right if left < 0 else left


def any_rows(x: Any, *others: Any) -> Any:
    """Return the spec of X with an unknown number of rows, a shape rule for operators that select or repeat rows."""
    return x._replace(shape=(-1, *x.shape[1:]))


def axis_of(axis: int, rank: int) -> int:
    """Return the axis as a non-negative number.

    Raises:
        AttrError: the axis is out of range for the rank.
    """
    if not -rank <= axis < rank:
        raise AttrError(
            f"expected an axis from {-rank} to {rank - 1} for a value of {rank} dimensions, got {axis}"
        )
    return axis % rank


def keeps_rows(attribute: str, added: int = 0) -> Callable[[Mapping[str, Any], int], bool]:
    """Return a rule for `shares_lod`: whether none of the axes in the attribute is the first one.

    Args:
        added: number of axes that the result has in addition to those of the input.
    """

    def rule(attrs: Mapping[str, Any], rank: int) -> bool:
        axes = attrs[attribute] if isinstance(attrs[attribute], tuple) else (attrs[attribute],)
        return not {0, -rank - added} & {*axes}

    return rule


def same(left: Sequence[int], right: Sequence[int], what: str) -> tuple[int, ...]:
    """Check that two values have the same shape and return it.

    A size that is unknown in one (-1) is taken from the other.

    Raises:
        ShapeError: the shapes differ.
    """
    if len(left) != len(right) or not all(map(agree, left, right)):
        raise ShapeError(f"{what} must have the same shape, got {tuple(left)} and {tuple(right)}")
    return tuple(map(known, left, right))


def as_many_rows(left: Array, right: Array, what: str) -> None:
    """Check that two values have the same number of rows, since numpy would broadcast a single row.

    Raises:
        ShapeError: the numbers differ.
    """
    if len(left) != len(right):
        raise ShapeError(f"{what} must have the same number of rows, got {left.shape} and {right.shape}")


def decided(given: Array | None, parts: Sequence[Array], attribute: Sequence[int]) -> tuple[int, ...]:
    """Return sizes or positions as a tuple; they can come from an attribute or, at run time, from tensors.

    Args:
        given: integers, or None.
        parts: tensors of one number each; they take precedence over `given`.

    Raises:
        InputError: a tensor does not contain integers.
    """
    found: list[int] = []
    for tensor in parts or ([] if given is None else [given]):
        if tensor.dtype.kind not in "iu":
            raise InputError(f"expected whole numbers as sizes or positions, got a tensor of {tensor.dtype}")
        found.extend(tensor.reshape(-1).tolist())
    return tuple(found if parts or given is not None else attribute)
