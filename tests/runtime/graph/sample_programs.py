# SPDX-License-Identifier: Apache-2.0
"""Small programs that several tests build: a classifier over four words that share one table, and single operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paddle.graph import Block, Program, Scope, Variable, append_backward

WORDS = 30


class Builder:
    """Appends operators under generated names."""

    def __init__(self, dtype: str = "float64") -> None:
        self.program = Program()
        self.program.random_seed = 5
        self.dtype = dtype
        self._count = 0

    @property
    def block(self) -> Block:
        return self.program.global_block()

    def op(
        self,
        op_type: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
        out: str = "Out",
    ) -> Variable:
        self._count += 1
        name = f"{op_type}_{self._count}"
        self.block.append_op(op_type, inputs, {out: name}, attrs or {})
        return self.block.var(name)

    def data(self, name: str, shape: Sequence[int], dtype: str | None = None) -> Variable:
        return self.block.create_var(name, shape, dtype or self.dtype, stop_gradient=True)

    def parameter(self, name: str, shape: Sequence[int], **attributes: Any) -> Variable:
        return self.block.create_parameter(name, shape, self.dtype, **attributes)

    def fc(self, x: Variable, size: int, name: str) -> Variable:
        product = self.op("mul", {"X": x, "Y": self.parameter(f"{name}.w", (x.shape[-1], size))})
        return self.op(
            "elementwise_add", {"X": product, "Y": self.parameter(f"{name}.b", (size,))}, {"axis": 1}
        )


def word_program(
    *, sparse: bool = True, dropout: float = 0.5, dtype: str = "float64"
) -> tuple[Builder, Variable]:
    """Four words through one table, a hidden layer with dropout, softmax over the words, summed cost."""
    build = Builder(dtype)
    words = [build.data(f"word_{n}", (-1, 1), "int64") for n in range(4)]
    vectors = [
        build.op(
            "lookup_table", {"W": build.parameter("table", (WORDS, 3)), "Ids": word}, {"is_sparse": sparse}
        )
        for word in words
    ]
    hidden = build.op(
        "sigmoid", {"X": build.fc(build.op("concat", {"X": vectors}, {"axis": 1}), 6, "hidden")}
    )
    if dropout:
        hidden = build.op("dropout", {"X": hidden}, {"dropout_prob": dropout})
    probabilities = build.op("softmax", {"X": build.fc(hidden, WORDS, "output")})
    label = build.data("label", (-1, 1), "int64")
    costs = build.op("cross_entropy", {"X": probabilities, "Label": label}, out="Y")
    return build, build.op("reduce_sum", {"X": costs}, {"reduce_all": True})


def word_feed(batch: int = 8, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    names = [*(f"word_{n}" for n in range(4)), "label"]
    return {name: rng.integers(0, WORDS, (batch, 1)) for name in names}


def filled_scope(program: Program, seed: int = 1) -> Scope:
    scope, rng = Scope(), np.random.default_rng(seed)
    for parameter in program.global_block().all_parameters():
        scope.set(parameter.name, rng.standard_normal(parameter.shape).astype(parameter.dtype))
    return scope


def with_gradients(loss: Variable) -> list[str]:
    """Append the backward pass and return the names of the gradients, in the order of the parameters."""
    return [gradient.name for _, gradient in append_backward(loss)]
