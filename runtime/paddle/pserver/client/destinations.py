# SPDX-License-Identifier: Apache-2.0
"""Where values of tensors go that a program of any framework gives to be filled, checked against what servers hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from paddle.errors import ConfigError
from paddle.optim.spec import ParameterSpec
from paddle.pserver.client.interop import HostArray, Target, target


class Destinations:
    """The tensors of a job. `growing`: names of those that have no whole."""

    def __init__(self, parameters: Mapping[str, ParameterSpec], growing: Collection[str]) -> None:
        self._parameters, self._growing = parameters, growing

    def of(self, name: str, array: Any) -> Target:
        """Return where to put the whole of a tensor.

        Raises:
            ConfigError: there is no such tensor, it has no whole, or the array is of another shape or dtype.
        """
        what = f"out array of tensor {name}"
        if name in self._growing:
            raise ConfigError(f"{what}: a growing table has no whole; look up its rows with pull_rows")
        place = target(array, what)
        self.check(name, place.host, what)
        return place

    def check(self, name: str, array: HostArray, what: str) -> None:
        """Check an array for the whole of a tensor.

        Raises:
            ConfigError: see `of`.
        """
        if name not in self._parameters:
            raise ConfigError(f"{what}: no such tensor was created; there are {', '.join(self._parameters)}")
        shape = self._parameters[name].shape
        # A single number is kept as an array of one.
        if (array.shape or (1,)) != shape or array.dtype != np.float32:
            raise ConfigError(f"{what}: expected {shape} float32, got {array.shape} {array.dtype}")


def put_rows(name: str, found: HostArray, out: Any) -> None:
    """Fill `out` with rows of a tensor.

    Raises:
        ConfigError: it is of another shape or dtype.
    """
    place = target(out, f"out array of tensor {name}")
    if place.host.shape != found.shape or place.host.dtype != found.dtype:
        raise ConfigError(
            f"out array of tensor {name}: expected {found.shape} float32, got {place.host.shape} "
            f"{place.host.dtype}"
        )
    place.host[...] = found
    place.finish()
