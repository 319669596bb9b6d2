# SPDX-License-Identifier: Apache-2.0
"""ParamAttr: the attributes of a layer's parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeAlias

from paddle.fluid.clip import BaseGradientClipAttr
from paddle.fluid.errors import FluidTypeError, answering
from paddle.fluid.initializer import Initializer
from paddle.fluid.program.variable import Variable
from paddle.fluid.regularizer import WeightDecayRegularizer
from paddle.signatures import explained
from paddle_node.contract.classes import dataclass, replace


@explained
@dataclass
class ParamAttr:
    """Attributes of one parameter: name, initial value, learning rate, decay and clipping.

    Attributes:
        name: its name, or None to derive it from the layer's. An existing parameter of this name is shared.
        initializer: sets the initial values; None means the layer's initializer.
        learning_rate: factor of the optimizer's rate.
        regularizer: regularizer that overrides the optimizer's.
        trainable: whether training updates the parameter.
        gradient_clip: clips the gradient; None means the clip of `set_gradient_clip`.
        do_model_average: whether model averaging includes it.
    """

    name: str | None = None
    initializer: Initializer | None = None
    learning_rate: float | Variable = 1.0
    regularizer: WeightDecayRegularizer | None = None
    trainable: bool = True
    gradient_clip: BaseGradientClipAttr | None = None
    do_model_average: bool = True

    def __post_init__(self) -> None:
        initializer: object = self.initializer
        if isinstance(initializer, type):
            name = initializer.__name__
            raise FluidTypeError(f"ParamAttr: initializer: {name} is a class: pass an instance, {name}(...)")
        if self.regularizer is not None and not callable(self.regularizer):
            raise FluidTypeError(
                f"ParamAttr: regularizer: expected fluid.regularizer.L2Decay(coefficient), got {self.regularizer!r}"
            )

    def attributes(self) -> dict[str, Any]:
        """Return the settings that a parameter stores as attributes, by name."""
        return {
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "gradient_clip_attr": self.gradient_clip,
            "do_model_average": self.do_model_average,
        }

    def named(self, name: str) -> Self:
        """Return a copy of these settings with the given parameter name."""
        return replace(self, name=name)


@explained
@dataclass(init=False)
class WeightNormParamAttr(ParamAttr):
    """Attributes of a parameter with weight normalization (Salimans and Kingma, 2016), W = g V/||V||.

    Attributes:
        dim: norms are computed over slices along this axis; None means over the whole parameter.
    """

    dim: int | None = None

    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float | Variable = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        gradient_clip: BaseGradientClipAttr | None = None,
        do_model_average: bool = False,
    ) -> None:
        """Create the attributes; the arguments after dim are those of `ParamAttr`, in the original's order."""
        super().__init__(
            name, initializer, learning_rate, regularizer, trainable, gradient_clip, do_model_average
        )
        self.dim = dim


ParamAttrLike: TypeAlias = "ParamAttr | str | Initializer | WeightDecayRegularizer | bool | None"


def to_attr(given: ParamAttrLike) -> ParamAttr | None:
    """Convert a layer's argument to a ParamAttr; return None for False, which means no parameter.

    Raises:
        FluidTypeError: the argument has the wrong type.
    """
    if given is None or given is True:
        return ParamAttr()
    if given is False:
        return None
    if isinstance(given, ParamAttr):
        return replace(given)
    if isinstance(given, str):
        return ParamAttr(name=given)
    if isinstance(given, Initializer):
        return ParamAttr(initializer=given)
    if isinstance(given, WeightDecayRegularizer):
        return ParamAttr(regularizer=given)
    raise FluidTypeError(
        f"expected a ParamAttr, a name, an initializer, a regularizer, a bool or None, got {given!r}"
    )


def to_attrs(given: ParamAttrLike | Sequence[ParamAttrLike], count: int) -> list[ParamAttr | None]:
    """Return one ParamAttr for each of `count` parameters.

    Raises:
        FluidTypeError: a list of a different length was given.
    """
    if not isinstance(given, Sequence) or isinstance(given, str):
        return [to_attr(given) for _ in range(count)]
    if len(given) not in (1, count):
        raise FluidTypeError(f"expected 1 or {count} attributes, got {len(given)}")
    return [to_attr(each) for each in (given if len(given) == count else list(given) * count)]


__getattr__ = answering(__name__)
