# SPDX-License-Identifier: Apache-2.0
"""Learning methods in their v1 form, and `settings`, which makes one into an optimizer of ``paddle.v2``.

A learning method has a name and its own hyperparameters; all other values are arguments of `settings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paddle.signatures import parsed, takes
from paddle.trainer_config_helpers.configuration import current
from paddle.v2 import model, optimizer, regularization
from paddle.v2.errors import UsageError, UsageTypeError
from paddle_node.contract.classes import dataclass

__all__ = [
    "BaseRegularization",
    "BaseSGDOptimizer",
    "L2Regularization",
    "ModelAverage",
    "MomentumOptimizer",
    "Optimizer",
    "settings",
]


class Optimizer:
    """Base class of learning methods, the v1 form of optimizers."""

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return the learning method's settings under the names of the original's configuration."""
        raise NotImplementedError

    def extra_settings(self) -> None:
        """Set the method's defaults for parameters that are declared later."""

    @property
    def is_support_sparse(self) -> bool:
        """Return whether the method supports parameters with `sparse_update`."""
        return True


class BaseSGDOptimizer(Optimizer):
    """Base of learning methods that correspond to a class in ``paddle.v2.optimizer``.

    Attributes:
        v2_name: name of its class in ``paddle.v2.optimizer``.
        given: that class's own arguments.
    """

    v2_name = ""
    given: Mapping[str, Any] = MappingProxyType({})

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return the method and its settings under the names of the original's configuration."""
        raise NotImplementedError


class MomentumOptimizer(BaseSGDOptimizer):
    """SGD with momentum, ``paddle.v2.optimizer.Momentum``, as a learning method."""

    v2_name = "Momentum"

    def __init__(self, momentum: float | None = None, sparse: bool = False) -> None:
        self.given = {"momentum": momentum, "sparse": sparse}

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return only the method's name, because the momentum is a default of parameters instead of a setting."""
        return {"learning_method": "sparse_momentum" if self.given["sparse"] else "momentum"}

    def extra_settings(self) -> None:
        """Make the momentum the default of parameters that are declared later."""
        if self.given["momentum"] is not None:
            model.current().defaults.momentum = float(self.given["momentum"])


def _method(text: str, kind: str, names: str = "", is_support_sparse: bool = True) -> type[BaseSGDOptimizer]:
    """Return the class of a learning method.

    Args:
        text: class without "Optimizer" and arguments, in Python syntax.
        kind: its name in configurations.
        names: names of its arguments there, in their order.
    """
    name, parameters = parsed(text)
    body = takes(", ".join(("self", *map(str, parameters))))

    def construct(given: dict[str, Any]) -> None:
        given.pop("self").given = given

    def kwargs(self: BaseSGDOptimizer) -> dict[str, Any]:
        return {"learning_method": kind, **dict(zip(names.split(), self.given.values(), strict=True))}

    members = {
        "__init__": body(construct),
        "__doc__": f"``paddle.v2.optimizer.{name}``.",
        "__module__": __name__,
        "v2_name": name,
        "to_setting_kwargs": kwargs,
        "is_support_sparse": property(lambda self: is_support_sparse),
    }
    return type(f"{name}Optimizer", (BaseSGDOptimizer,), members)


for _made in (
    _method(
        "Adam(beta1=0.9, beta2=0.999, epsilon=1e-8)", "adam", "adam_beta1 adam_beta2 adam_epsilon", False
    ),
    _method("Adamax(beta1, beta2)", "adamax", "adam_beta1 adam_beta2", False),
    _method("AdaGrad()", "adagrad"),
    _method("RMSProp(rho=0.95, epsilon=1e-6)", "rmsprop", "ada_rou ada_epsilon"),
    _method("DecayedAdaGrad(rho=0.95, epsilon=1e-6)", "decayed_adagrad", "ada_rou ada_epsilon"),
    _method("AdaDelta(rho=0.95, epsilon=1e-6)", "adadelta", "ada_rou ada_epsilon"),
):
    globals()[_made.__name__] = _made
    __all__.append(_made.__name__)


class BaseRegularization(Optimizer):
    """Base class of regularization methods."""

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return an empty dict: the decay rate is a default of parameters instead of a setting."""
        return {}


@dataclass(frozen=True)
class L2Regularization(regularization.L2Regularization, BaseRegularization):
    """L2 weight decay with the given rate."""

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return an empty dict: the decay rate is a default of parameters instead of a setting."""
        return {}

    def extra_settings(self) -> None:
        """Make the decay rate the default of parameters that are declared later."""
        model.current().defaults.decay_rate = float(self.rate)


@dataclass(frozen=True)
class ModelAverage(optimizer.ModelAverage, Optimizer):
    """Model averaging: saves the mean of the values over a window, average_window times the updates so far."""

    def to_setting_kwargs(self) -> dict[str, Any]:
        """Return the arguments of model averaging by name."""
        return {
            "average_window": self.average_window,
            "max_average_window": self.max_average_window,
            "do_average_in_cpu": self.do_average_in_cpu,
        }


@takes(
    "batch_size, learning_rate=0.001, learning_rate_decay_a=0.0, learning_rate_decay_b=0.0, "
    "learning_rate_schedule='poly', learning_rate_args='', learning_method=None, regularization=None, is_async=False, "
    "model_average=None, gradient_clipping_threshold=None"
)
def settings(given: dict[str, Any]) -> None:
    """Set the optimizer, the batch size and the other training settings of a configuration.

    Args:
        batch_size: samples per batch of one trainer.
        learning_rate: rate of a parameter with factor 1; gradients are sums over the batch.
        learning_rate_decay_a: argument of the schedule.
        learning_rate_decay_b: argument of the schedule.
        learning_rate_schedule: the name of the schedule; see ``paddle.v2.optimizer``.
        learning_rate_args: segments of the two manual schedules, "s0:r0,s1:r1,...".
        learning_method: the optimizer, such as AdamOptimizer(); MomentumOptimizer() by default.
        regularization: L2Regularization, or a list with one.
        is_async: whether parameter servers apply each gradient on arrival.
        model_average: ModelAverage, or None.
        gradient_clipping_threshold: bound on every element of a gradient.
    """
    arguments = dict(given)
    batch_size, method = arguments.pop("batch_size"), arguments.pop("learning_method") or MomentumOptimizer()
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise UsageError(f"settings: batch_size must be a whole number of at least 1, got {batch_size!r}")
    if not isinstance(method, BaseSGDOptimizer):
        raise UsageTypeError(
            f"settings: learning_method takes an instance such as AdamOptimizer(), got {method!r}"
        )
    penalty = arguments["regularization"]
    if isinstance(penalty, Sequence):
        if len(penalty) > 1:
            raise UsageError(f"settings: only one regularization is supported, got {len(penalty)}")
        arguments["regularization"] = penalty[0] if penalty else None
    configuration = current()
    configuration.batch_size, configuration.settings = batch_size, given
    configuration.optimizer = getattr(optimizer, method.v2_name)(**method.given, **arguments)
