# SPDX-License-Identifier: Apache-2.0
"""Runs one operator in a program of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paddle.graph import Executor, Program, Scope
from paddle.ops.base.lod import LoDArray, lod_of
from paddle.ops.base.registry import lookup


def run_op(
    op_type: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any] | None = None, parts: int = 1
) -> list[Any]:
    """Run one operator in a program of its own and return its outputs in slot order."""
    program = Program()
    program.random_seed = 3
    block, feed, names = program.global_block(), {}, {}
    for slot, values in inputs.items():
        listed = values if isinstance(values, list) else [values]
        names[slot] = [f"{slot}_{at}" for at in range(len(listed))]
        for name, value in zip(names[slot], listed, strict=True):
            feed[name] = value if isinstance(value, LoDArray) else np.asarray(value)
            block.create_var(name, feed[name].shape, feed[name].dtype, lod_level=len(lod_of(value)))
    outputs = {
        slot.name: [f"{slot.name}_{at}_out" for at in range(parts if slot.many else 1)]
        for slot in lookup(op_type).outputs
    }
    block.append_op(op_type, names, outputs, attrs or {})
    fetches = [name for listed in outputs.values() for name in listed]
    return Executor().run(program, feed, fetches, Scope(), step=0)
