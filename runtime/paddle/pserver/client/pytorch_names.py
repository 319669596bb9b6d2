# SPDX-License-Identifier: Apache-2.0
"""Optimizers under PyTorch's names, as functions that return an `OptimizerSpec`, and arguments with alternative names.

Each optimizer computes the same values as PyTorch's optimizer of that name. On sparse tensors, rows without a gradient
stay unchanged. All raise ConfigError for an unknown argument or an invalid value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from paddle.errors import ConfigError
from paddle.optim.spec import OptimizerSpec

_NEAR = 0.5  # minimum similarity of two names, from 0 to 1
_RATES = frozenset({"lr", "learning_rate", "rate"})


def SGD(lr: float = 1e-3, **others: object) -> OptimizerSpec:  # noqa: N802
    """Return the specification of gradient descent, w -= lr g, as in `torch.optim.SGD` without momentum."""
    return _made("SGD", "sgd", lr, {}, others, ("lr",))


def Adagrad(  # noqa: N802
    lr: float = 1e-2, initial_accumulator_value: float = 0.0, eps: float = 1e-10, **others: object
) -> OptimizerSpec:
    """Return the specification of AdaGrad with one state per element, as in `torch.optim.Adagrad`.

    s += g², and then w -= lr g / (√s + eps).
    """
    hyper = {"epsilon": eps, "initial_accumulator_value": initial_accumulator_value}
    return _made("Adagrad", "fluid_adagrad", lr, hyper, others, ("lr", "initial_accumulator_value", "eps"))


def RowWiseAdagrad(  # noqa: N802
    lr: float = 1e-2, initial_accumulator_value: float = 0.0, eps: float = 1e-10, **others: object
) -> OptimizerSpec:
    """Return the specification of row-wise AdaGrad, as in FBGEMM, with one state per row.

    s += mean(g²) over the elements of the row, and then w -= lr g / (√s + eps).
    """
    hyper = {"epsilon": eps, "initial_accumulator_value": initial_accumulator_value}
    return _made(
        "RowWiseAdagrad", "row_adagrad", lr, hyper, others, ("lr", "initial_accumulator_value", "eps")
    )


def SparseAdam(  # noqa: N802
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    **others: object,
) -> OptimizerSpec:
    """Return the specification of Adam that updates only rows with a gradient, as in `torch.optim.SparseAdam`.

    The bias correction counts the steps of the job, not those of the row.
    """
    hyper = {"beta1": betas[0], "beta2": betas[1], "epsilon": eps}
    return _made("SparseAdam", "lazy_adam", lr, hyper, others, ("lr", "betas", "eps"))


def refuse_others(what: str, others: Mapping[str, object], names: Iterable[str]) -> None:
    """Raise ConfigError if there are unknown arguments; the message suggests the most similar known name.

    Args:
        what: name of the function, for the message.
        others: the unknown arguments.
        names: names of the known arguments.
    """
    known = sorted(names)
    for name in others:
        near = get_close_matches(name, known, 1, _NEAR) or [each for each in known if each in name]
        if name in _RATES:
            near = ["lr" if "lr" in known else "optimizer=Adagrad(lr=...)"]
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
        raise ConfigError(f"{what}: unknown argument {name!r}: {hint}")


def one_of(what: str, **given: Any) -> Any:
    """Return the value of an argument with several names, given by name -> value or None; None if none is given.

    Args:
        what: name of the function, for the message.

    Raises:
        ConfigError: more than one of the names is given.
    """
    found = {name: value for name, value in given.items() if value is not None}
    if len(found) > 1:
        raise ConfigError(
            f"{what}: {' and '.join(found)} are two names of the same argument; pass only one of them"
        )
    return next(iter(found.values()), None)


def _made(
    what: str,
    rule: str,
    lr: float,
    hyper: Mapping[str, float],
    others: Mapping[str, object],
    names: tuple[str, ...],
) -> OptimizerSpec:
    refuse_others(what, others, names)
    try:
        return OptimizerSpec(rule, hyper, learning_rate=lr)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None
