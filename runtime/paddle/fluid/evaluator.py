# SPDX-License-Identifier: Apache-2.0
"""Evaluators, which accumulate metrics over minibatches in variables of a program (superseded by `fluid.metrics`).

The classes of `fluid.metrics` accumulate in Python instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidError
from paddle.fluid.executor import Executor
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.control_flow import not_equal
from paddle.fluid.layers.metric_op import accuracy
from paddle.fluid.layers.nn.elements import reduce_sum
from paddle.fluid.layers.nn.sequences import chunk_eval, edit_distance
from paddle.fluid.layers.tensor import cast, fill_constant, sums
from paddle.fluid.metrics import DetectionMAP
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Variable
from paddle.fluid.run.scope import global_scope
from paddle.graph import unique_name
from paddle.graph.scope import fetched

__all__ = ["Accuracy", "ChunkEvaluator", "DetectionMAP", "EditDistance", "Evaluator"]

Array = npt.NDArray[Any]


class Evaluator:
    """Base class of evaluators, whose counts are program variables that each run of the main program updates.

    Attributes:
        metrics: variables that hold the metrics of one minibatch.
        states: variables that hold the counts since the last reset.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        """Create an evaluator in the default main program; see `LayerHelper` for the other arguments."""
        self.helper = LayerHelper(name, **kwargs)
        self.metrics: list[Variable] = []
        self.states: list[Variable] = []

    def reset(self, executor: Executor, reset_program: Program | None = None) -> None:
        """Set all counts in the global scope to 0. Both arguments are ignored, because no program needs to run."""
        for state in self.states:
            global_scope().set(state.name, np.zeros(state.shape, state.dtype))

    def _create_state(self, suffix: str, dtype: npt.DTypeLike, shape: Sequence[int]) -> Variable:
        """Create a variable that holds a count since the last reset; return it."""
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_global_variable(name, shape, dtype, persistable=True)
        self.helper.set_variable_initializer(state, Constant(0))
        self.states.append(state)
        return state

    create_state = _create_state  # the name until 0.14

    def _add_up(self, suffix: str, counted: Variable) -> None:
        """Add a minibatch's count, (1,) or scalar, to a state variable of the same dtype."""
        state = self._create_state(suffix, counted.dtype, (1,))
        sums([state, counted], out=state)

    def _counts(self) -> list[float]:
        return [float(global_scope().get(state.name).reshape(-1)[0]) for state in self.states]


class Accuracy(Evaluator):
    """Computes top-k accuracy: the fraction of rows whose label is among the k highest scores.

    `metrics` contains the accuracy of the minibatch.
    """

    def __init__(self, input: Variable, label: Variable, k: int = 1) -> None:
        super().__init__("accuracy")
        right, total = (
            self.helper.create_variable_for_type_inference("int32", stop_gradient=True) for _ in range(2)
        )
        self.metrics.append(accuracy(input, label, k, right, total))
        self._add_up("total", total)
        self._add_up("correct", right)

    def eval(self, executor: Executor, eval_program: Program | None = None) -> Array:
        """Return the fraction of correct rows since the last reset, float32 (1,).

        Raises:
            FluidError: no minibatch was counted.
        """
        total, right = self._counts()
        if not total:
            raise FluidError("Accuracy: no batch has been counted yet; run the program first")
        return _one(right / total)


class ChunkEvaluator(Evaluator):
    """Computes precision, recall and F1 score of chunks, as in named entity recognition.

    The arguments are those of `layers.chunk_eval`; `metrics` contains the values of one minibatch.
    """

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: Sequence[int] | None = None,
    ) -> None:
        super().__init__("chunk_eval")
        *rates, found, there, right = chunk_eval(
            input, label, chunk_scheme, num_chunk_types, excluded_chunk_types
        )
        self.metrics += rates
        for suffix, count in (
            ("num_infer_chunks", found),
            ("num_label_chunks", there),
            ("num_correct_chunks", right),
        ):
            self._add_up(suffix, count)

    def eval(self, executor: Executor, eval_program: Program | None = None) -> tuple[Array, Array, Array]:
        """Return precision, recall and F1 since the last reset, each float32 (1,)."""
        found, there, right = self._counts()
        precision, recall = (right / found if found else 0.0), (right / there if there else 0.0)
        f1 = 2 * precision * recall / (precision + recall) if right else 0.0
        return _one(precision), _one(recall), _one(f1)


class EditDistance(Evaluator):
    """Computes the mean edit distance, and the fraction of sequences with errors.

    The arguments are those of `layers.edit_distance`; `metrics` contains (distances, count) of one minibatch.
    """

    def __init__(self, input: Variable, label: Variable, ignored_tokens: Sequence[int] | None = None) -> None:
        super().__init__("edit_distance")
        distances, pairs = edit_distance(input, label, ignored_tokens=ignored_tokens)
        wrong = cast(not_equal(distances, fill_constant([1], "float32", 0.0)), "int64")
        self.metrics += [distances, pairs]
        for suffix, count in (
            ("total_distance", reduce_sum(distances)),
            ("seq_num", pairs),
            ("instance_error", reduce_sum(wrong)),
        ):
            self._add_up(suffix, count)

    def eval(self, executor: Executor, eval_program: Program | None = None) -> tuple[Array, Array]:
        """Return the mean distance and the fraction of sequences with errors since the last reset, each float32 (1,).

        Raises:
            FluidError: no minibatch was counted.
        """
        total, pairs, wrong = self._counts()
        if not pairs:
            raise FluidError("EditDistance: no batch has been counted yet; run the program first")
        return _one(total / pairs), _one(wrong / pairs)


def _one(number: float) -> Array:
    return fetched(np.array([number], np.float32))
