# SPDX-License-Identifier: Apache-2.0
"""SplitProgram: a program's passes, which each place runs, and its updates, which run once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from paddle import graph
from paddle.fluid.errors import FluidError
from paddle.fluid.parallel.gradient_exchange import bucketed
from paddle.fluid.parallel.partition import Partition, partition
from paddle.fluid.parallel.strategies import BuildStrategy, GradientScaleStrategy
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.ops.base.registry import OpDef, Slot
from paddle_node.contract.classes import dataclass, replace

REDUCED = "@REDUCED"
_MEETING = ("allreduce", "broadcast")
_SYNCHRONISED = {"batch_norm": "sync_batch_norm", "batch_norm_grad": "sync_batch_norm_grad"}
_POSTING = "post_gradients"  # in no table of operators and in no file


class SplitProgram:
    """One version of a program, divided into passes and updates.

    Attributes:
        version: the program's version.
        repeats: how often a step runs the pass.
        passing, updating: the two programs; the updates read `grads` and `given` with REDUCED appended to the names.
        updated: the variables that the updates write.
        fed: the variables that the updates read and no operator writes.
        grads: the gradients that the updates read.
        given: other variables of the pass that the updates read, equal on all places.
        kept: the persistable variables that the pass writes.
        buckets: the gradients, in the groups in which trainers exchange them.
        meets: whether operators of the pass use the trainers' group themselves, in an order that all trainers share.
        posts: whether the pass calls `post` with each bucket when it is complete.
    """

    def __init__(
        self,
        source: Program,
        strategy: BuildStrategy,
        places: int,
        post: Callable[[int, Sequence[Any]], None],
    ) -> None:
        """Split a program without running anything.

        Args:
            places: the number of places.
            post: called with the number of a bucket and its gradients, which it must not change.

        Raises:
            FluidError: operators need all trainers in each step, but the trainers average parameters; or a pass that is
                repeated computes a schedule.
        """
        self.version, self._source = source.version, source
        self.repeats = strategy._finalize_strategy_and_create_passes().repeats
        summing = strategy.num_trainers if source._averaging is None else 1
        self.passing, self.updating = source.clone(), source.clone()
        ops = [op for op in source.global_block().ops if isinstance(op, Operator)]
        if strategy.sync_batch_norm:
            ops = [_synchronized(op) for op in ops]
        self.meets = any(op.type in (*_MEETING, *_SYNCHRONISED.values()) for op in ops)
        if self.meets and source._averaging is not None:
            raise FluidError(
                "allreduce, broadcast and sync_batch_norm need all trainers in each step, but these trainers average "
                "parameters: transpile with sync_mode=True and k_steps=1"
            )
        # Nothing is summed between passes and updates: the program runs in its own order.
        alone = strategy.num_trainers * places * self.repeats == 1
        parts = Partition(ops, [], [], [], [], {}) if alone else partition(ops, self.is_kept)
        passes, self.grads, self.given, self.kept = parts.passes, parts.gradients, parts.given, parts.kept
        if self.repeats > 1 and any(op.role == OpRole.LR_SCHED for op in passes):
            raise FluidError(
                f"num_repeats={self.repeats}: the loss depends on a learning-rate schedule, which would count each "
                "repeat as a step; feed its value, or omit multi_batch_merge_pass"
            )
        self._outdated = parts.outdated
        self._shown = [name for op in passes if op.definition.has_effect for name in op.reads]
        self.updating.global_block().ops = list(parts.updates)
        self.updated = {name for op in parts.updates for name in op.writes}
        made = {name for op in ops for name in op.writes}
        self.fed = {
            name for op in parts.updates for name in op.reads if name not in made and not self.is_kept(name)
        }
        self.buckets = bucketed(passes, set(self.grads), self._sizes())
        self.posts = summing > 1 and places == 1 and bool(self.grads) and not self.meets and self.repeats == 1
        if strategy.gradient_scale_strategy == GradientScaleStrategy.CoeffNumDevice and summing * places > 1:
            passes = [
                op.with_attrs(value=1.0 / (summing * places)) if _starts_backward(op) else op for op in passes
            ]
        elif strategy.gradient_scale_strategy == GradientScaleStrategy.Customized:  # the script feeds it
            passes = [op for op in passes if not _starts_backward(op)]
        self.passing.global_block().ops = self._posted(passes, post) if self.posts else list(passes)
        # Under another name, since decay may write the gradient, and fed variables are not computed.
        block = self.updating.global_block()
        for name in (*self.grads, *self.given):
            self.passing.global_block().var(name).persistable = False
            grad = block.var(name)
            fed = block.create_var(name + REDUCED, grad.shape, grad.dtype, lod_level=grad.lod_level)
            block._prepend_op("assign", {"X": fed}, {"Out": grad})
        self.passing.touch()
        self.updating.touch()

    def check_order(self, fetches: Sequence[str]) -> None:
        """Check that a step needs no value that a pass computes from a parameter after its update.

        Raises:
            FluidError: it does; the error names both losses.
        """
        for name in (*self.grads, *self.given, *self.kept, *self._shown, *fetches):
            found = self._outdated.get(name)
            if found is None:
                continue
            needing = found.loss if found.loss != found.updated_by else name
            raise FluidError(
                f"{needing!r} needs the value of {found.source!r} after the update that minimizes "
                f"{found.updated_by!r}. With several places, trainers or repeats, all gradients of a step are computed "
                "before the first update. Put each loss into its own program, share parameters by name, and run the "
                "programs in turn"
            )

    def is_kept(self, name: str) -> bool:
        """Return whether a variable is persistable."""
        variable = self._source.global_block().find(name)
        return variable is not None and variable.persistable

    def _posted(
        self, passes: Sequence[Operator], post: Callable[[int, Sequence[Any]], None]
    ) -> list[graph.Operator]:
        """Return the pass with an operator after the last gradient of each bucket that posts the bucket."""
        by_place = {bucket.after: (number, bucket) for number, bucket in enumerate(self.buckets)}
        ops: list[graph.Operator] = []
        for at, op in enumerate(passes):
            ops.append(op)
            if at in by_place:
                number, bucket = by_place[at]
                ops.append(_posting(bucket.names, partial(post, number)))
        return ops

    def _sizes(self) -> dict[str, int]:
        block = self._source.global_block()
        shapes = {name: block.var(name) for name in self.grads}
        return {
            name: each.dtype.itemsize * math.prod(each.shape)
            for name, each in shapes.items()
            if -1 not in each.shape
        }


def _synchronized(op: Operator) -> Operator:
    """Return the operator that normalizes by the statistics of all places, if it uses those of the batch."""
    if op.type not in _SYNCHRONISED or op.attrs["is_test"] or op.attrs["use_global_stats"]:
        return op
    return replace(op, type=_SYNCHRONISED[op.type])


def _starts_backward(op: Operator) -> bool:
    """Return whether the operator sets the gradient of a loss to 1."""
    return op.role == OpRole.BACKWARD | OpRole.LOSS and op.type == "fill_constant"


@dataclass(frozen=True)
class _Posting(graph.Operator):
    """Passes values to a function while a program runs; `made` is the table entry for its operator."""

    made: OpDef | None = None

    @property
    def definition(self) -> OpDef:
        assert self.made is not None
        return self.made


def _posting(names: Sequence[str], taken: Callable[[Sequence[Any]], None]) -> graph.Operator:
    """Return an operator that calls `taken` with the values of some variables; `taken` must not change them."""

    def kernel(values: Sequence[Any]) -> tuple[()]:
        taken(values)
        return ()

    nothing = frozenset[str]()
    definition = OpDef(
        _POSTING,
        (Slot("X", many=True),),
        (),
        MappingProxyType({}),
        kernel,
        None,
        nothing,
        nothing,
        has_effect=True,
    )
    return _Posting(_POSTING, {"X": tuple(names)}, {}, {}, definition)
