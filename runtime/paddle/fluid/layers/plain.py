# SPDX-License-Identifier: Apache-2.0
"""Layers that append a single operator, defined as table rows with a signature and a result.

    rank_loss = layer("rank_loss(label, left, right, name=None)", "the cross entropy of sigmoid(left − right), (N, 1)")

The table of operators defines the rest. An argument sets the attribute of the same name or, if there is none, the next
input slot; `name` and `act` belong to the layer. `to` maps other arguments. In "y=Filter cond=Out k=k|K use_cudnn=", y
sets an input slot or attribute; cond is the variable of an output slot, unless None; k sets an attribute, or a slot if
k is a variable; use_cudnn is ignored. A layer returns the outputs that are not intermediate, or those that `returns`
names: a single output, or a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from paddle.fluid.initializer import Initializer
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable
from paddle.ops.base.registry import lookup
from paddle.signatures import function

# Layers whose `name` is the name of their output, as scripts fetch it; all other layers use it as a prefix.
_NAMES_OUTPUT = frozenset({
    "add_position_encoding", "affine_channel", "clip", "clip_by_norm", "elementwise_add", "elementwise_div",
    "elementwise_floordiv", "elementwise_max", "elementwise_min", "elementwise_mod", "elementwise_mul",
    "elementwise_pow", "elementwise_sub", "iou_similarity", "logical_and", "logical_not", "logical_or",
    "logical_xor", "maxout", "mean", "mul", "scale", "sigmoid_cross_entropy_with_logits", "similarity_focus",
    "space_to_depth",
})  # fmt: skip


def layer(
    signature: str,
    result: str,
    op: str | None = None,
    *,
    to: str = "",
    fixed: str = "",
    prefix: str | None = None,
    learnt: Mapping[str, Callable[[Mapping[str, Any]], Sequence[int]]] = MappingProxyType({}),
    first: Mapping[str, Initializer] = MappingProxyType({}),
    bias: tuple[int, int | None] | None = None,
    change: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    returns: str | Callable[[Mapping[str, Any]], str] = "",
) -> Callable[..., Variable]:
    """Create the layer function that a table row defines, and return it.

    Args:
        signature: the signature in Python syntax, with literal defaults.
        result: the returned value, as text for the docstring.
        op: type of the operator; None means the layer's name.
        to: mapping of arguments whose meaning does not follow from their name or position.
        fixed: output slots through which no gradient is propagated.
        prefix: prefix of the names of the layer's variables; None means the operator's type.
        learnt: input slot -> function from the arguments to the shape of its parameter. `param_attr` describes the
            parameter, or `bias_attr` for the slot Bias; its dtype is `dtype` or, if not given, that of the first
            argument.
        first: input slot -> initializer of its parameter, unless its attributes have one.
        bias: first and last (exclusive) of the result's dimensions that the bias described by `bias_attr` has; None:
            the layer adds no bias.
        change: function from the arguments to those that it replaces or adds, by name.
        returns: output slots to return, in this order; or a function from the arguments to them.
    """
    op_type = op or signature.partition("(")[0]
    renamed, stopped = dict(each.split("=") for each in to.split()), fixed.split()
    taken = {*learnt, *(name for target in renamed.values() for name in target.split("|"))}

    def build(given: dict[str, Any]) -> Any:
        given.update(change(given) if change else {})
        slots = (returns(given) if callable(returns) else returns).split()
        described = {name: given.pop(name, None) for name in ("name", "act", "param_attr", "bias_attr")}
        name = described["name"]
        helper = LayerHelper(prefix or op_type, name, bias_attr=described["bias_attr"], act=described["act"])
        inputs: dict[str, Any] = {}
        outputs: dict[str, Variable | str] = {"Out": name} if name and op_type in _NAMES_OUTPUT else {}
        attrs: dict[str, object] = {}
        definition = lookup(op_type)
        for slot, shape in learnt.items():
            attr = described["bias_attr" if slot == "Bias" else "param_attr"]
            known = definition.input(slot)
            if attr is not False or not (known and known.optional):
                dtype = given.get("dtype") or next(iter(given.values())).dtype
                inputs[slot] = helper.create_parameter(
                    attr, shape(given), dtype, slot == "Bias", first.get(slot)
                )
        free = iter([slot.name for slot in definition.inputs if slot.name not in taken])
        for argument, value in given.items():
            target, _, slot = renamed.get(argument, argument).partition("|")
            target = slot if slot and isinstance(value, Variable) else target
            if target in definition.attrs:
                attrs[target] = value
            elif definition.input(target):
                inputs[target] = value
            elif argument not in renamed:
                inputs[next(free)] = value
            elif target and value is not None:
                outputs[target] = value
        made = helper.apply_all(op_type, inputs, attrs, outputs, stopped, slots)
        if len(made) > 1:
            return tuple(made)
        return helper.append_activation(made[0] if bias is None else helper.append_bias_op(made[0], *bias))

    return function(signature, f"Return {result}.", build)


several = cast("Callable[..., Callable[..., tuple[Variable, ...]]]", layer)
"""The same, where a layer returns a tuple."""
