# SPDX-License-Identifier: Apache-2.0
"""append_backward: adds to a program the operators that compute the gradients of a loss.

The gradient of `x` is the variable `x@GRAD`. Where several operators read `x`, each writes its own
`x@GRAD@RENAME@<n>` and a `sum` right before the first reader of `x@GRAD` adds them. Gradients are only made
for what leads from a trainable parameter, or from another variable without stop_gradient, to the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from paddle.graph import unique_name
from paddle.graph.block import Block, Name
from paddle.graph.errors import BackwardError
from paddle.graph.operator import EMPTY, Operator, OpRole
from paddle.graph.variable import Parameter, Variable
from paddle.ops.dtypes import VarType
from paddle.ops.registry import GRAD, GradOp, lookup


def append_backward(
    loss: Variable,
    parameter_list: Sequence[Name] | None = None,
    no_grad_set: Collection[Name] | None = None,
) -> list[tuple[Parameter, Variable]]:
    """Append the gradient operators of a loss to its block.

    Args:
        loss: one number, shape [1] or [].
        parameter_list: parameters to derive for; None means all trainable ones.
        no_grad_set: variables that get no gradient and let none through.

    Returns:
        (parameter, its gradient) in the order the parameters were created; parameters that the loss does not
        depend on are left out.

    Raises:
        BackwardError: the loss is not a single number, depends on nothing trainable, or an operator on the
            way has no gradient.
    """
    block = loss.block
    if prod(loss.shape) != 1 or len(loss.shape) > 1:
        raise BackwardError(
            f"the loss {loss.describe()} must be one number of shape [1]: append a mean or reduce_sum to it"
        )
    path = _path_to(block, loss.name)
    required = _required(block, path, _names(parameter_list), _names(no_grad_set) or set())
    if loss.name not in required:
        raise BackwardError(f"the loss {loss.describe()} does not depend on any trainable parameter")
    builder = _Builder(block, required)
    builder.seed(loss)
    for op in reversed(path):
        builder.derive(op)
    pairs = builder.finish()
    _mark_loss(block, loss.name)
    return pairs


@dataclass
class _Pending:
    """A gradient operator that is not in the block yet; its names can still change."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, object]


@dataclass
class _Builder:
    """Collects gradient operators; `writers` says who writes a part of which variable's gradient."""

    block: Block
    required: set[str]
    pending: list[_Pending] = field(default_factory=list)
    writers: dict[str, list[tuple[_Pending, str, int]]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def seed(self, loss: Variable) -> None:
        """Make the gradient of the loss itself: one."""
        attrs = {"shape": loss.shape, "value": 1.0, "dtype": VarType.of(loss.dtype)}
        attrs["op_role"] = int(OpRole.BACKWARD | OpRole.LOSS)
        self._emit(_Pending("fill_constant", {}, {"Out": [loss.name + GRAD]}, attrs))

    def derive(self, op: Operator) -> None:
        """Add the gradient operators of one operator, if a gradient reaches it and one is wanted of it."""
        if not self.required.intersection(op.input_names):
            return
        reached = {name for name in op.output_names if self.writers.get(name)}
        if not reached:
            return
        for name in sorted(reached):
            self._settle(name)
        for grad_op in _gradient_of(op, reached):
            outputs = {slot: self._wanted(names) for slot, names in grad_op.outputs.items()}
            if all(name == EMPTY for names in outputs.values() for name in names):
                continue
            inputs = self._available(grad_op)
            self._emit(
                _Pending(grad_op.type, inputs, outputs, {**grad_op.attrs, "op_role": int(OpRole.BACKWARD)})
            )

    def finish(self) -> list[tuple[Parameter, Variable]]:
        """Append everything to the block and return the parameters with their gradients."""
        pairs = []
        parameters = [p for p in self.block.all_parameters() if self.writers.get(p.name)]
        for name in [name for name, parts in self.writers.items() if len(parts) > 1]:
            self._settle(name)
        for parameter in parameters:
            grad = self.names[parameter.name]
            self.writers[parameter.name][0][0].attrs["op_role_var"] = (parameter.name, grad)
        for pending in self.pending:
            self.block.append_op(pending.type, pending.inputs, pending.outputs, pending.attrs)
        for parameter in parameters:
            pairs.append((parameter, self.block.var(self.names[parameter.name])))
        return pairs

    def _emit(self, pending: _Pending) -> None:
        for slot, names in pending.outputs.items():
            for position, name in enumerate(names):
                if name != EMPTY:
                    source = name.removesuffix(GRAD)
                    names[position] = self._grad_name(source)
                    self.writers.setdefault(source, []).append((pending, slot, position))
        self.pending.append(pending)

    def _settle(self, name: str) -> None:
        """Leave one writer of a variable's gradient: several get names of their own and a sum after them."""
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
            # A second loss in the same program must not write over the gradients of the first.
            self.names[source] = unique_name.generate(plain) if self.block.has_var(plain) else plain
            self._declare(self.names[source], source)
        return self.names[source]

    def _declare(self, name: str, source: str) -> None:
        origin = self.block.var(source)
        self.block.create_var(name, origin.shape, origin.dtype, lod_level=origin.lod_level)

    def _wanted(self, names: Sequence[str]) -> list[str]:
        return [name if name.removesuffix(GRAD) in self.required else EMPTY for name in names]

    def _available(self, grad_op: GradOp) -> dict[str, list[str]]:
        """Return the inputs with gradients under their real names, and zeros for those that nobody wrote."""
        inputs: dict[str, list[str]] = {}
        for slot in lookup(grad_op.type).inputs:
            listed = []
            for name in grad_op.inputs.get(slot.name, ()):
                source = name.removesuffix(GRAD)
                if source == name:
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


def _gradient_of(op: Operator, reached: set[str]) -> list[GradOp]:
    rule = op.definition.gradient
    if rule is None:
        raise BackwardError(
            f"operator {op.describe()} has no gradient, and the loss depends on a parameter through it: "
            "set stop_gradient on one of its inputs if that is meant"
        )
    own = {name: value for name, value in op.attrs.items() if name in op.definition.attrs}
    if callable(rule):
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


def _path_to(block: Block, target: str) -> list[Operator]:
    needed = {target}
    path = []
    for op in reversed(block.ops):
        if needed.intersection(op.output_names):
            path.append(op)
            needed.update(op.input_names)
    return path[::-1]


def _required(block: Block, path: list[Operator], only: set[str] | None, excluded: set[str]) -> set[str]:
    """Return the names of the variables on the path that need a gradient."""
    writes = Counter(name for op in path for name in op.output_names)
    required: set[str] = set()

    def allowed(name: str) -> bool:
        variable = block.var(name)
        return not (
            variable.stop_gradient or name in excluded or not np.issubdtype(variable.dtype, np.floating)
        )

    for op in path:
        for name in op.input_names:
            if (
                not writes[name]
                and allowed(name)
                and not (only is not None and _left_out(block.var(name), only))
            ):
                required.add(name)
        if required.intersection(op.input_names):
            required.update(filter(allowed, op.output_names))
    for name in required:
        if writes[name] > 1:
            raise BackwardError(
                f"variable {name!r} is written {writes[name]} times on the way to the loss: name each once"
            )
    return required


def _left_out(variable: Variable, only: set[str]) -> bool:
    return isinstance(variable, Parameter) and variable.name not in only


def _mark_loss(block: Block, loss: str) -> None:
    for index, op in enumerate(block.ops):
        if loss in op.output_names:
            block.ops[index] = op.with_attrs(op_role=int(OpRole.FORWARD | OpRole.LOSS))


def _names(members: Collection[Name] | None) -> set[str] | None:
    return None if members is None else {m if isinstance(m, str) else m.name for m in members}
