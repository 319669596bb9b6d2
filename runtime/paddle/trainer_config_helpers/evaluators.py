# SPDX-License-Identifier: Apache-2.0
"""Evaluators: ``auc_evaluator`` is ``paddle.v2.evaluator.auc``, and so on."""

from __future__ import annotations

from types import FunctionType

from paddle.trainer_config_helpers.v1_names import missing
from paddle.v2 import evaluator

__all__ = []

for _name, _found in vars(evaluator).items():
    # functions that `paddle.signatures` made have no module of their own
    _is_own = isinstance(_found, FunctionType) and not _name.startswith("_") and _name != "function"
    if _is_own:
        globals()[f"{_name}_evaluator"] = _found
        __all__.append(f"{_name}_evaluator")


def __getattr__(name: str) -> object:
    now = name.removesuffix("_evaluator")
    if now != name:
        return getattr(evaluator, now)
    raise missing(__name__, name, __all__)
