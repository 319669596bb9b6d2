# SPDX-License-Identifier: Apache-2.0
"""Model: the namespace of a script's declarations: layers, parameters, evaluators and optimizer defaults.

There is one namespace per process, as in the original; it is never reset automatically, and ``fresh`` provides a
separate one temporarily. Declarations are immutable, JSON-serializable data; nothing is computed here.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence

from paddle.graph.operator import script_line
from paddle.v2.attr import Initializer, ParameterAttribute
from paddle.v2.data_type import InputType, whole_number
from paddle.v2.errors import UsageError
from paddle.v2.parameter_format import NORMAL, UNIFORM, ParameterConfig
from paddle_node.contract.classes import dataclass, field, replace

Attrs = Mapping[str, "bool | int | float | str | Sequence[int] | Sequence[float]"]
ZEROS = ParameterAttribute(initial_mean=0.0, initial_std=0.0)


@dataclass(frozen=True)
class InputConfig:
    """The configuration of one input of a layer: the input layer, its projection, and its parameter."""

    layer: str
    parameter: str = ""
    projection: str = ""
    size: int = 0
    attrs: Attrs = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole_number(self.size, f"size of an input from {self.layer!r}"))

    @property
    def input_layer_name(self) -> str:
        """The name of the input layer; `layer`, as the original's message calls it."""
        return self.layer

    @property
    def input_parameter_name(self) -> str:
        """The name of the parameter; `parameter`, as the original's message calls it."""
        return self.parameter


@dataclass(frozen=True)
class Extras:
    """Settings that apply to the output of any layer.

    Attributes:
        drop_rate: the fraction of values that dropout sets to 0 in training.
        error_clipping_threshold: the bound on the absolute values of the output's gradient; 0 means none.
    """

    drop_rate: float = 0.0
    error_clipping_threshold: float = 0.0


@dataclass(frozen=True)
class LayerConfig:
    """The configuration of a layer. ``num_filters``, ``height`` and ``width`` are 0 for layers that are not images.

    ``group`` is the recurrent group to whose step the layer belongs; empty for other layers.
    ``origin`` is "at file:line" of the script.
    """

    name: str
    type: str
    size: int
    inputs: tuple[InputConfig, ...] = ()
    activation: str = ""
    bias: str = ""
    extras: Extras = Extras()
    num_filters: int = 0
    height: int = 0
    width: int = 0
    input_type: InputType | None = None
    attrs: Attrs = field(default_factory=dict)
    group: str = ""
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole_number(self.size, f"size of layer {self.name!r}"))

    @property
    def created(self) -> str:
        """The end of a message about the layer: the line of the script that created it."""
        return f"; the layer was created {self.origin}" if self.origin else ""

    @property
    def active_type(self) -> str:
        """The name of the activation; `activation`, as the original's message calls it."""
        return self.activation

    @property
    def bias_parameter_name(self) -> str:
        """The name of the bias; `bias`, as the original's message calls it."""
        return self.bias


GRADIENT = "@GRAD"
"""Suffix of a layer's name: the gradient of the cost with respect to its value."""

READS_AROUND_GROUPS = frozenset({"group_input", "memory"})  # inputs of groups; first values of memories


@dataclass(frozen=True)
class EvaluatorConfig:
    """The configuration of an evaluator, a metric over the values of some layers."""

    name: str
    type: str
    inputs: tuple[str, ...]
    attrs: Attrs = field(default_factory=dict)

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the evaluator's inputs: layers, or ``<layer>@GRAD`` for their gradients."""
        return (
            tuple(f"{each}{GRADIENT}" for each in self.inputs) if self.attrs.get("gradient") else self.inputs
        )


@dataclass
class ParameterDefaults:
    """Optimizer settings (momentum, decay, clipping) for parameters without explicit ones."""

    momentum: float = 0.0
    decay_rate: float = 0.0
    gradient_clipping_threshold: float = 0.0

    def fill(self, config: ParameterConfig) -> ParameterConfig:
        """Replace settings that are 0 with their defaults; as in the original, this includes an explicit 0."""
        return replace(
            config,
            momentum=config.momentum or self.momentum,
            decay_rate=config.decay_rate or self.decay_rate,
            gradient_clipping_threshold=config.gradient_clipping_threshold
            or self.gradient_clipping_threshold,
        )


class Model:
    """A namespace of declarations: layers, parameters and evaluators, in order of creation."""

    def __init__(self) -> None:
        self.layers: dict[str, LayerConfig] = {}
        self.parameters: dict[str, ParameterConfig] = {}
        self.initializers: dict[str, Initializer] = {}
        self.evaluators: list[EvaluatorConfig] = []
        self.defaults = ParameterDefaults()
        self.group = ""
        self._around = ""
        self._counters: dict[str, int] = {}

    def auto_name(self, prefix: str, name: str | None = None) -> str:
        """Return ``name``; if it is None, return a generated ``__<prefix>_<n>__``, with ``@<group>`` within a group."""
        if name is not None:
            if not isinstance(name, str) or not name:
                raise UsageError(f"a layer name must be a non-empty string, got {name!r}")
            return self.inner_name(name)
        count = self._counters.get(prefix, 0)
        self._counters[prefix] = count + 1
        return self.inner_name(f"__{prefix}_{count}__")

    def inner_name(self, name: str) -> str:
        """Return the full name of a layer; within the step of a recurrent group it ends with ``@<group>``."""
        if not self.group or name.endswith(f"@{self.group}"):
            return name
        return f"{name}@{self.group}"

    @contextlib.contextmanager
    def steps_of(self, group: str) -> Iterator[None]:
        """Return a context in which layers are declared as part of a recurrent group's step."""
        self._around, around, before = self.group, self.group, self._around
        self.group = group
        try:
            yield
        finally:
            self.group, self._around = around, before

    def add_layer(self, config: LayerConfig) -> None:
        """Add a layer under a new name; layers of a group's step can read only layers of that step."""
        if config.name in self.layers:
            raise UsageError(
                f"duplicate layer name {config.name!r}: layer names must be unique within a process; "
                "build the network once and use its layers again, or give the layer another name"
            )
        if self.group and config.type != "group_output":
            readable = self._around if config.type in READS_AROUND_GROUPS else self.group
            for link in config.inputs:
                read = self.layers.get(link.layer)
                if read is not None and read.group != readable:
                    raise UsageError(
                        f"layer {config.name!r} is part of the step of a recurrent group, but reads "
                        f"{link.layer!r} outside it: pass that layer to the group as an input, in StaticInput "
                        "if it is the same at every step"
                    )
        self.layers[config.name] = replace(config, group=self.group, origin=script_line())

    def add_parameter(
        self, name: str, dims: Sequence[int], attribute: ParameterAttribute, *, size: int | None = None
    ) -> str:
        """Add a parameter, or check that the existing one of this name has the same size and dims.

        Args:
            name: the name to use if the attribute has none.
            dims: the shape; may be empty if ``size`` is given.
            attribute: initial values and update settings.
            size: the number of elements, if dims is empty.

        Returns:
            The parameter's name.
        """
        name = attribute.name or name
        shape = tuple(whole_number(dim, f"dimension of parameter {name!r}") for dim in dims)
        count = math.prod(shape) if shape else int(size or 0)
        if count <= 0:
            raise UsageError(f"parameter {name!r}: expected at least 1 element, got {count} (dims {shape})")
        known = self.parameters.get(name)
        if known is not None:
            if (known.size, known.dims) != (count, shape):
                raise UsageError(
                    f"parameter {name!r} is shared with different dims: {known.dims or known.size} "
                    f"before, {shape or count} now; give one of the layers a different name or "
                    "paddle.attr.Param(name=...)"
                )
            late = _late_settings(
                known, self.defaults.fill(_configure(name, count, shape, attribute)), attribute
            )
            if attribute.initializer not in (None, self.initializers.get(name)):
                late.append("initializer")
            if late:
                warnings.warn(
                    f"shared parameter {name!r} keeps the settings of its first declaration; a later one has other "
                    f"values of {', '.join(late)}",
                    stacklevel=2,
                )
            return name
        self.parameters[name] = self.defaults.fill(_configure(name, count, shape, attribute))
        if attribute.initializer is not None:
            self.initializers[name] = attribute.initializer
        return name


def _configure(name: str, size: int, dims: tuple[int, ...], attribute: ParameterAttribute) -> ParameterConfig:
    mean, std, strategy, smart = 0.0, 0.01, NORMAL, False
    if not attribute.has_initial_values:
        std, smart = 1.0 / math.sqrt(dims[0] if dims else size), True
    elif attribute.initial_max is not None and attribute.initial_min is not None:
        mean = (attribute.initial_max + attribute.initial_min) / 2
        std, strategy = mean - attribute.initial_min, UNIFORM
    else:
        mean = 0.0 if attribute.initial_mean is None else float(attribute.initial_mean)
        std = 0.01 if attribute.initial_std is None else float(attribute.initial_std)
    return ParameterConfig(
        name=name,
        size=size,
        learning_rate=1.0 if attribute.learning_rate is None else float(attribute.learning_rate),
        momentum=float(attribute.momentum or 0.0),
        initial_mean=mean,
        initial_std=std,
        decay_rate=float(attribute.l2_rate or 0.0),
        decay_rate_l1=float(attribute.l1_rate or 0.0),
        dims=dims,
        initial_strategy=strategy,
        initial_smart=smart,
        sparse_remote_update=attribute.sparse_update,
        gradient_clipping_threshold=float(attribute.gradient_clipping_threshold or 0.0),
        is_static=attribute.is_static,
        update_hooks=attribute.hooks,
        sparse_update=attribute.sparse_update,
    )


# setting of an attribute -> field of the configuration
_SETTINGS: Mapping[str, str] = {
    "is_static": "is_static",
    "initial_std": "initial_std",
    "initial_mean": "initial_mean",
    "initial_max": "initial_strategy",
    "initial_min": "initial_strategy",
    "l1_rate": "decay_rate_l1",
    "l2_rate": "decay_rate",
    "learning_rate": "learning_rate",
    "momentum": "momentum",
    "gradient_clipping_threshold": "gradient_clipping_threshold",
    "sparse_update": "sparse_update",
    "hooks": "update_hooks",
}


def _late_settings(
    known: ParameterConfig, wanted: ParameterConfig, attribute: ParameterAttribute
) -> list[str]:
    """Return the settings that an attribute of a shared parameter gives and the parameter does not have."""
    return [
        setting
        for setting, field_name in _SETTINGS.items()
        if not any(getattr(attribute, setting) is unset for unset in (None, False, ()))
        and getattr(known, field_name) != getattr(wanted, field_name)
    ]


_models: list[Model] = [Model()]


def current() -> Model:
    """Return the model to which layers are added."""
    return _models[-1]


def reset() -> None:
    """Replace the current model with an empty one."""
    _models[-1] = Model()


@contextlib.contextmanager
def fresh() -> Iterator[Model]:
    """Return a context with a new, empty namespace."""
    with entered(Model()) as space:
        yield space


@contextlib.contextmanager
def entered(space: Model) -> Iterator[Model]:
    """Return a context in which declarations are added to the namespace `space`."""
    _models.append(space)
    try:
        yield _models[-1]
    finally:
        _models.pop()
