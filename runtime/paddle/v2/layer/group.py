# SPDX-License-Identifier: Apache-2.0
"""recurrent_group, which runs a declared step for each item of sequences, and memories, which hold states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle.graph import Variable
from paddle.ops.base.dtypes import VarType
from paddle.signatures import misfit
from paddle.v2 import model
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.body import Body, zeros
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    Act,
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    declare,
    require_layer,
    require_size,
)
from paddle.v2.model import Attrs, InputConfig, LayerConfig
from paddle_node.contract.classes import dataclass, replace

__all__ = ["StaticInput", "memory", "recurrent_group"]


@dataclass(frozen=True)
class StaticInput:
    """An input of a group that every step reads as a whole, one row or sequence per sample; `is_seq` has no effect."""

    input: LayerOutput
    is_seq: bool = False
    size: int | None = None


def recurrent_group(
    step: Callable[..., LayerOutput | Sequence[LayerOutput]],
    input: LayerOutput | StaticInput | Sequence[LayerOutput | StaticInput | Any],
    reverse: bool = False,
    name: str | None = None,
    targetInlink: LayerOutput | None = None,
) -> LayerOutput | list[LayerOutput]:
    """Declare a recurrent network by a function that declares one step, which runs for each item of the sequences.

    Args:
        step: called once with a layer for each input; returns one layer or several. The outputs of the group have the
            same names, and are the sequences of these layers' values.
        input: at least one layer of sequences, all of equal lengths, and `StaticInput`s; anything else, such as a
            number, is passed to the function unchanged.
        reverse: whether to run from the last step to the first.
        name: the name of the group; names of layers and parameters that the function declares end with ``@<name>``.
        targetInlink: has no effect: outputs have the sequence lengths of the inputs.
    """
    space = model.current()
    name = space.auto_name("recurrent_group", name)
    inputs = list(input) if isinstance(input, (list, tuple)) else [input]
    if not any(isinstance(each, LayerOutput) for each in inputs):
        raise UsageError(
            f"recurrent group {name!r} needs a sequence layer as input; StaticInputs alone have no steps"
        )
    if problem := misfit(step, *inputs):
        raise UsageTypeError(
            f"recurrent group {name!r}: the step must take {len(inputs)} arguments, one for each input: {problem}"
        )
    with space.steps_of(name):
        made = step(*map(seen_by_steps, inputs))
        outs: list[LayerOutput] = [made] if isinstance(made, LayerOutput) else list(made)
        for out in outs:
            require_layer(out, f"the step of recurrent group {name!r}")
        memories = memories_of(name)
    kept = [*memories.values(), *_step_inputs(name)]
    results = [_output(out, kept, name, reverse) for out in outs]
    _show_to_evaluators(name, kept, reverse)
    return results[0] if len(results) == 1 else results


def memory(
    name: str | None,
    size: int,
    memory_name: str | None = None,
    is_seq: bool = False,
    boot_layer: LayerOutput | None = None,
    boot_bias: BiasAttr = None,
    boot_bias_active_type: Act = None,
    boot_with_const_id: int | None = None,
) -> LayerOutput:
    """Declare a memory (state) in the step of a group: the value of the layer `name` in the previous step.

    The value before the first step is zero unless a `boot_` argument is given.

    Args:
        name: the name of a layer that the step declares; None means the memory's `set_input` sets it later.
        size: the size of that layer.
        memory_name: the name of this layer.
        is_seq: whether the value is a sequence per sample, which needs a `boot_layer` of sequences; by default, this is
            detected.
        boot_layer: an outer layer with the first value: one row per sample, or one sequence of constant length per
            sample.
        boot_bias: the attribute of a learned row, which is the first value.
        boot_bias_active_type: the activation of that row.
        boot_with_const_id: an id, which is the first value; the layer must be one of ids.
    """
    space = model.current()
    if not space.group:
        raise UsageError(f"memory of {name!r}: only the step of a recurrent_group can have memories")
    if sum((boot_layer is not None, bool(boot_bias), boot_with_const_id is not None)) > 1:
        raise UsageError(
            f"memory of {name!r}: give at most one of boot_layer, boot_bias and boot_with_const_id"
        )
    if is_seq and boot_layer is None:
        raise UsageError(
            f"memory of {name!r}: is_seq needs a boot_layer, which gives the lengths of the sequences"
        )
    if boot_layer is not None:
        require_size(boot_layer, size, f"boot_layer of memory {name!r}")
    links = () if boot_layer is None else (InputConfig(boot_layer.name),)
    own = space.auto_name("memory", memory_name or (f"{name}+delay1" if name else None))
    attrs: Attrs = {"of": space.inner_name(name) if name else ""}
    if boot_with_const_id is not None:
        attrs = {**attrs, "boot_id": boot_with_const_id}
    config = LayerConfig(
        own,
        "memory",
        size,
        links,
        activation_name(boot_bias_active_type, ""),
        add_bias(own, [1, size], boot_bias),
        attrs=attrs,
    )
    return declare(config, [] if boot_layer is None else [boot_layer])


def memories_of(group: str) -> dict[str, str]:
    """Return the layer of each memory in a group, by memory name; the group's step must have been declared.

    Raises:
        UsageError: the step does not declare a memory's layer.
    """
    layers = model.current().layers
    found = {
        name: str(each.attrs["of"])
        for name, each in layers.items()
        if each.group == group and each.type == "memory"
    }
    for memory, target in found.items():
        if not target:
            raise UsageError(
                f"recurrent group {group!r}: memory {memory!r} has neither a name nor an input; give name=, or call "
                "set_input"
            )
        if target not in layers:
            raise UsageError(
                f"recurrent group {group!r}: a memory refers to layer {_outside(target, group)!r}, but no layer of "
                "the step has that name; give this name to the layer whose output the memory should store"
            )
        if layers[memory].size != layers[target].size:
            raise UsageError(
                f"recurrent group {group!r}: the memory of layer {_outside(target, group)!r} has size "
                f"{layers[memory].size}, but the layer has size {layers[target].size}; give both the same "
                f"size{layers[memory].created}"
            )
    return found


def seen_by_steps(given: Any) -> Any:
    """Declare the layer that represents an input of a group within its steps; return other arguments unchanged."""
    layer = given.input if isinstance(given, StaticInput) else given
    if not isinstance(layer, LayerOutput):
        if isinstance(given, StaticInput):
            raise UsageTypeError(f"StaticInput takes a layer, got {layer!r:.80}")
        return given
    kind = ("static_seq" if given.is_seq else "static") if isinstance(given, StaticInput) else "step"
    config = LayerConfig(
        model.current().auto_name("group_input"),
        "group_input",
        layer.size,
        (InputConfig(layer.name),),
        attrs={"kind": kind},
    )
    return declare(config, [layer])


def _step_inputs(group: str) -> list[str]:
    """Return the step inputs of a group, which are needed whether or not a layer of the step reads them."""
    members = (each for each in model.current().layers.values() if each.group == group)
    return [each.name for each in members if each.attrs.get("kind") == "step"]


def _output(
    out: LayerOutput, kept: list[str], group: str, reverse: bool, name: str | None = None
) -> LayerOutput:
    # The layers of memories are needed too, even if no output depends on them.
    links = tuple(InputConfig(each) for each in dict.fromkeys([out.name, *kept]))
    attrs: Attrs = {"group_name": group, "reverse": bool(reverse)}
    if "coeff" in out.config.attrs:  # a cost in the step is a cost of the network
        attrs = {**attrs, "coeff": out.config.attrs["coeff"]}
    name = name or model.current().inner_name(_outside(out.name, group))
    return declare(LayerConfig(name, "group_output", out.size, links, out.activation, attrs=attrs), [out])


def _show_to_evaluators(group: str, kept: list[str], reverse: bool) -> None:
    """Point evaluators declared by the step at all steps: at the group's outputs and inputs."""
    space = model.current()
    shown = {
        each.inputs[0].layer: each.name
        for each in space.layers.values()
        if each.type == "group_output" and each.attrs["group_name"] == group
    }

    def show(name: str) -> str:
        config = space.layers[name]
        if config.group != group:
            return name
        if config.type == "group_input" and config.attrs["kind"] == "step":
            return config.inputs[0].layer
        if name not in shown:
            own = space.auto_name("evaluated")
            shown[name] = _output(LayerOutput(config), kept, group, reverse, own).name
        return shown[name]

    space.evaluators[:] = [replace(each, inputs=tuple(map(show, each.inputs))) for each in space.evaluators]


def _outside(name: str, group: str) -> str:
    return name.removesuffix(f"@{group}")


@emits("group_output")
def _group_output(emitter: Emitter, config: LayerConfig) -> None:
    group = str(config.attrs["group_name"])
    if group not in emitter.groups:
        emitter.groups[group] = _emit_group(emitter, group, bool(config.attrs["reverse"]))
    # The steps have applied the activation already.
    emitter.set_rows(config.name, emitter.groups[group][config.inputs[0].layer])


def _emit_group(emitter: Emitter, group: str, reverse: bool) -> dict[str, Variable]:
    outs = [
        each.inputs[0].layer
        for each in emitter.layers.values()
        if each.type == "group_output" and each.attrs["group_name"] == group
    ]
    body, after = opened(emitter, group)
    results = body.close(after, [emitter.sequence(name) for name in outs], reverse)
    return dict(zip(outs, results, strict=True))


def opened(emitter: Emitter, group: str) -> tuple[Body, list[Variable]]:
    """Emit the step of a group to a body; return the body, still open, and the memories after the step."""
    members = [each for each in emitter.layers.values() if each.group == group]
    memories = [each for each in members if each.type == "memory"]
    inputs = [each for each in members if each.type == "group_input"]
    seen = _outer_values(emitter, inputs)
    boots = (emitter.sequence(each.inputs[0].layer) for each in memories if each.inputs)
    # Memories have as many entries as there are sequences: those of a step input, if there is one.
    steps = [seen[each.name] for each in inputs if each.attrs["kind"] == "step"]
    like = next(iter([*steps, *seen.values(), *boots]))
    first = {each.name: _first_value(emitter, each, like) for each in memories}
    body = Body(emitter)
    body.open()
    for member in members:
        kind = member.attrs.get("kind")
        if member.type == "memory":
            emitter.set_rows(member.name, body.state(first[member.name]))
        elif member.type != "group_input":
            emitter.emit(member)
        else:
            outer = seen[member.name]
            value = (
                body.step_input(outer)
                if kind == "step"
                else body.static_input(outer, is_seq=kind == "static_seq")
            )
            emitter.see(member.name, value, member.inputs[0].layer)
    return body, [emitter.sequence(str(each.attrs["of"])) for each in memories]


def _first_value(emitter: Emitter, memory: LayerConfig, like: Variable) -> Variable:
    """Return the value of a memory before the first step, with as many entries as `like`."""
    if memory.inputs:
        return emitter.sequence(memory.inputs[0].layer)
    if "boot_id" in memory.attrs:
        attrs = {"shape": [-1, 1], "value": float(memory.attrs["boot_id"]), "dtype": VarType.INT64}  # type: ignore[arg-type]
        word = emitter.op("fill_constant_batch_size_like", {"Input": emitter.joined(like)}, attrs)
        word.stop_gradient = True
        return word
    value = emitter.add_bias(zeros(emitter, like, memory.size), memory.bias)
    return emitter.activated(value, memory.activation)


def _outer_values(emitter: Emitter, inputs: Sequence[LayerConfig]) -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    for each in inputs:
        value = emitter.sequence(each.inputs[0].layer)
        if any(value is other for other in found.values()):
            # Each input has its own name in a step, because a value can be both a static input and a step input.
            value = emitter.op("assign", {"X": value})
        found[each.name] = value
    return found
