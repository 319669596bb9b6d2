# SPDX-License-Identifier: Apache-2.0
"""Rewrites that spare a compiled plan work and leave every result the same up to rounding.

The program itself is never changed; a test runs both forms and compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from paddle.graph.operator import Operator

Placed = tuple[int, Operator]


def fused(ops: Sequence[Placed], kept: Collection[str]) -> list[Placed]:
    """Return the operators with each cross_entropy_grad and the softmax_grad behind it made into one.

    The gradient of the probabilities is zero but for one place in each row; together the two are
    (Softmax - Label) dLoss, which needs neither that array nor a division.

    Args:
        ops: operators with their positions.
        kept: variables that somebody wants to see; what computes them stays.
    """
    readers = Counter(name for _, op in ops for name in op.input_names)
    losses = {op.outputs["X@GRAD"][0]: op for _, op in ops if _is_hard_loss(op)}
    result: list[Placed] = []
    dropped = set()
    for position, op in ops:
        between = op.inputs["Out@GRAD"][0] if op.type == "softmax_grad" and op.attrs["axis"] == -1 else ""
        loss = losses.get(between)
        if loss and readers[between] == 1 and between not in kept and loss.inputs["X"] == op.inputs["Out"]:
            dropped.add(between)
            result.append((position, _joined(loss, op)))
        else:
            result.append((position, op))
    return [(position, op) for position, op in result if dropped.isdisjoint(op.output_names)]


def _is_hard_loss(op: Operator) -> bool:
    return op.type == "cross_entropy_grad" and not op.attrs["soft_label"]


def _joined(loss: Operator, softmax: Operator) -> Operator:
    inputs = {
        "Label": loss.inputs["Label"],
        "Softmax": softmax.inputs["Out"],
        "Loss@GRAD": loss.inputs["Y@GRAD"],
    }
    outputs = {"Logits@GRAD": softmax.outputs["X@GRAD"]}
    attrs = {"ignore_index": loss.attrs["ignore_index"]}
    return Operator.make("softmax_with_cross_entropy_grad", inputs, outputs, attrs)
