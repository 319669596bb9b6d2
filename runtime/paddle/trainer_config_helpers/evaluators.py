# SPDX-License-Identifier: Apache-2.0
"""Evaluators: ``auc_evaluator`` is ``paddle.v2.evaluator.auc``, and so on."""

from __future__ import annotations

from types import FunctionType

from paddle.trainer_config_helpers.v1_names import missing
from paddle.v2 import evaluator

__all__ = []

_MAKERS = (
    evaluator.__name__,
    "paddle.signatures",
)  # functions that are defined there or generated from a row
for _name, _found in vars(evaluator).items():
    _is_own = isinstance(_found, FunctionType) and _found.__module__ in _MAKERS and not _name.startswith("_")
    if _is_own and _name != "function":
        _old = _name if _name == "evaluator_base" else f"{_name}_evaluator"
        globals()[_old] = _found
        __all__.append(_old)


def __getattr__(name: str) -> object:
    now = name.removesuffix("_evaluator")
    if now != name:
        return getattr(evaluator, now)
    raise missing(__name__, name, __all__)
