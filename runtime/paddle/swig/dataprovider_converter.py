# SPDX-License-Identifier: Apache-2.0
"""`DataProviderConverter`: converts samples of a data provider to `Arguments`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.swig.arguments import Arguments
from paddle.v2.data_type import InputType
from paddle.v2.errors import UsageError, UsageTypeError

__all__ = ["DataProviderConverter"]


class DataProviderConverter:
    """Converts lists of samples to `Arguments`.

    Args:
        input_types: the type of each column, in the order of the network's inputs.
    """

    def __init__(self, input_types: Sequence[InputType]) -> None:
        for kind in input_types:
            if not isinstance(kind, InputType):
                raise UsageTypeError(
                    f"DataProviderConverter takes types such as integer_value(2), got {kind!r:.80}"
                )
        self.input_types = list(input_types)

    def convert(self, dat: Sequence[Sequence[Any]], argument: Arguments | None = None) -> Arguments:
        """Return the samples as arguments.

        Raises:
            UsageError: a sample has fewer columns than there are types.
        """
        short = next((sample for sample in dat if len(sample) < len(self.input_types)), None)
        if short is not None:
            raise UsageError(
                f"a sample has {len(short)} columns; expected {len(self.input_types)}: {short!r:.80}"
            )
        columns = [(kind, [sample[at] for sample in dat]) for at, kind in enumerate(self.input_types)]
        return Arguments.of_columns(columns)

    __call__ = convert
