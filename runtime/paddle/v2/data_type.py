# SPDX-License-Identifier: Apache-2.0
"""Input types for ``layer.data``, which describe the columns of samples."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable

from paddle.errors import if_divided
from paddle.v2.errors import UsageError
from paddle_node.contract.classes import dataclass, replace

NO_WORD = 0xFFFFFFFF
"""The id of a word that is not in the dictionary: its row of a table is zeros, unless the table is sparse."""


class SequenceType(enum.IntEnum):
    """The number of sequence levels in a column of samples: none, one or two."""

    NO_SEQUENCE = 0
    SEQUENCE = 1
    SUB_SEQUENCE = 2

    @classmethod
    def tostring(cls, value: int) -> str:
        """Return the name of a sequence level, such as `SequenceType.SEQUENCE`."""
        return f"{cls.__name__}.{cls(value).name}"


class DataType(enum.IntEnum):
    """The kind of items in a column: dense or sparse vectors, or integers."""

    Dense = 0
    SparseNonValue = 1
    SparseValue = 2
    Index = 3

    @classmethod
    def tostring(cls, value: int) -> str:
        """Return the name of a kind of items, such as `DataType.Index`."""
        return f"{cls.__name__}.{cls(value).name}"


@dataclass(frozen=True, repr=False)
class InputType:
    """The type of a data layer's samples: width, number of sequence levels, and kind of items.

    Attributes:
        has_own_shape: whether a sample may have a different height and width than the layer.
    """

    dim: int
    seq_type: SequenceType
    type: DataType
    has_own_shape: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", whole_number(self.dim, "dimension of an input type"))

    def __repr__(self) -> str:
        return (
            f"InputType(dim={self.dim}, seq_type=SequenceType.{SequenceType(self.seq_type).name}, "
            f"type=DataType.{DataType(self.type).name})"
        )

    def described(self, by_cost: bool) -> str:
        """Return the declaration of a type that is not dense, and how a layer, or a cost, can read it, for messages."""
        if self.type == DataType.Index and not by_cost:
            return f"{self.declaration}: put layer.embedding(input, size=N) in between"
        return f"{self.declaration}: declare it as {replace(self, type=DataType.Dense).declaration}"

    @property
    def declaration(self) -> str:
        """The call that returns the type, such as `integer_value_sequence(9)`."""
        name = ("dense_vector", "sparse_binary_vector", "sparse_float_vector", "integer_value")[self.type]
        return f"{name}{('', '_sequence', '_sub_sequence')[self.seq_type]}({self.dim})"


def whole_number(value: object, what: str) -> int:
    """Return `value` as an int; reject floats such as 64.0, which Python 3 returns where Python 2 divided integers.

    Raises:
        UsageError: the value is not an integer; the message begins with `what`.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"{what} must be a whole number, got {value!r}{if_divided(value)}") from None


def dense_vector(dim: int, seq_type: SequenceType = SequenceType.NO_SEQUENCE) -> InputType:
    """Return the type of vectors of ``dim`` floats; a 2-D or 3-D sample's last two axes are its height and width."""
    return InputType(dim, seq_type, DataType.Dense)


def dense_array(dim: int, seq_type: SequenceType = SequenceType.NO_SEQUENCE) -> InputType:
    """Return the type of arrays of ``dim`` floats, whose 2-D or 3-D samples also set the height and width of images.

    All samples of a batch have the same shape.
    """
    return InputType(dim, seq_type, DataType.Dense, seq_type == SequenceType.NO_SEQUENCE)


def sparse_binary_vector(dim: int, seq_type: SequenceType = SequenceType.NO_SEQUENCE) -> InputType:
    """Return the type of sparse 0/1 vectors of width ``dim``, given as lists of the columns that are 1."""
    return InputType(dim, seq_type, DataType.SparseNonValue)


def sparse_float_vector(dim: int, seq_type: SequenceType = SequenceType.NO_SEQUENCE) -> InputType:
    """Return the type of sparse vectors of width ``dim``, given as lists of (column, value) pairs."""
    return InputType(dim, seq_type, DataType.SparseValue)


def integer_value(value_range: int, seq_type: SequenceType = SequenceType.NO_SEQUENCE) -> InputType:
    """Return the type of one integer in [0, ``value_range``)."""
    return InputType(value_range, seq_type, DataType.Index)


sparse_vector = sparse_float_vector
sparse_non_value_slot = sparse_binary_vector
sparse_value_slot = sparse_float_vector


def _of(
    item: Callable[[int, SequenceType], InputType], level: SequenceType, what: str
) -> Callable[[int], InputType]:
    def declare(dim: int) -> InputType:
        return item(dim, level)

    names = {SequenceType.SEQUENCE: "sequence", SequenceType.SUB_SEQUENCE: "sub_sequence"}
    declare.__name__ = declare.__qualname__ = f"{item.__name__}_{names[level]}"
    declare.__doc__ = what
    return declare


_ONE, _TWO = SequenceType.SEQUENCE, SequenceType.SUB_SEQUENCE
dense_vector_sequence = _of(dense_vector, _ONE, "A list of dense vectors.")
dense_vector_sub_sequence = _of(dense_vector, _TWO, "A list of lists of dense vectors.")
sparse_binary_vector_sequence = _of(sparse_binary_vector, _ONE, "A list of sparse 0/1 vectors.")
sparse_binary_vector_sub_sequence = _of(sparse_binary_vector, _TWO, "A list of lists of sparse 0/1 vectors.")
sparse_float_vector_sequence = _of(sparse_float_vector, _ONE, "A list of sparse vectors.")
sparse_float_vector_sub_sequence = _of(sparse_float_vector, _TWO, "A list of lists of sparse vectors.")


def integer_value_sequence(value_range: int) -> InputType:
    """Return the type of sequences (lists) of integers in [0, ``value_range``)."""
    return integer_value(value_range, SequenceType.SEQUENCE)


def integer_value_sub_sequence(value_range: int) -> InputType:
    """Return the type of sequences of sequences (lists of lists) of integers in [0, ``value_range``)."""
    return integer_value(value_range, SequenceType.SUB_SEQUENCE)
