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
    """Return the operators with some that belong together made into one.

    Args:
        ops: operators with their positions.
        kept: variables that somebody wants to see; what computes them stays.
    """
    return _with_scaled_terms(_with_joined_tables(_with_joined_losses(ops, kept), kept), kept)


def _with_joined_losses(ops: Sequence[Placed], kept: Collection[str]) -> list[Placed]:
    """Join each cross_entropy_grad and the softmax_grad behind it.

    The gradient of the probabilities is zero but for one place in each row; together the two are
    (Softmax - Label) dLoss, which needs neither that array nor a division.
    """
    readers = _readers(ops)
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


def _with_joined_tables(ops: Sequence[Placed], kept: Collection[str]) -> list[Placed]:
    """Join the sparse gradients of a table that several operators look up in, and the sum of them.

    Rows are then brought together once, and not first those of each operator.
    """
    readers = _readers(ops)
    parts = {op.outputs["W@GRAD"][0]: op for _, op in ops if _is_sparse_table(op)}
    result: list[Placed] = []
    dropped: set[str] = set()
    for position, op in ops:
        names = op.inputs["X"] if op.type == "sum" else ()
        found = [parts[name] for name in names if name in parts]
        if (
            len(names) > 1
            and len(found) == len(names)
            and len({each.inputs["W"] for each in found}) == 1
            and all(readers[name] == 1 and name not in kept for name in names)
        ):
            dropped.update(names)
            result.append((position, _joined_tables(found, op)))
        else:
            result.append((position, op))
    return [(position, op) for position, op in result if dropped.isdisjoint(op.output_names)]


def _with_scaled_terms(ops: Sequence[Placed], kept: Collection[str]) -> list[Placed]:
    """Join each sum of two terms, the second of which is a scaled value, with its scaling: how decay is added."""
    readers = _readers(ops)
    scaled: dict[str, tuple[int, Operator]] = {}
    result: list[Placed] = []
    dropped: set[int] = set()
    for at, (position, op) in enumerate(ops):
        names = op.inputs["X"] if op.type == "sum" else ()
        begun, term = scaled.get(names[1], (0, op)) if len(names) == 2 else (0, op)
        if term is not op and readers[names[1]] == 1 and names[1] not in kept and names[0] != names[1]:
            source = term.inputs["X"][0]
            if not any(source in other.output_names for _, other in ops[begun + 1 : at]):
                dropped.add(ops[begun][0])
                inputs, attrs = {"X": names[:1], "Y": [source]}, {"scale": term.attrs["scale"]}
                op = Operator.make("add_scaled", inputs, {"Out": op.outputs["Out"]}, attrs)
        for name in op.output_names:
            scaled.pop(name, None)
        if op.type == "scale" and not op.attrs["bias"]:
            scaled[op.outputs["Out"][0]] = at, op
        result.append((position, op))
    return [(position, op) for position, op in result if position not in dropped]


def _readers(ops: Sequence[Placed]) -> Counter[str]:
    return Counter(name for _, op in ops for name in op.input_names)


def _is_sparse_table(op: Operator) -> bool:
    return op.type == "lookup_table_grad" and bool(op.attrs["is_sparse"])


def _joined_tables(parts: Sequence[Operator], total: Operator) -> Operator:
    inputs = {
        "W": parts[0].inputs["W"],
        "Ids": [part.inputs["Ids"][0] for part in parts],
        "Out@GRAD": [part.inputs["Out@GRAD"][0] for part in parts],
    }
    return Operator.make("lookup_tables_grad", inputs, {"W@GRAD": total.outputs["Out"]}, {})


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
