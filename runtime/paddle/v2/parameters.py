# SPDX-License-Identifier: Apache-2.0
"""``Parameters``: the values of a network's parameters by name, which can be saved in a tar file.

Values are created on first use, so that a large table on a parameter server is only created in this process if it is
read. Once a trainer exists, the trainer's values are read and written instead.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddle.graph.scope import fetched
from paddle.proto.message import Message
from paddle.signatures import advice, explained
from paddle.v2 import model, settings
from paddle.v2.attr import Initializer
from paddle.v2.errors import UsageError
from paddle.v2.network import Network
from paddle.v2.parameter_format import (
    HEADER,
    UNIFORM,
    ParameterConfig,
    binary,
    blob,
    read_blob,
    read_tar,
    write_tar,
)
from paddle.v2.topology import Layers, Topology

Value = NDArray[np.float32]


class Holder(Protocol):
    """The interface of trainers, which have the newest values of the parameters."""

    def newest(self, name: str) -> Value:
        """Return the current value of a parameter, in any shape with the right number of elements."""

    def replace(self, name: str, value: Value) -> None:
        """Replace the value of a parameter with one that the user has set."""

    def gradient(self, name: str) -> Value | None:
        """Return a parameter's gradient in the last batch, or None."""


class Machine(Holder, Protocol):
    """The interface of gradient machines, which have the values of one network."""

    @property
    def network(self) -> Network:
        """The network."""


class Configurations(Protocol):
    """The interface of a network's message, as ``Topology(layers).proto()`` returns it."""

    @property
    def parameters(self) -> Sequence[Message | ParameterConfig]:
        """The parameters' configurations in order of creation."""


class Parameters:
    """The values of a network's parameters by name, in order of creation; float32 arrays.

    Attributes:
        unsent: names of the parameters whose values parameter servers never had.
        is_new: whether all values are initial ones, which nothing has set or trained.
    """

    def __init__(self) -> None:
        self.unsent: set[str] = set()
        self.is_new = True
        self._configs: dict[str, ParameterConfig] = {}
        self._values: dict[str, Value] = {}
        self._holders: dict[str, Holder] = {}

    def names(self) -> list[str]:
        """Return the parameters' names in order of creation."""
        return list(self._configs)

    keys = names

    def has_key(self, key: str) -> bool:
        """Return whether there is a parameter with that name."""
        return key in self._configs

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    def __contains__(self, key: object) -> bool:
        return key in self._configs

    def __getitem__(self, key: str) -> Value:
        return fetched(np.array(self.current(key), np.float32).reshape(self.get_shape(key)))

    def get(self, parameter_name: str) -> Value:
        """Return a copy of a parameter's current value, float32 in the shape ``get_shape``."""
        return self[parameter_name]

    def __setitem__(self, key: str, value: Value) -> None:
        config = self.config(key)
        if not isinstance(value, np.ndarray):
            raise UsageError(f"parameter {key!r} must be set to a numpy array, got {type(value).__name__}")
        if value.shape != config.shape:
            raise UsageError(
                f"parameter {key!r}: expected an array of shape {config.shape}, got {value.shape}"
            )
        taken = np.array(value, np.float32)
        self.is_new = False
        if key in self._holders:
            self._holders[key].replace(key, taken)
        elif key in self._values:
            self._values[key][...] = taken
        else:
            self._values[key] = taken
        self.unsent.add(key)

    def set(self, parameter_name: str, value: Value) -> None:
        """Set the value of a parameter; the array must have the shape that ``get_shape`` returns."""
        self[parameter_name] = value

    def get_shape(self, key: str) -> tuple[int, ...]:
        """Return a parameter's shape, as `get` and `set` use it, as a tuple of dimensions."""
        return self.config(key).shape

    def get_grad(self, key: str) -> Value:
        """Return a copy of a parameter's gradient in the last batch.

        Zeros if it is static or nothing was trained yet.
        """
        config = self.config(key)
        found = self._holders[key].gradient(key) if key in self._holders else None
        if found is None:
            return np.zeros(config.shape, np.float32)
        return fetched(np.array(found, np.float32).reshape(config.shape))

    def config(self, key: str) -> ParameterConfig:
        """Return the configuration of a parameter."""
        found = self._configs.get(key)
        if found is None:
            raise UsageError(f"No such parameter {key}; {advice(key, self.names(), 'the parameters')}")
        return found

    @property
    def __param_conf__(self) -> Mapping[str, ParameterConfig]:
        """The configurations by name; scripts read dims, initial_std and others there."""
        return MappingProxyType(self._configs)

    def add(
        self, config: ParameterConfig, initializer: Initializer | None = None, value: Value | None = None
    ) -> None:
        """Add a parameter with its initial value, or with a function that computes this value from its name."""
        if config.name in self._configs:
            raise UsageError(f"duplicated parameter {config.name}")
        if value is None and initializer is not None:
            value = np.asarray(initializer(config.name), np.float32)
            if value.shape != config.shape:
                raise UsageError(
                    f"the initializer of {config.name!r} returned shape {value.shape}; expected {config.shape}"
                )
        self._configs[config.name] = config
        self.unsent.add(config.name)
        if value is not None:
            self.is_new = False
            self._values[config.name] = np.array(value, np.float32)

    def __append_config__(self, param_conf: Message | ParameterConfig) -> None:
        """Add a parameter, described by a message of `paddle.proto.ParameterConfig_pb2` or of a topology."""
        self.add(_decoded(param_conf))

    def array(self, key: str) -> Value:
        """Return a parameter's value without a copy, creating it if necessary; a trainer updates it in place."""
        if key not in self._values:
            self._values[key] = _initial_value(self.config(key), settings.current().seed)
        return self._values[key]

    def current(self, key: str) -> Value:
        """Return a parameter's newest value, in any shape and without a copy; callers must not change it."""
        return self._holders[key].newest(key) if key in self._holders else self.array(key)

    def attach(self, holder: Holder, names: Iterable[str]) -> None:
        """Connect a trainer: from now on, the values of its network's parameters are read from and written to it."""
        self._holders.update(dict.fromkeys(names, holder))
        self.is_new = False

    def append_gradient_machine(self, gradient_machine: Machine) -> None:
        """Read and write the values of a machine's parameters through it from now on; it takes over existing values."""
        held = gradient_machine.network.parameters
        for name in held.keys() & self._values.keys():
            gradient_machine.replace(name, self._values[name])
        self.attach(gradient_machine, held)

    def update_param_conf(self, model_config: Configurations) -> None:
        """Replace the configurations with those of a network's message, such as ``Topology(layers).proto()``.

        Raises:
            UsageError: a parameter's current value has a different size.
        """
        for config in map(_decoded, model_config.parameters):
            value = self._values.get(config.name)
            if value is not None and value.size != config.size:
                raise UsageError(
                    f"parameter {config.name!r} has {value.size} values in these Parameters, but {config.size} in "
                    "the given network"
                )
            self._configs[config.name] = config

    def serialize(self, name: str, f: IO[Any]) -> None:
        """Write one parameter's value, as a 16-byte header and raw float32 data."""
        binary(f).write(blob(self[name]))

    def deserialize(self, name: str, f: IO[Any]) -> None:
        """Read one parameter's value in the format of ``serialize``."""
        config = self.config(name)
        raw = binary(f).read(HEADER.size + 4 * config.size)
        self[name] = read_blob(raw, config, str(getattr(f, "name", "parameter file")))

    def to_tar(self, f: IO[Any]) -> None:
        """Write all parameters to an uncompressed tar. The file may be opened in text mode."""
        write_tar(f, ((self._configs[name], self[name]) for name in self._configs))

    @staticmethod
    def from_tar(f: IO[Any]) -> Parameters:
        """Read parameters from a tar, and return them.

        Raises:
            ModelFileError: the tar is damaged or does not contain parameters.
        """
        found = Parameters()
        for config, value in read_tar(f):
            found.add(config, value=value)
        return found

    def init_from_tar(self, f: IO[Any], exclude_params: str | Sequence[str] = ()) -> None:
        """Load the values of all parameters that are also in the tar, except excluded ones; an error changes nothing.

        A warning names the others if both the network and the tar have some.

        Raises:
            ModelFileError: the tar is damaged or does not contain parameters.
            UsageError: a shape differs, or the tar has none of the parameters.
        """
        found = {config.name: (config, value) for config, value in read_tar(f)}
        shared = [name for name in found if name in self._configs]
        if not shared:
            raise UsageError(
                f"the tar has none of the network's parameters: the tar has {list(found)}, the network has "
                f"{self.names()}"
            )
        excluded = {exclude_params} if isinstance(exclude_params, str) else {*exclude_params}
        unknown = sorted(excluded - self._configs.keys() - found.keys())
        if unknown:
            warnings.warn(
                f"exclude_params: neither the tar nor the network has {unknown}; the network has {self.names()}",
                stacklevel=2,
            )
        lacking = [name for name in self.names() if name not in found and name not in excluded]
        unused = [name for name in found if name not in self._configs and name not in excluded]
        if lacking and unused:  # perhaps the same parameters under other names
            warnings.warn(
                f"init_from_tar: {lacking} keep their values because the tar lacks them; it has {unused} instead. If "
                "these are the same parameters, give them the tar's names: paddle.attr.Param(name=...)",
                stacklevel=2,
            )
        loaded = [name for name in shared if name not in excluded]
        for name in loaded:
            given, wanted = found[name][0], self.config(name)
            if not given.has_layout_of(wanted):
                raise UsageError(
                    f"parameter {name!r} has shape {given.shape} in the tar; expected {wanted.shape}: the tar was "
                    "saved by a different network. Declare the same layers as in that network, or give this layer's "
                    "parameter a different name"
                )
        for name in loaded:
            self[name] = found[name][1].reshape(self.get_shape(name))


@explained
def create(layers: Layers) -> Parameters:
    """Create the parameters of the network that the given layers need."""
    found = Parameters()
    initializers = model.current().initializers
    for name, config in Topology(layers).network.parameters.items():
        found.add(config, initializers.get(name))
    return found


def _decoded(config: Message | ParameterConfig) -> ParameterConfig:
    return ParameterConfig.decode(config.SerializeToString()) if isinstance(config, Message) else config


def _initial_value(config: ParameterConfig, seed: int) -> NDArray[np.float32]:
    """Return a new float32 array of ``config.shape``; it depends only on seed and name, so trainers start equal."""
    if config.initial_std == 0:
        return np.full(config.shape, config.initial_mean, np.float32)
    generator = _generator(config.name, seed)
    if config.initial_strategy == UNIFORM:
        value = generator.random(config.size, np.float32)
        value *= np.float32(2 * config.initial_std)
        value += np.float32(config.initial_mean - config.initial_std)
    else:
        value = generator.standard_normal(config.size, np.float32)
        value *= np.float32(config.initial_std)
        value += np.float32(config.initial_mean)
    return value.reshape(config.shape)


def _generator(name: str, seed: int) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
