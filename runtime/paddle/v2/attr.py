# SPDX-License-Identifier: Apache-2.0
"""Attributes of parameters and layers: ``Param``, ``Extra`` and ``Hook``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paddle.signatures import explained
from paddle.v2.errors import UsageError
from paddle.v2.parameter_format import UpdateHook
from paddle_node.contract.classes import dataclass, field, fields, replace

__all__ = [
    "Extra", "ExtraAttr", "ExtraLayerAttribute", "Hook", "HookAttr", "HookAttribute", "Param", "ParamAttr",
    "ParameterAttribute",
]  # fmt: skip

_EXTRAS = frozenset(["device", "drop_rate", "error_clipping_threshold"])

Initializer = Callable[[str], np.ndarray]


class HookAttribute:
    """A hook on a parameter's updates; ``pruning`` retains only the (1 - sparsity_ratio) * size largest weights."""

    def __init__(self, type: str, sparsity_ratio: float | None = None) -> None:
        ratio = 0.6 if sparsity_ratio is None else float(sparsity_ratio)
        if type != "pruning":
            raise UsageError(f"update hook {type!r} is unknown; only 'pruning' is supported")
        if not 0 <= ratio <= 1:
            raise UsageError(f"sparsity_ratio must be in [0, 1], got {ratio}")
        self.hook = UpdateHook(type, ratio)


@explained
@dataclass(eq=False, repr=False)
class ParameterAttribute:
    """Initial values and update settings of a parameter; None selects the layer's or the optimizer's default.

    By default, values are drawn from N(0, 1/sqrt(dims[0])). ``initial_std`` and ``initial_mean`` (default 0.01 and 0)
    select a normal distribution, ``initial_max`` and ``initial_min`` a uniform one. A static parameter ignores learning
    rate, momentum and decay.
    """

    name: str | None = None
    is_static: bool = False
    initial_std: float | None = None
    initial_mean: float | None = None
    initial_max: float | None = None
    initial_min: float | None = None
    l1_rate: float | None = None
    l2_rate: float | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    gradient_clipping_threshold: float | None = None
    sparse_update: bool = False
    update_hooks: HookAttribute | Sequence[HookAttribute] | None = None
    initializer: Initializer | None = None
    hooks: tuple[UpdateHook, ...] = field(init=False)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name, None)
            if each.type == "float | None" and not isinstance(value, (int, float, np.number, type(None))):
                raise UsageError(f"Param({each.name}=...) must be a number, got {value!r}")
        low, high = self.initial_min, self.initial_max
        if (high is None) != (low is None):
            raise UsageError("Param: give both initial_min and initial_max, or neither")
        if high is not None and low is not None and not low < high:
            raise UsageError(f"initial_min {low} must be below initial_max {high}")
        if self.sparse_update and self.is_static:
            raise UsageError(
                f"parameter {self.name or '(unnamed)'} cannot be both sparse_update and is_static: set one of them "
                "to False"
            )
        self.is_static, self.sparse_update = bool(self.is_static), bool(self.sparse_update)
        if self.is_static:
            self.l1_rate = self.l2_rate = self.learning_rate = self.momentum = None
        given = self.update_hooks
        hooks = [given] if isinstance(given, HookAttribute) else given or ()
        self.hooks = tuple(each.hook for each in hooks)

    @property
    def has_initial_values(self) -> bool:
        """Return whether any ``initial_*`` argument was given."""
        return any(
            value is not None
            for value in (self.initial_std, self.initial_mean, self.initial_max, self.initial_min)
        )

    def or_normal(self, mean: float, std: float) -> ParameterAttribute:
        """Return this attribute or, if it has no ``initial_*``, a copy with initial values from N(mean, std²)."""
        return self if self.has_initial_values else replace(self, initial_mean=mean, initial_std=std)

    def set_default_parameter_name(self, name: str) -> None:
        """Set the parameter's name, unless it already has one."""
        if self.name is None:
            self.name = name

    @staticmethod
    def to_bias(bias_attr: object) -> ParameterAttribute | bool:
        """Return the argument if it is an attribute, and False (no bias) otherwise."""
        return bias_attr if isinstance(bias_attr, ParameterAttribute) else False


@explained
@dataclass
class ExtraLayerAttribute:
    """Settings that all layers accept: dropout after the activation, and error clipping. ``device`` has no effect.

    Attributes:
        supported: the settings that the layer supports, as declared with ``layer_support``.
    """

    error_clipping_threshold: float | None = None
    drop_rate: float | None = None
    device: int | None = None
    supported: frozenset[str] = field(init=False, repr=False, compare=False, default=_EXTRAS)

    def __post_init__(self) -> None:
        if self.drop_rate is not None and not 0 <= self.drop_rate <= 1:
            raise UsageError(f"drop_rate must be in [0, 1], got {self.drop_rate}")
        if self.error_clipping_threshold is not None and self.error_clipping_threshold < 0:
            raise UsageError(
                f"error_clipping_threshold must not be negative, got {self.error_clipping_threshold}"
            )

    def check(self, layer_name: str) -> None:
        """Check that a layer supports the given settings.

        Raises:
            NotImplementedError: the layer does not support a setting; the message names both.
        """
        for each in self.to_kwargs(self):
            if each not in self.supported:
                raise NotImplementedError(f"layer {layer_name} does not support {each}")

    @staticmethod
    def to_kwargs(attr: ExtraLayerAttribute | None) -> dict[str, Any]:
        """Return the settings that are not None, by name."""
        found = {} if attr is None else {each: getattr(attr, each) for each in sorted(_EXTRAS)}
        return {each: value for each, value in found.items() if value is not None}


Hook = HookAttr = HookAttribute
Param = ParamAttr = ParameterAttribute
Extra = ExtraAttr = ExtraLayerAttribute
