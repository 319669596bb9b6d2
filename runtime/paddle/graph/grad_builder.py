# SPDX-License-Identifier: Apache-2.0
"""Builder: collects the gradient operators of a block and of its bodies, and appends them at the end.

The gradient of `x` is the variable `x@GRAD`. Where several operators read `x`, each writes its own
`x@GRAD@RENAME@<n>`, and a `sum` right before the first reader of `x@GRAD` adds them.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence

from paddle.graph import unique_name
from paddle.graph.block import Block
from paddle.graph.errors import BackwardError
from paddle.graph.operator import EMPTY, Operator, OpRole
from paddle.graph.variable import Variable
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.registry import GRAD, GradOp, LiteralName, lookup
from paddle_node.contract.classes import dataclass, field, replace


@dataclass
class _Pending:
    """A gradient operator that is not in the block yet; its variable names can still change."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, object]
    origin: str = ""


@dataclass
class Builder:
    """Builds the gradient operators of a block; `writers` maps each variable to the writers of its gradient."""

    block: Block
    required: set[str]
    rewritten: set[str] = field(default_factory=set)
    clips_errors: bool = False
    pending: list[_Pending] = field(default_factory=list)
    writers: dict[str, list[tuple[_Pending, str, int]]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    clipped: set[str] = field(default_factory=set)

    def seed(self, loss: Variable) -> None:
        """Append the operator that sets the gradient of the loss to one."""
        attrs = {"shape": loss.shape, "value": 1.0, "dtype": VarType.of(loss.dtype)}
        attrs["op_role"] = int(OpRole.BACKWARD | OpRole.LOSS)
        self._emit(_Pending("fill_constant", {}, {"Out": [loss.name + GRAD]}, attrs))

    def start(self, target: Variable, given: Variable | None = None) -> None:
        """Initialize a variable's gradient from another variable, or with ones."""
        role = int(OpRole.BACKWARD)
        if given is not None:
            self._emit(
                _Pending("assign", {"X": [given.name]}, {"Out": [target.name + GRAD]}, {"op_role": role})
            )
            return
        zeros = unique_name.generate(f"{target.name}{GRAD}@ZERO")
        self.block.create_var(zeros, target.shape, target.dtype)
        self.pending.append(
            _Pending("fill_zeros_like", {"X": [target.name]}, {"Out": [zeros]}, {"op_role": role})
        )
        ones: dict[str, object] = {"scale": 1.0, "bias": 1.0, "op_role": role}
        self._emit(_Pending("scale", {"X": [zeros]}, {"Out": [target.name + GRAD]}, ones))

    def derive(self, op: Operator) -> None:
        """Add the gradient operators of one operator, if an output has a gradient and an input needs one."""
        reached = {name for name in op.writes if self.writers.get(name)}
        if not reached or not self.required.intersection(op.reads):
            self._leave(op)
            return
        for name in sorted(reached):
            self._settle(name)
            self._clip(name)
        found = gradient_of(
            op, reached, BodyGradients(self.required, reached, self.block.tables_within([op]))
        )
        wanted = [{slot: self._wanted(names) for slot, names in each.outputs.items()} for each in found]
        kept = [
            pair
            for pair in zip(found, wanted, strict=True)
            if any(set(names) - {EMPTY} for names in pair[1].values())
        ]
        inputs = [self._available(grad_op, op) for grad_op, _ in kept]
        self._leave(op)
        for (grad_op, outputs), given in zip(kept, inputs, strict=True):
            attrs = {**grad_op.attrs, "op_role": int(OpRole.BACKWARD)}
            self._emit(_Pending(grad_op.type, given, outputs, attrs, op.origin))

    def _leave(self, op: Operator) -> None:
        """Discard the gradients of values that the operator overwrote.

        For earlier operators, the names mean earlier values.
        """
        for name in self.rewritten.intersection(op.writes):
            self.clipped.discard(name)
            self.writers.pop(name, None)
            self.names.pop(name, None)

    def finish(self, parameters: Sequence[str]) -> dict[str, str]:
        """Append all gradient operators to the block; return a mapping from variables to their gradients.

        Args:
            parameters: the variables for whose gradients the writing operators get the attribute `op_role_var`.
        """
        for name in list(self.writers):
            self._settle(name)
            self._clip(name)
        for name in parameters:
            attrs = self.writers[name][0][0].attrs
            before = attrs.get("op_role_var", ())
            assert isinstance(before, tuple)
            attrs["op_role_var"] = (*before, name, self.names[name])
        for pending in self.pending:
            made = self.block.append_op(pending.type, pending.inputs, pending.outputs, pending.attrs)
            if pending.origin:
                self.block.ops[-1] = replace(made, origin=pending.origin)
        return self.names

    def _emit(self, pending: _Pending) -> None:
        for slot, names in pending.outputs.items():
            for position, name in enumerate(names):
                if name != EMPTY:
                    source = name.removesuffix(GRAD)
                    names[position] = self._grad_name(source)
                    self.writers.setdefault(source, []).append((pending, slot, position))
        self.pending.append(pending)

    def _clip(self, name: str) -> None:
        bounds = self.block.reach(name).error_bounds if self.clips_errors else None
        if bounds is not None and name not in self.clipped:
            self.clipped.add(name)
            grad = [self.names[name]]
            attrs: dict[str, object] = {**bounds, "op_role": int(OpRole.BACKWARD)}
            clip = _Pending("clip", {"X": grad}, {"Out": list(grad)}, attrs)
            self.pending.append(clip)
            self.writers[name] = [(clip, "Out", 0)]

    def _settle(self, name: str) -> None:
        """Reduce the writers of a variable's gradient to one: several writers get separate names, followed by a sum."""
        parts = self.writers[name]
        if len(parts) == 1:
            return
        total = self._grad_name(name)
        renamed = []
        for number, (pending, slot, position) in enumerate(parts):
            part = f"{total}@RENAME@{number}"
            self._declare(part, name)
            pending.outputs[slot][position] = part
            renamed.append(part)
        add = _Pending("sum", {"X": renamed}, {"Out": [total]}, {"op_role": int(OpRole.BACKWARD)})
        self.pending.append(add)
        self.writers[name] = [(add, "Out", 0)]

    def _grad_name(self, source: str) -> str:
        if source not in self.names:
            plain = source + GRAD
            # A second loss in the same block must not overwrite the gradients of the first.
            self.names[source] = unique_name.generate(plain) if self.block.has_var(plain) else plain
            self._declare(self.names[source], source)
        return self.names[source]

    def _declare(self, name: str, source: str) -> None:
        origin = self.block.reach(source)
        self.block.create_var(name, origin.shape, origin.dtype, lod_level=origin.lod_level)

    def _wanted(self, names: Sequence[str]) -> list[str]:
        return [name if name.removesuffix(GRAD) in self.required else EMPTY for name in names]

    def _available(self, grad_op: GradOp, op: Operator) -> dict[str, list[str]]:
        """Return the input gradients by their final names; gradients that no operator wrote become zeros.

        Variables that the operator itself reads or writes may be gradients, but not of this differentiation.
        """
        own = {*op.reads, *op.writes}
        inputs: dict[str, list[str]] = {}
        for slot in lookup(grad_op.type).inputs:
            listed = []
            for name in grad_op.inputs.get(slot.name, ()):
                source = name.removesuffix(GRAD)
                if isinstance(name, LiteralName):
                    listed.append(str(name))
                elif source == name or (name in own and not slot.name.endswith(GRAD)):
                    listed.append(name)
                elif self.writers.get(source):
                    listed.append(self.names[source])
                elif not slot.optional:
                    listed.append(self._zeros(source))
            inputs[slot.name] = listed
        return inputs

    def _zeros(self, source: str) -> str:
        attrs: dict[str, object] = {"op_role": int(OpRole.BACKWARD)}
        zeros = _Pending("fill_zeros_like", {"X": [source]}, {"Out": [source + GRAD]}, attrs)
        self._emit(zeros)
        return self.names[source]


def gradient_of(op: Operator, reached: set[str], bodies: BodyGradients) -> list[GradOp]:
    """Return the gradient operators of an operator.

    Args:
        reached: its outputs that have a gradient.

    Raises:
        BackwardError: the operator has no gradient, or none for one of these outputs.
    """
    rule = op.definition.gradient
    if rule is None:
        raise BackwardError(
            f"operator {op.describe()} has no gradient, but the loss depends on a parameter "
            "through it: set stop_gradient on one of its inputs if that is intended"
        )
    own = {name: value for name, value in op.attrs.items() if name in op.definition.attrs}
    if callable(rule):
        if "bodies" in inspect.signature(rule).parameters:
            return rule(op.inputs, op.outputs, own, bodies=bodies)
        return rule(op.inputs, op.outputs, own)
    definition = lookup(rule)
    taken = {slot.name for slot in definition.inputs}
    for slot, names in op.outputs.items():
        if slot + GRAD not in taken and not reached.isdisjoint(names):
            raise BackwardError(
                f"operator {op.describe()}: the loss depends on its output {slot!r}, which has no gradient"
            )
    both = {**op.inputs, **op.outputs}
    inputs = {slot.name: _slot_names(both, slot.name) for slot in definition.inputs}
    outputs = {slot.name: _slot_names(both, slot.name) for slot in definition.outputs}
    return [GradOp(rule, inputs, outputs, own)]


def _slot_names(both: dict[str, tuple[str, ...]], slot: str) -> list[str]:
    if slot.endswith(GRAD):
        return [name + GRAD for name in both.get(slot.removesuffix(GRAD), ())]
    return list(both.get(slot, ()))


@dataclass(frozen=True)
class BodyGradients:
    """The interface through which gradient makers of operators with a body request gradients.

    See `ops.base.registry.gradient_maker`.
    """

    required: set[str]
    reached: set[str]
    tables: Collection[str] = ()

    def wanted(self, names: Sequence[str]) -> list[str]:
        """Return the given names whose gradients must be computed, without duplicates."""
        return [name for name in dict.fromkeys(names) if name in self.required]

    def arriving(self, names: Sequence[str]) -> list[str]:
        """Return the given names whose gradients later operators have computed, without duplicates."""
        return [name for name in dict.fromkeys(names) if name in self.reached]

    def rows(self, names: Sequence[str]) -> list[str]:
        """Return the given names that bodies read only in sparse lookups, so that their gradients are selected rows."""
        return [name for name in names if name in self.tables]
