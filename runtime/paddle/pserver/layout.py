# SPDX-License-Identifier: Apache-2.0
"""A trainer's parameters as the servers hold them: cut into one slab for each server, and put together again.

Arrays from the user's program are checked here, before anything is sent: name, shape, dtype, row ids, no NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.sparse import check_rows
from paddle.optim.spec import ParameterSpec, RowGradient
from paddle.pserver.configuration import check_names
from paddle.pserver.placement import RowShare, place

Array = npt.NDArray[np.float32]


class Layout:
    """Where every parameter lies, and one slab for each server that is filled anew for each push.

    Attributes:
        parameters: those that travel, by name; static ones do not.
        shares: what each server holds.
        slabs: gradients or values for each server; owned here, overwritten by `gather`.
    """

    def __init__(
        self, parameters: Sequence[ParameterSpec], num_dense: int, num_sparse: int, *, whole: bool = False
    ) -> None:
        """Place the parameters; see `place`.

        Raises:
            ConfigError: a name occurs twice, or a share is too large.
        """
        check_names(parameters)
        self.parameters = {p.name: p for p in parameters if not p.static}
        self.shares = place(parameters, num_dense, num_sparse, whole=whole)
        self.slabs = [np.zeros(share.slab_size, np.float32) for share in self.shares]

    def tables(self, name: str) -> list[tuple[int, RowShare]]:
        """Return the servers that hold rows of a sparse parameter, and which."""
        found = [(i, share) for i, server in enumerate(self.shares) for share in server.tables]
        return [(i, share) for i, share in found if share.parameter.name == name]

    def gather(self, flat: Mapping[str, Array]) -> None:
        """Fill all slabs from whole parameters (size,); those left out become 0."""
        for share, slab in zip(self.shares, self.slabs, strict=True):
            for part in share.dense:
                if part.parameter.name in flat:
                    part.gather(flat[part.parameter.name], slab)
                else:
                    slab[part.start : part.stop] = 0.0

    def scatter(self, index: int, slab: Array, views: Mapping[str, Array]) -> None:
        """Copy what one server sent into whole parameters (size,); those left out stay."""
        for part in self.shares[index].dense:
            if part.parameter.name in views:
                part.scatter(slab, views[part.parameter.name])

    def parameter(self, name: str) -> ParameterSpec:
        """Return the parameter of that name.

        Raises:
            ConfigError: the servers do not have it.
        """
        if name not in self.parameters:
            raise ConfigError(
                f"parameter {name!r} is not on the pservers; known: {', '.join(self.parameters)}"
            )
        return self.parameters[name]

    def flat(self, name: str, arrays: Mapping[str, Array], what: str) -> Array:
        """Return the array of one parameter as (size,) float32.

        Raises:
            ConfigError: it is missing, of another shape or dtype, or not finite.
        """
        if name not in arrays:
            raise ConfigError(f"{what} of parameter {name} is missing")
        array = np.ascontiguousarray(self._checked(name, arrays[name], what)).reshape(-1)
        # A sum is finite far faster than every element is checked; only a strange sum needs the slow look.
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(array.sum()) or np.isfinite(array).all()
        if not finite:
            raise ConfigError(f"{what} of parameter {name} is NaN or infinite; nothing was sent")
        return array

    def views(self, out: Mapping[str, Array]) -> dict[str, Array]:
        """Return arrays that are to be filled, each seen as (size,).

        Raises:
            ConfigError: one cannot be filled.
        """
        views = {}
        for name, array in out.items():
            self._checked(name, array, "out array")
            if not array.flags.c_contiguous or not array.flags.writeable:
                raise ConfigError(f"out array of parameter {name}: expected a writeable, C-contiguous array")
            views[name] = array.reshape(-1)
        return views

    def rows(self, name: str, gradient: RowGradient) -> RowGradient:
        """Return the gradient of a sparse parameter.

        Raises:
            ConfigError: its rows or values are wrong.
        """
        parameter = self.parameter(name)
        what = f"gradient of parameter {name}"
        check_rows(gradient.rows, parameter.shape[0], what)
        values = gradient.values
        expected = (len(gradient.rows), parameter.shape[1])
        if values.shape != expected or values.dtype != np.float32:
            raise ConfigError(f"{what}: expected {expected} float32, got {values.shape} {values.dtype}")
        if not np.isfinite(values).all():
            raise ConfigError(f"{what} is NaN or infinite; nothing was sent")
        return gradient

    def _checked(self, name: str, array: Any, what: str) -> Array:
        parameter = self.parameter(name)
        if array.size != parameter.size or array.dtype != np.float32:
            raise ConfigError(
                f"{what} of parameter {name}: expected {parameter.shape} float32, "
                f"got {array.shape} {array.dtype}"
            )
        checked: Array = array
        return checked
