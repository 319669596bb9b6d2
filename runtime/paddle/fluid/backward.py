# SPDX-License-Identifier: Apache-2.0
"""append_backward and gradients: differentiate programs, and mark operators with roles for transpilers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import cast

from paddle import graph
from paddle.errors import did_you_mean
from paddle.fluid.clip import error_clip_callback
from paddle.fluid.errors import FluidError, FluidTypeError, answering
from paddle.fluid.program.block import Block
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.graph import backward
from paddle.graph.block import Name
from paddle.graph.operator import warn_script

__all__ = ["append_backward", "calc_gradient", "gradients"]


def append_backward(
    loss: Variable,
    parameter_list: Sequence[Name] | None = None,
    no_grad_set: Collection[Name] | None = None,
    callbacks: Sequence[object] | None = None,
) -> list[tuple[Parameter, Variable]]:
    """Append the gradient operators of a loss to its block.

    Args:
        loss: a variable with one element.
        parameter_list: parameters or other variables to differentiate by; None means all trainable parameters.
        no_grad_set: variables that receive no gradient and propagate none.
        callbacks: `clip.error_clip_callback` or None; error clips are inserted in any case.

    Returns:
        Pairs (parameter, gradient), in the order of the list, or else in the order in which the parameters were
            created.

    Raises:
        FluidTypeError: the loss is not a variable.
        FluidError: callbacks contains a different callback.
        BackwardError: the loss is not differentiable, or not with respect to a variable in the list; see the core.
    """
    if not isinstance(loss, Variable):
        raise FluidTypeError(f"append_backward: the loss must be a Variable, got {loss!r}")
    for each in callbacks or ():
        if each is not error_clip_callback:
            raise FluidError(
                f"append_backward: callbacks: only clip.error_clip_callback is supported, got {each!r}. To change the "
                "gradient operators, edit the block after append_backward"
            )
    block = cast(Block, loss.block)
    _warn_of_unknown(block, no_grad_set)
    pairs = backward.append_backward(loss, parameter_list, no_grad_set)
    _mark_sparse(block)
    return cast("list[tuple[Parameter, Variable]]", pairs)


def _warn_of_unknown(block: Block, no_grad_set: Collection[Name] | None) -> None:
    """Warn of names without a variable; they have no effect. A string instead of a set contains one-letter names."""
    for each in sorted(name for name in no_grad_set or () if isinstance(name, str)):
        if block.find(each) is None:
            hint = did_you_mean(each, block.vars)
            warn_script(
                f"no_grad_set={no_grad_set!r}: the program has no variable {each!r}{hint or '; it has no effect'}"
            )
            return


def gradients(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Collection[Name] | None = None,
) -> list[Variable | None]:
    """Append the operators that compute the gradients of targets with respect to inputs; return the gradients."""
    given = [target_gradients] if isinstance(target_gradients, Variable) else target_gradients
    made = backward.gradients(_listed(targets), _listed(inputs), given, no_grad_set)
    for block in {id(each.block): cast(Block, each.block) for each in _listed(targets)}.values():
        _mark_sparse(block)
    return cast("list[Variable | None]", made)


def calc_gradient(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Collection[Name] | None = None,
) -> list[Variable | None] | Variable | None:
    """Compute gradients like `gradients`, but return a single gradient without a list."""
    made = gradients(targets, inputs, target_gradients, no_grad_set)
    return made[0] if len(made) == 1 else made


def _listed(given: Variable | Sequence[Variable]) -> list[Variable]:
    return [given] if isinstance(given, Variable) else list(given)


def _mark_sparse(block: Block) -> None:
    """Mark the gradients that are selected rows: those of sparse tables, and sums of only such gradients."""
    for op in block.ops:
        written: tuple[str, ...] = ()
        if op.attrs.get("is_sparse") and op.type.endswith("_grad"):
            written = (*op.outputs.get("W@GRAD", ()), *op.outputs.get("Weight@GRAD", ()))
        elif op.type == "sum" and all(map(block.is_sparse, op.reads)):
            written = op.writes
        else:
            rows = cast("tuple[str, ...]", op.attrs.get("rows", ()))
            written = tuple(grad for name, grad in _wanted_of_bodies(op) if name in rows)
        for name in written:
            variable = block.find(name)
            if isinstance(variable, Variable):
                variable.type = VarType.SELECTED_ROWS


def _wanted_of_bodies(op: graph.Operator) -> Iterator[tuple[str, str]]:
    """Yield the inputs of a body, other than those cut into steps, with the gradients that an operator returns."""
    parameters = op.outputs.get("parameters@GRAD", ())
    grads = parameters or (name for names in op.outputs.values() for name in names)
    wanted = op.attrs.get("wanted_parameters" if parameters else "wanted", ())
    return zip(cast("tuple[str, ...]", wanted), grads, strict=False)


__getattr__ = answering(__name__)
