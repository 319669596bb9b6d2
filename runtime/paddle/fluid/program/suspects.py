# SPDX-License-Identifier: Apache-2.0
"""Warns of operators that run, but probably do not compute what the script intends, in each version of a program."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from paddle.fluid.program.advice import channels_last
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import PROGRAMS, Program
from paddle.graph.operator import script_line
from paddle_node.contract.classes import NamedTuple

_log = logging.getLogger(__name__)


class _Cost(NamedTuple):
    """What a cost must not be given: the slot of the input, the operator that computes such an input, and advice."""

    slot: str
    maker: str
    text: str


_COSTS: Mapping[str, _Cost] = MappingProxyType(
    {
        "softmax_with_cross_entropy": _Cost(
            "Logits",
            "softmax",
            "softmax_with_cross_entropy {0} applies softmax to the output of softmax (created {1}): omit "
            'act="softmax" there, or use cross_entropy',
        ),
        "sigmoid_cross_entropy_with_logits": _Cost(
            "X",
            "sigmoid",
            "sigmoid_cross_entropy_with_logits {0} applies sigmoid to the output of sigmoid (created {1}): omit "
            'act="sigmoid" there',
        ),
    }
)
_BY_BATCH = {"dropout": "is active", "batch_norm": "uses and stores the statistics of this batch"}
_KEEP_ROWS = {
    "lookup_table": "Ids",
    **dict.fromkeys(
        ("cast", "concat", "dropout", "elementwise_add", "mul", "relu", "scale", "sigmoid", "tanh"), "X"
    ),
}
"""Operators whose output has the first axis of an input -> the slot of this input."""


def warn_of_operators(program: Program) -> None:
    """Warn of each operator of a program that is almost certainly a mistake."""
    _warn_of_training_mode(program)
    for text in [*_costs(program), *_operators(program)]:
        _log.warning("%s", text)


def _costs(program: Program) -> Iterator[str]:
    ops = [op for op in program.global_block().ops if isinstance(op, Operator)]
    made = {name: op for op in ops for name in op.writes}
    for op in ops:
        cost = _COSTS.get(op.type)
        maker = made.get(op.inputs[cost.slot][0]) if cost else None
        if cost is not None and maker is not None and maker.type == cost.maker:
            yield cost.text.format(op.origin, maker.origin)


def _operators(program: Program) -> Iterator[str]:
    block = program.global_block()
    for at, op in enumerate(block.ops):
        if not isinstance(op, Operator):
            continue
        if op.type == "dropout" and op.attrs.get("dropout_prob") == 1:
            yield (
                f"dropout {op.origin} sets all values to 0: dropout_prob is the probability of dropping a value, not "
                "of keeping it"
            )
        elif op.type == "softmax":
            shape = block.var(op.inputs["X"][0]).shape
            if shape[-1:] == (1,) and op.attrs.get("axis", -1) in (-1, len(shape) - 1):
                yield (
                    f"softmax {op.origin} of one value per row is always 1, so nothing is trained: use sigmoid, or one "
                    "output per class"
                )
        elif op.type == "recurrent":
            for name in op.inputs["inputs"]:
                source, shape = name, tuple(block.var(name).shape)
                for maker in reversed(block.ops[:at]):
                    if source in maker.writes:
                        source = maker.inputs.get(_KEEP_ROWS.get(maker.type, ""), [""])[0]
                if getattr(block.vars.get(source), "has_batch", False):
                    yield (
                        f"StaticRNN {op.origin} takes its steps along the first axis of {name!r} {shape}, which is the "
                        f"batch of {source!r}: transpose it, as in layers.transpose(x, {[1, 0, *range(2, len(shape))]})"
                    )
        elif op.type == "conv2d" and (image := block.vars.get(op.inputs["Input"][0])) is not None:
            yield from filter(None, [channels_last(f"conv2d {op.origin}", image)])


def _warn_of_training_mode(program: Program) -> None:
    """Warn of a program that does not train, but has operators in training mode, if another trains its parameters."""
    ops = [op for op in program.global_block().ops if isinstance(op, Operator)]
    found = [op for op in ops if op.type in _BY_BATCH and not op.attrs.get("is_test")]
    if not found or any(op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE) for op in ops):
        return
    reads = {name for op in ops for name in op.reads}
    others = (op for each in list(PROGRAMS) for op in each.global_block().ops if isinstance(op, Operator))
    if any(op.role == OpRole.OPTIMIZE and not reads.isdisjoint(op.writes) for op in others):
        _log.warning(
            "this program, run %s, does not train, but its %s (created %s) %s: make it with clone(for_test=True), or "
            "pass is_test=True",
            script_line(),
            found[0].type,
            found[0].origin,
            _BY_BATCH[found[0].type],
        )
