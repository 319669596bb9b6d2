# SPDX-License-Identifier: Apache-2.0
"""Activations: ``TanhActivation`` is ``paddle.v2.activation.Tanh``, and so on."""

from __future__ import annotations

from paddle.v2 import activation

__all__ = []

for _name, _kind in vars(activation).items():
    if isinstance(_kind, type) and issubclass(_kind, activation.Base):
        globals()[f"{_name}Activation"] = _kind
        __all__.append(f"{_name}Activation")
