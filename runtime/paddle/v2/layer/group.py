# SPDX-License-Identifier: Apache-2.0
"""recurrent_group: steps that a function declares, memories between them, and single steps of a GRU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paddle.graph import Variable
from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import NotAvailableError, UsageError, UsageTypeError
from paddle.v2.layer.body import Body, turned, zeros
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    declare,
    extras_of,
    require_layer,
    require_size,
    weight_attr,
)
from paddle.v2.model import Attrs, InputConfig, LayerConfig

_GATES = {"": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


@dataclass(frozen=True)
class StaticInput:
    """An input of a group that every step sees whole: a row a sample, or with `is_seq` a sequence a sample."""

    input: LayerOutput
    is_seq: bool = False
    size: int | None = None


def recurrent_group(
    step: Callable[..., LayerOutput | Sequence[LayerOutput]],
    input: LayerOutput | StaticInput | Sequence[LayerOutput | StaticInput],
    reverse: bool = False,
    name: str | None = None,
    targetInlink: LayerOutput | None = None,
) -> LayerOutput | list[LayerOutput]:
    """Declare what a function makes of each step of sequences.

    Args:
        step: called once with what a step sees of each input; returns a layer, or several, whose values of all steps
            are the sequences that come out, under the same names.
        input: layers of sequences of equal lengths, one at least, and `StaticInput`s.
        reverse: from the last step to the first.
        name: of the group; layers and parameters declared by the function end with ``@<name>``.
        targetInlink: has no meaning: outputs have the sequences of the inputs.
    """
    space = model.current()
    name = space.auto_name("recurrent_group", name)
    inputs = list(input) if isinstance(input, (list, tuple)) else [input]
    if not any(isinstance(each, LayerOutput) for each in inputs):
        raise UsageError(
            f"recurrent group {name!r} needs a layer of sequences; StaticInputs alone have no steps"
        )
    with space.steps_of(name):
        made = step(*[seen_by_steps(each, name) for each in inputs])
        outs: list[LayerOutput] = [made] if isinstance(made, LayerOutput) else list(made)
        for out in outs:
            require_layer(out, f"the step of recurrent group {name!r}")
        memories = memories_of(name)
    results = [_output(out, list(memories.values()), name, reverse) for out in outs]
    return results[0] if len(results) == 1 else results


def memory(
    name: str,
    size: int,
    memory_name: str | None = None,
    is_seq: bool = False,
    boot_layer: LayerOutput | None = None,
    boot_bias: BiasAttr = None,
    boot_bias_active_type: activation.Base | None = None,
    boot_with_const_id: int | None = None,
) -> LayerOutput:
    """Declare, within the step of a group, what the layer `name` was at the step before.

    Args:
        name: of a layer that the step declares.
        size: of that layer.
        memory_name: of this one.
        is_seq: must be False.
        boot_layer: what it is before the first step, a row a sample, from outside of the group; None: zeros.
        boot_bias: must be None.
        boot_bias_active_type: must be None.
        boot_with_const_id: must be None.
    """
    space = model.current()
    if not space.group:
        raise UsageError(f"memory of {name!r}: only the step of a recurrent_group has memories")
    if is_seq or boot_bias or boot_bias_active_type or boot_with_const_id is not None:
        raise NotAvailableError(f"memory of {name!r}: only boot_layer is available of its kinds to begin")
    if boot_layer is not None:
        require_size(boot_layer, size, f"boot_layer of memory {name!r}")
    links = () if boot_layer is None else (InputConfig(boot_layer.name),)
    own = space.auto_name("memory", memory_name or f"{name}+delay1")
    config = LayerConfig(own, "memory", size, links, attrs={"of": space.inner_name(name)})
    return declare(config, [])


def gru_step(
    input: LayerOutput,
    output_mem: LayerOutput,
    size: int | None = None,
    act: activation.Base | None = None,
    name: str | None = None,
    gate_act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare one step of a GRU over rows projected to the gates (3 D) and the state before (D)."""
    width = output_mem.size if size is None else size
    require_size(output_mem, width, "output_mem of gru_step")
    require_size(input, 3 * width, "input of gru_step")
    name = model.current().auto_name("gru_step", name)
    weight = model.current().add_parameter(f"_{name}.w0", [width, 3 * width], weight_attr(param_attr))
    attrs = {"act": activation_name(act, "tanh"), "gate_act": activation_name(gate_act, "sigmoid")}
    if not set(attrs.values()) <= set(_GATES):
        raise UsageError(f"gru_step: expected Tanh, Sigmoid, Relu or Linear, got {act!r} and {gate_act!r}")
    config = LayerConfig(
        name,
        "gru_step",
        width,
        (InputConfig(input.name, weight), InputConfig(output_mem.name)),
        bias=add_bias(name, [1, 3 * width], bias_attr, default=True),
        extras=extras_of(layer_attr),
        attrs=attrs,
    )
    return declare(config, [input, output_mem])


def gru_step_naive(
    input: LayerOutput,
    output_mem: LayerOutput,
    size: int | None = None,
    name: str | None = None,
    act: activation.Base | None = None,
    gate_act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the same as `gru_step`, with the arguments in another order."""
    return gru_step(
        input, output_mem, size, act, name, gate_act, bias_attr, param_attr=param_attr, layer_attr=layer_attr
    )


def recurrent(
    input: LayerOutput,
    act: activation.Base | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    name: str | None = None,
    reverse: bool = False,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare h = act(x + h' W + b) over sequences; Tanh by default."""
    require_layer(input, "recurrent")
    name = model.current().auto_name("recurrent_layer", name)
    weight = model.current().add_parameter(f"_{name}.w0", [input.size, input.size], weight_attr(param_attr))
    config = LayerConfig(
        name,
        "recurrent",
        input.size,
        (InputConfig(input.name, weight),),
        bias=add_bias(name, [1, input.size], bias_attr, default=True),
        extras=extras_of(layer_attr),
        attrs={"act": activation_name(act, "tanh"), "reverse": bool(reverse)},
    )
    return declare(config, [input])


def memories_of(group: str) -> dict[str, str]:
    """Return memory -> layer whose last value it is, of a group whose step has been declared.

    Raises:
        UsageError: the step declares no such layer.
    """
    layers = model.current().layers
    found = {
        name: str(each.attrs["of"])
        for name, each in layers.items()
        if each.group == group and each.type == "memory"
    }
    for target in found.values():
        if target not in layers:
            raise UsageError(
                f"recurrent group {group!r}: no layer {_outside(target, group)!r} for its memory: give a layer of "
                "the step that name"
            )
    return found


def seen_by_steps(given: object, group: str) -> LayerOutput:
    """Declare what the steps of a group see of one input."""
    layer = given.input if isinstance(given, StaticInput) else given
    if not isinstance(layer, LayerOutput):
        raise UsageTypeError(f"recurrent group {group!r} takes layers and StaticInputs, got {given!r:.80}")
    kind = ("static_seq" if given.is_seq else "static") if isinstance(given, StaticInput) else "step"
    config = LayerConfig(
        model.current().auto_name("group_input"),
        "group_input",
        layer.size,
        (InputConfig(layer.name),),
        attrs={"kind": kind},
    )
    return declare(config, [layer])


def _output(out: LayerOutput, kept: list[str], group: str, reverse: bool) -> LayerOutput:
    # The layers behind memories are needed too, whether or not an output is made of them.
    links = tuple(InputConfig(name) for name in dict.fromkeys([out.name, *kept]))
    attrs: Attrs = {"group_name": group, "reverse": bool(reverse)}
    name = _outside(out.name, group)
    return declare(LayerConfig(name, "group_output", out.size, links, out.activation, attrs=attrs), [out])


def _outside(name: str, group: str) -> str:
    return name.removesuffix(f"@{group}")


@emits("group_output")
def _emit_output(emitter: Emitter, config: LayerConfig) -> None:
    group = str(config.attrs["group_name"])
    if group not in emitter.groups:
        emitter.groups[group] = _emit_group(emitter, group, bool(config.attrs["reverse"]))
    # The steps have applied the activation already.
    emitter.set_rows(config.name, emitter.groups[group][config.inputs[0].layer])


def _emit_group(emitter: Emitter, group: str, reverse: bool) -> dict[str, Variable]:
    members = [each for each in emitter.layers.values() if each.group == group]
    outs = [
        each.inputs[0].layer
        for each in emitter.layers.values()
        if each.type == "group_output" and each.attrs["group_name"] == group
    ]
    seen = _outer_values(emitter, [each for each in members if each.type == "group_input"], reverse)
    steps = next(seen[each.name] for each in members if each.attrs.get("kind") == "step")
    memories = [each for each in members if each.type == "memory"]
    first = {
        each.name: emitter.rows(each.inputs[0].layer) if each.inputs else zeros(emitter, steps, each.size)
        for each in memories
    }
    body = Body(emitter)
    body.open()
    for member in members:
        if member.type == "group_input":
            value, kind = seen[member.name], member.attrs["kind"]
            inner = (
                body.step_input(value)
                if kind == "step"
                else body.static_input(value, int(kind == "static_seq"))
            )
            emitter.set_rows(member.name, inner)
        elif member.type == "memory":
            emitter.set_rows(member.name, body.state(first[member.name]))
        else:
            emitter.emit(member)
    after = [emitter.rows(str(each.attrs["of"])) for each in memories]
    results = body.close(after, [emitter.rows(name) for name in outs])
    return {name: turned(emitter, result, reverse) for name, result in zip(outs, results, strict=True)}


def _outer_values(emitter: Emitter, inputs: Sequence[LayerConfig], reverse: bool) -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    for each in inputs:
        value = emitter.sequence(each.inputs[0].layer)
        value = turned(emitter, value, reverse and each.attrs["kind"] == "step")
        if any(value is other for other in found.values()):
            # A step sees each under a name, and the same value may be there whole and step by step.
            value = emitter.op("assign", {"X": value})
        found[each.name] = value
    return found


@emits("gru_step")
def _emit_gru_step(emitter: Emitter, config: LayerConfig) -> None:
    link, before = config.inputs
    inputs = {
        "Input": emitter.rows(link.layer),
        "HiddenPrev": emitter.rows(before.layer),
        "Weight": emitter.shaped_parameter(link.parameter, [config.size, 3 * config.size]),
    }
    if config.bias:
        inputs["Bias"] = emitter.shaped_parameter(config.bias, [1, 3 * config.size])
    attrs = {
        "activation": _GATES[str(config.attrs["act"])],
        "gate_activation": _GATES[str(config.attrs["gate_act"])],
    }
    outs = ["Hidden", "Gate", "ResetHiddenPrev"]
    emitter.finish(config, emitter.ops("gru_unit", inputs, attrs, outs)[0])


@emits("recurrent")
def _emit_recurrent(emitter: Emitter, config: LayerConfig) -> None:
    (link,), reverse = config.inputs, bool(config.attrs["reverse"])
    steps = turned(emitter, emitter.rows(link.layer), reverse)
    first = zeros(emitter, steps, config.size)
    weight = emitter.parameter(link.parameter)
    body = Body(emitter)
    body.open()
    row, before = body.step_input(steps), body.state(first)
    total = emitter.add_all([row, emitter.op("mul", {"X": before, "Y": weight})])
    total = emitter.add_bias(total, config.bias)
    act = str(config.attrs["act"])
    after = emitter.activated(total, act) if act else total
    (result,) = body.close([after], [after])
    emitter.finish(config, turned(emitter, result, reverse))
