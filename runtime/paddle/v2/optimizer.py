# SPDX-License-Identifier: Apache-2.0
"""Optimizers of the v2 API: an update rule, a learning rate, and the learning rate's schedule.

Creating an optimizer sets defaults for parameters that are declared later. When SGD is created, the defaults also
replace momentum, decay or clipping of 0. As in the original, the defaults outlive the optimizer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

from paddle.errors import did_you_mean
from paddle.optim.learning_rate import LearningRate
from paddle.optim.rules.table import RULES, V2
from paddle.optim.schedule import unused_arguments
from paddle.optim.spec import OptimizerSpec
from paddle.signatures import advice, bound, explained, parsed
from paddle.v2 import model
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.regularization import L2Regularization
from paddle_node.contract.classes import dataclass

_log = logging.getLogger(__name__)


@explained
@dataclass(frozen=True)
class ModelAverage:
    """Averages parameters over a window: the last average_window * updates updates, at most max_average_window."""

    average_window: float
    max_average_window: int | None = None
    do_average_in_cpu: bool = False

    def __post_init__(self) -> None:
        if not self.average_window > 0:
            raise UsageError(f"ModelAverage: average_window must be positive, got {self.average_window}")
        if self.max_average_window is not None and self.max_average_window < 1:
            raise UsageError(
                f"ModelAverage: max_average_window must be at least 1, got {self.max_average_window}"
            )


class CommonArguments(TypedDict, total=False):
    """The keyword arguments that every optimizer accepts; `Optimizer` describes them."""

    learning_rate: float
    learning_rate_decay_a: float
    learning_rate_decay_b: float
    learning_rate_schedule: str
    learning_rate_args: str
    regularization: L2Regularization | None
    is_async: bool
    model_average: ModelAverage | None
    gradient_clipping_threshold: float | None
    async_lagged_grad_discard_ratio: float
    batch_size: int | None


class Optimizer:
    """Base class of optimizers.

    Args:
        learning_rate: the learning rate, which a parameter's own factor multiplies; gradients are sums over the batch.
        learning_rate_decay_a: an argument of the schedule.
        learning_rate_decay_b: an argument of the schedule.
        learning_rate_schedule: "constant", "poly", "caffe_poly", "exp", "discexp", "linear", "manual" or "pass_manual".
        learning_rate_args: the segments of the two manual schedules, "s0:r0,s1:r1,...".
        regularization: L2Regularization, or None.
        is_async: whether parameter servers apply each gradient when it arrives.
        model_average: ModelAverage, or None.
        gradient_clipping_threshold: the bound on the absolute value of each element of a gradient.
        async_lagged_grad_discard_ratio: in asynchronous training, gradients that are older than this ratio times the
            number of trainers, in pushes, are discarded.
        batch_size: has no effect.

    Raises:
        ConfigError: an argument is not a finite number, or the schedule is malformed.
    """

    rule = ""
    hyper: Mapping[str, float] = MappingProxyType({})  # the rule's own numbers

    def __init__(
        self,
        learning_rate: float = 1e-3,
        learning_rate_decay_a: float = 0.0,
        learning_rate_decay_b: float = 0.0,
        learning_rate_schedule: str = "poly",
        learning_rate_args: str = "",
        regularization: L2Regularization | None = None,
        is_async: bool = False,
        model_average: ModelAverage | None = None,
        gradient_clipping_threshold: float | None = None,
        async_lagged_grad_discard_ratio: float = 1.5,
        batch_size: int | None = None,
    ) -> None:
        if regularization is not None and not isinstance(regularization, L2Regularization):
            raise UsageTypeError(
                f"regularization takes paddle.optimizer.L2Regularization(rate), got {regularization!r}"
            )
        if model_average is not None and not isinstance(model_average, ModelAverage):
            raise UsageTypeError(
                f"model_average takes paddle.optimizer.ModelAverage(...), got {model_average!r}"
            )
        if gradient_clipping_threshold is not None and not 0 <= gradient_clipping_threshold < math.inf:
            raise UsageError(
                f"gradient_clipping_threshold must be finite and not negative, got {gradient_clipping_threshold}"
            )
        self.spec = OptimizerSpec(
            rule=self.rule,
            hyper=dict(self.hyper),
            learning_rate=learning_rate,
            schedule=learning_rate_schedule,
            decay_a=learning_rate_decay_a,
            decay_b=learning_rate_decay_b,
            schedule_args=learning_rate_args,
            is_async=bool(is_async),
            discard_ratio=async_lagged_grad_discard_ratio,
        )
        # Parsed now, so that errors are raised at the line that caused them.
        LearningRate(self.spec)
        self._report_ignored(regularization)
        self.model_average = model_average
        self._own: dict[str, float] = {}  # the defaults that this optimizer sets
        if regularization is not None:
            self._set_default("decay_rate", regularization.rate)
        if gradient_clipping_threshold is not None:
            self._set_default("gradient_clipping_threshold", gradient_clipping_threshold)

    def _report_ignored(self, regularization: L2Regularization | None) -> None:
        """Log the arguments that the rule does not use."""
        rule, spec = RULES[self.rule], self.spec
        has_schedule = spec.schedule not in ("constant", "poly") or spec.decay_a
        unused = {
            "regularization": bool(regularization and not rule.has_momentum),
            "the learning rate schedule": bool(has_schedule and not rule.follows_schedule),
        }
        names = " and ".join(name for name, is_unused in unused.items() if is_unused)
        if names:
            _log.warning("%s ignores %s, as in the original", type(self).__name__, names)
        why = unused_arguments(spec.schedule, spec.decay_a, spec.decay_b, spec.schedule_args)
        if why and rule.follows_schedule:
            _log.warning("%s: %s", type(self).__name__, why)

    def _set_default(self, name: str, value: float) -> None:
        self._own[name] = float(value)
        setattr(model.current().defaults, name, float(value))

    def report_inherited(self) -> None:
        """Log the settings that apply to this optimizer, but that another one of this process has made."""
        applied = vars(model.current().defaults)
        if not RULES[self.rule].has_momentum:
            applied = {"gradient_clipping_threshold": applied["gradient_clipping_threshold"]}
        others = {name: value for name, value in applied.items() if value != self._own.get(name, 0.0)}
        if others:
            listed = ", ".join(f"{name}={value:g}" for name, value in others.items())
            _log.warning(
                "%s is used with %s, which was set elsewhere in this process, as in the original; to compare "
                "optimizers, run each in a process of its own",
                type(self).__name__,
                listed,
            )


class Momentum(Optimizer):
    """SGD with momentum: m = momentum * m - lr * g - lr * decay * w; w += m.

    ``sparse`` selects the equivalent rule for sparse_update parameters.
    """

    rule = "momentum"

    def __init__(
        self, momentum: float | None = None, sparse: bool = False, **common: Unpack[CommonArguments]
    ) -> None:
        if momentum is not None and not 0 <= momentum < math.inf:
            raise UsageError(f"Momentum: momentum must be finite and not negative, got {momentum}")
        if sparse:
            self.rule = "sparse_momentum"
        super().__init__(**_known(self, common))
        if momentum is not None:
            self._set_default("momentum", momentum)


def _known(optimizer: Optimizer, given: CommonArguments) -> CommonArguments:
    """Check keyword arguments and name unknown ones; Python's own message would name the base class."""
    own = [each for each in signature(type(optimizer)).parameters if each != "common"]
    for name in given:
        if name not in CommonArguments.__annotations__:
            hint = advice(name, [*own, *CommonArguments.__annotations__])
            raise UsageTypeError(
                f"paddle.optimizer.{type(optimizer).__name__} takes no argument {name!r}; {hint}"
            )
    return given


def _optimizer(rule: str, text: str) -> type[Optimizer]:
    """Return the optimizer class of a rule: its arguments are the rule's hyperparameters, then the common ones."""
    name, parameters = parsed(text)
    own = Parameter("self", Parameter.POSITIONAL_ONLY)
    arguments = Signature([own, *parameters, Parameter("common", Parameter.VAR_KEYWORD)])

    def construct(self: Optimizer, *args: Any, **named: Any) -> None:
        given = bound(name, arguments, (self, *args), named)
        self.hyper = {each.name: given[each.name] for each in parameters}
        Optimizer.__init__(self, **_known(self, given.get("common", {})))

    construct.__signature__ = arguments  # type: ignore[attr-defined]
    (first, *_) = (RULES[rule].__doc__ or "").splitlines()
    body = {"__init__": construct, "__doc__": first, "__module__": __name__, "rule": rule}
    return type(name, (Optimizer,), body)


__all__ = ["L2Regularization", "ModelAverage", "Momentum", "Optimizer"]

for _rule, _row in V2.items():
    _made = _optimizer(_rule, _row)
    globals()[_made.__name__] = _made
    __all__.append(_made.__name__)


def __getattr__(name: str) -> Any:
    if name == "SGD":
        raise AttributeError(
            "module 'paddle.v2.optimizer' has no attribute 'SGD': plain gradient descent is "
            "paddle.optimizer.Momentum(momentum=0, learning_rate=...); the trainer is paddle.trainer.SGD"
        )
    raise AttributeError(
        f"module 'paddle.v2.optimizer' has no attribute {name!r}{did_you_mean(name, __all__)}"
    )
