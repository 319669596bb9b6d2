# SPDX-License-Identifier: Apache-2.0
"""The specification of a growing table: plain values that are sent to servers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, exact_fields, rule_of
from paddle.pserver.sparse.blocks import MOST, OVERFLOW, ROW_DTYPES
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.ticks import MAX_AGE
from paddle_node.contract.classes import asdict, dataclass, field, fields

MAX_ROWS = (1 << 32) - 2
"""On one server; a row's number has 32 bits."""
MAX_ENTRY = 1 << 31


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The specification of a growing table, whose rows are addressed by any int64 id.

    Attributes:
        parameter: name, decay, clipping and rate of the rows. Its shape is (1, width): the height is unknown.
        initial: initial values of rows.
        entry: the entry-th batch that contains an id creates its row; gradients of earlier batches are dropped. 1: the
            first batch creates the row.
        max_age: number of batches without a gradient after which a row is dropped, with a delay of at most 1024
            batches; 0 means never.
        max_rows: maximum number of rows on one server; a batch that would need more is refused.
        budget: the memory limit on one server, and which rows are evicted when it is reached.
        dtype: the dtype of values in memory, on disk and in checkpoints: "float32" or "float16"; states are float32.
    """

    parameter: ParameterSpec
    initial: Initial = field(default_factory=Initial)
    entry: int = 1
    max_age: int = 0
    max_rows: int = MAX_ROWS
    budget: Budget = field(default_factory=Budget)
    dtype: str = ROW_DTYPES[0]

    def __post_init__(self) -> None:
        parameter, what = self.parameter, f"table {self.parameter.name}"
        if len(parameter.shape) != 2 or parameter.shape[0] != 1:
            raise ConfigError(f"{what}: shape: expected (1, width), got {parameter.shape}")
        if not parameter.sparse or parameter.static:
            raise ConfigError(
                f"{what}: expected a sparse parameter that is not static, got sparse={parameter.sparse} and "
                f"static={parameter.static}"
            )
        for name, least, most in (
            ("entry", 1, MAX_ENTRY),
            ("max_age", 0, MAX_AGE),
            ("max_rows", 1, MAX_ROWS),
        ):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise ConfigError(f"{what}: {name}: expected {least} to {most}, got {value!r}")
        if self.dtype not in ROW_DTYPES:
            raise ConfigError(f"{what}: dtype: expected {' or '.join(ROW_DTYPES)}, got {self.dtype!r}")
        if self.is_half and self.initial.largest >= OVERFLOW:
            raise ConfigError(
                f"{what}: initial values: expected at most {MOST:g} for dtype float16, got {self.initial}"
            )

    @property
    def name(self) -> str:
        """The table's name."""
        return self.parameter.name

    @property
    def width(self) -> int:
        """The number of elements per row."""
        return self.parameter.shape[1]

    @property
    def is_half(self) -> bool:
        """Return whether values are float16."""
        return self.dtype == "float16"

    @property
    def halves(self) -> int:
        """The number of float16 elements per row."""
        return self.width if self.is_half else 0

    def check_values(self, ids: npt.NDArray[np.int64], values: npt.NDArray[np.float32]) -> None:
        """Check that the values (n, width) of ids (n,) are in the range of the dtype.

        Raises:
            PserverError: a value is out of range.
        """
        if self.is_half and not (fits := np.abs(values) < OVERFLOW).all():
            row = int(np.flatnonzero(~fits.all(axis=1))[0])
            raise PserverError(
                f"table {self.name}, row {ids[row]}: {values[row][~fits[row]][0]:g} is outside the range of "
                f"float16 (-{MOST:g} to {MOST:g}); nothing was changed. Lower the learning rate or the optimizer's "
                'clip, or set dtype="float32"'
            )

    def check_scored(self) -> None:
        """Check that rows have scores. Raises PserverError if the table has no scores."""
        if not self.budget.is_scored:
            raise PserverError(
                f'table {self.name}: shrink needs scores; create the table with evict="lfu" or evict="score"'
            )

    def check_optimizer(self, optimizer: OptimizerSpec) -> None:
        """Check that an optimizer's rule can update single rows independently.

        Raises:
            ConfigError: the rule cannot update single rows.
        """
        if optimizer.rule == "sparse_momentum" or rule_of(optimizer).needs_whole:
            raise ConfigError(
                f"table {self.name}: {optimizer.rule} needs all rows of a table in every batch; use "
                "a different optimizer, such as momentum, which then updates only touched rows"
            )

    def check_room(self, rows: int, new: int) -> None:
        """Check that a server with `rows` rows has room for `new` more.

        Raises:
            PserverError: the server has no room.
        """
        if rows + new > self.max_rows:
            raise PserverError(
                f"table {self.name}: {new} new rows in addition to {rows} would exceed the limit of "
                f"{self.max_rows} rows on one server. Use more servers, or set min_count, max_age "
                "or memory"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the specification as a dictionary of JSON values."""
        whole = {item.name: getattr(self, item.name) for item in fields(self)} | {
            "parameter": self.parameter.to_json(),
            "initial": self.initial.to_json(),
            "budget": asdict(self.budget),
        }
        if not self.is_half:
            del whole["dtype"]  # which earlier releases refuse
        return whole

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Return the spec that `to_json` encoded.

        Raises:
            ConfigError: `data` has unexpected fields, types or values.
        """
        older = {"budget": asdict(Budget()), "dtype": ROW_DTYPES[0]}  # which earlier releases leave out
        whole = older | data if isinstance(data, dict) else data
        content = exact_fields(cls, whole)
        content["parameter"] = ParameterSpec.from_json(content["parameter"])
        content["initial"] = Initial(**exact_fields(Initial, content["initial"]))
        content["budget"] = Budget(**exact_fields(Budget, content["budget"]))
        return cls(**content)
