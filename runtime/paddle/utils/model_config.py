# SPDX-License-Identifier: Apache-2.0
"""Reads networks from the original's messages `ModelConfig` and `TrainerConfig`.

The layers of a message are declared again, by functions of `paddle.v2.layer`; sizes and parameters must agree with the
message. What this runtime writes contains the network itself too, in a field that the original skips.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle import protobuf
from paddle.errors import PaddleError
from paddle.proto.ModelConfig_pb2 import MESSAGES
from paddle.reader import pickled
from paddle.utils.model_images import IMAGES
from paddle.utils.model_terms import (
    LAYERS,
    activation_of,
    arguments_of,
    operator,
    projection,
)  # fmt: skip
from paddle.v2 import layer, model, pooling
from paddle.v2.attr import ExtraAttr, Param, ParameterAttribute
from paddle.v2.data_type import DataType, InputType, SequenceType
from paddle.v2.errors import ModelFileError
from paddle.v2.layer.data import declare_input
from paddle.v2.layer.output import LayerOutput
from paddle.v2.messages import AGENTS, GROUP, SIZED_BY_INPUT
from paddle.v2.network import FIRST_FIELD, Network, has_network, network_of
from paddle.v2.parameter_format import ParameterConfig
from paddle_node.contract.classes import replace

_PICKLE = b"\x80"
"""The first byte of a pickle."""
_INPUT_TYPES = ("paddle.trainer.PyDataProvider2 InputType",)
_SIZED_OTHERWISE = SIZED_BY_INPUT | {"detection_output"}
_SETTLED = frozenset({"nce"})  # whose activation is always the same


def network_in(content: bytes) -> Network:
    """Return the network of a serialized message, or of a file of `Topology.serialize_for_inference`.

    The original writes such a file as a pickle of the message and the types of its inputs. It is read as data.

    Raises:
        ModelFileError: the content is damaged, or has a layer that cannot be declared.
    """
    if content[:1] == _PICKLE:
        return _pickled(content)
    if content[:1] != FIRST_FIELD or has_network(content):
        return Network.from_json(content)
    first = dict(protobuf.fields(content)).get(1)
    is_model = isinstance(first, bytes) and first[:1].isalpha()  # its type, such as "nn"
    return network_from(MESSAGES["ModelConfig"].FromString(content if is_model else first))


def _pickled(content: bytes) -> Network:
    try:
        found = pickled.loads(content, _INPUT_TYPES)
        message, types = found["protobin"], dict(found["data_type"])
        network = network_from(
            MESSAGES["ModelConfig"].FromString(message.encode() if isinstance(message, str) else message)
        )
        typed = {
            name: replace(network.layers[name], input_type=_input_type(kind.state))
            for name, kind in types.items()
        }
    except (pickled.PickleRefused, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelFileError(f"this is not a topology of the original: {error}") from error
    return replace(
        network,
        layers={**typed, **{name: each for name, each in network.layers.items() if name not in typed}},
    )


def _input_type(state: Mapping[str, Any]) -> InputType:
    return InputType(state["dim"], SequenceType(state["seq_type"]), DataType(state["type"]))


def network_from(message: Any) -> Network:
    """Return the network that a message `ModelConfig` describes; the types of its inputs are open.

    Raises:
        ModelFileError: a layer cannot be declared, or differs from the message.
    """
    with model.fresh() as space:
        reader = _Reader(message)
        for config in message.layers:
            reader.declare(config)
        outputs = [reader.output(name) for name in message.output_layer_names]
        network = network_of(space, outputs)
    parameters = {each.name: ParameterConfig.decode(each.SerializeToString()) for each in message.parameters}
    for name, made in network.parameters.items():
        size = parameters[name].size if name in parameters else 0
        if size != made.size:
            raise ModelFileError(f"parameter {name!r} needs {made.size} values, but the message has {size}")
    return replace(network, parameters={name: parameters[name] for name in network.parameters})


class _Reader:
    """Declares the layers of a message.

    Attributes:
        made: the layers so far, by their names in the message.
    """

    def __init__(self, message: Any) -> None:
        self.made: dict[str, LayerOutput] = {}
        self._configs = {each.name: each for each in message.layers}
        self._groups = {each.name: each for each in message.sub_models if each.is_recurrent_layer_group}

    def declare(self, config: Any) -> None:
        """Declare a layer, or a recurrent group with all of its layers, unless this has been done."""
        if config.name in self.made or config.type in AGENTS.values():
            return
        try:
            made = _OWN.get(config.type, _Reader._by_table)(self, config)
        except PaddleError as error:
            raise ModelFileError(f"layer {config.name!r} of type {config.type!r}: {error}") from error
        except (
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # of numbers and names in a damaged file
            raise ModelFileError(
                f"layer {config.name!r} of type {config.type!r} is damaged: {error!r}"
            ) from error
        if config.size and made.size != config.size and config.type not in _SIZED_OTHERWISE:
            raise ModelFileError(
                f"layer {config.name!r} of type {config.type!r} has size {config.size}, but inputs imply {made.size}"
            )
        self.made[config.name] = made

    def output(self, name: str) -> str:
        """Return the name under which a layer of the message was declared."""
        return self.made[name].name if name in self.made else name

    def _by_table(self, config: Any) -> LayerOutput:
        if config.type not in LAYERS:
            raise ModelFileError("this type cannot be read; declare the network in Python instead")
        text, _, fields = LAYERS[config.type].partition(" : ")
        name, *inputs = text.split()
        return self.call(name, config, self.named(inputs, config), fields)

    def named(self, names: Sequence[str], config: Any) -> dict[str, Any]:
        """Return the input layers of a layer by the names of the function's arguments."""
        given = [self.input(each.input_layer_name) for each in config.inputs]
        expected = f"expected the inputs {', '.join(names)}, got {len(given)}"
        found: dict[str, Any] = {}
        for at, each in enumerate(names):
            if each[0] == "*":
                count = len(given) - len(names) + at + 1
                found[each[1:]], given = given[:count], given[count:]
            elif given:
                found[each.rstrip("?")] = given.pop(0)
            elif each[-1] != "?":
                raise ModelFileError(expected)
        if given:
            raise ModelFileError(expected)
        return found

    def input(self, name: str) -> LayerOutput:
        """Return a layer that was declared before."""
        if name not in self.made:
            raise ModelFileError(f"reads {name!r}, which is not an earlier layer")
        return self.made[name]

    def call(self, name: str, config: Any, given: Mapping[str, Any], fields: str = "") -> LayerOutput:
        """Call a function of `layer` with inputs, arguments from fields, and the settings that layers share."""
        function = getattr(layer, name)
        known = inspect.signature(function).parameters
        weights = [
            Param(name=each.input_parameter_name) for each in config.inputs if each.input_parameter_name
        ]
        shared = {
            "act": None if config.type in _SETTLED else activation_of(config.active_type),
            "param_attr": weights if len(weights) > 1 else weights[0] if weights else None,
            "bias_attr": _bias(config.bias_parameter_name),
            "layer_attr": ExtraAttr(
                drop_rate=config.drop_rate or None,
                error_clipping_threshold=config.error_clipping_threshold or None,
            ),
        }
        unknown = {"act": config.active_type not in ("", "linear"), "layer_attr": bool(config.drop_rate)}
        for each, is_given in unknown.items():
            if is_given and each not in known and config.type not in _SETTLED:
                raise ModelFileError(f"{each} is not supported for this type of layer")
        arguments = {**given, **arguments_of(config, fields)}
        arguments |= {
            each: value for each, value in shared.items() if each in known and each not in arguments
        }
        made: LayerOutput = function(name=_own(config.name), **arguments)
        return made

    def _data(self, config: Any) -> LayerOutput:
        volume = (config.depth or 1, config.height, config.width)
        return declare_input(config.name, config.size, None, volume, None)

    def _sequence(self, config: Any) -> LayerOutput:
        given = {
            **self.named(["input"], config),
            "agg_level": config.trans_type,
            "stride": config.seq_pool_stride,
        }
        if config.type == "seqlastins":
            return self.call("first_seq" if config.select_first else "last_seq", config, given)
        if config.output_max_index:
            raise ModelFileError("output_max_index is not supported")
        kind = (
            pooling.Avg(config.average_strategy or "average") if config.type == "average" else pooling.Max()
        )
        return self.call("pooling", config, {**given, "pooling_type": kind})

    def _selective(self, config: Any) -> LayerOutput:
        names = ["*input", "select"] if config.has_selected_colums else ["*input"]
        return self.call("selective_fc", config, {**self.named(names, config), "size": config.size})

    def _seq_slice(self, config: Any) -> LayerOutput:
        names = ["input", *(["starts"] if config.select_first or len(config.inputs) > 2 else []), "ends?"]
        return self.call("seq_slice", config, {"starts": None, "ends": None, **self.named(names, config)})

    def _switch_order(self, config: Any) -> LayerOutput:
        axis = len(config.reshape_conf.height_axis)
        return self.call("switch_order", config, {**self.named(["input"], config), "reshape_axis": axis})

    def _beams(self, config: Any) -> LayerOutput:
        layers = [self.input(each.input_layer_name) for each in config.inputs]
        beams = [layer.BeamInput(*layers[at : at + 3]) for at in range(0, len(layers), 3)]
        return self.call("cross_entropy_over_beam", config, {"input": beams})

    def _mixed(self, config: Any) -> LayerOutput:
        layers = [self.input(each.input_layer_name) for each in config.inputs]
        terms = {
            at: projection(each, layers[at])
            for at, each in enumerate(config.inputs)
            if each.HasField("proj_conf")
        }
        for each in config.operator_confs:
            first, second = each.input_indices
            terms[first] = operator(each, layers[first], layers[second])
        given: dict[str, Any] = {"input": [terms[at] for at in sorted(terms)]}
        if config.type == "mixed":
            return self.call("mixed", config, {**given, "size": config.size})
        return self.call("concat", config, given)

    def _group(self, config: Any) -> LayerOutput:
        if config.name not in self._groups:
            raise ModelFileError("the message has no sub_models entry for this group")
        group = self._groups[config.name]
        statics = [each for each in group.memories if each.layer_name == each.link_name]
        inputs: list[Any] = [self.input(each.layer_name) for each in group.in_links]
        inputs += [layer.StaticInput(self.input(each.boot_layer_name), each.is_sequence) for each in statics]
        seen_as = [each.link_name for each in (*group.in_links, *statics)]
        memories = [each for each in group.memories if each not in statics]
        members = list(group.layer_names)
        outer = dict(self.made)

        def step(*seen: LayerOutput) -> None:
            self.made.update(zip(seen_as, seen, strict=True))
            for each in memories:
                self.made[each.link_name] = self._memory(each, outer)
            for name in members:
                self.declare(self._configs[name])

        if group.HasField("generator"):
            return self._generation(config, group, step, inputs, seen_as, memories, members)

        def results(*seen: LayerOutput) -> list[LayerOutput]:
            step(*seen)
            return [self.input(each.layer_name) for each in group.out_links]

        made = layer.recurrent_group(results, inputs, group.reversed, _own(config.name))
        outs = made if isinstance(made, list) else [made]
        for link, out in zip(group.out_links, outs, strict=True):
            if out.name != link.link_name:
                raise ModelFileError(
                    f"expected {out.name!r} as the name of a group's output, got {link.link_name!r}"
                )
            self.made[link.link_name] = out
        return outs[0]

    def _generation(
        self,
        config: Any,
        group: Any,
        step: Callable[..., None],
        inputs: list[Any],
        seen_as: list[str],
        memories: list[Any],
        members: list[str],
    ) -> LayerOutput:
        """Declare `beam_search`; the message has layers for the chosen word, its end and its embedding.

        Of the lists, `step` declares what is left after this.
        """
        generator, out = group.generator, group.out_links[0]
        chosen, end = (self._configs[name] for name in (out.layer_name, generator.eos_layer_name))
        word = next(each for each in memories if each.layer_name == chosen.name)
        memories.remove(word)
        embedded = next(
            self._configs[name]
            for name in members
            if word.link_name in [each.input_layer_name for each in self._configs[name].inputs]
        )
        for each in (chosen, end):
            members.remove(each.name)
        seen_as.append(embedded.name)
        size, table = self._configs[word.link_name].size, embedded.inputs[0].input_parameter_name

        def next_word(*seen: LayerOutput) -> LayerOutput:
            step(*seen)
            return self.input(chosen.inputs[0].input_layer_name)

        found = layer.beam_search(
            next_word,
            [*inputs, layer.GeneratedInput(size, table, embedded.size)],
            word.boot_with_const_id,
            end.eos_id,
            generator.beam_size,
            generator.max_num_frames,
            _own(config.name),
            generator.num_results_per_sample,
        )
        self.made[out.link_name] = found
        return found

    def _memory(self, memory: Any, outer: Mapping[str, LayerOutput]) -> LayerOutput:
        size = self._configs[memory.link_name].size
        given: dict[str, Any] = {"memory_name": _own(memory.link_name)}
        if memory.boot_layer_name:
            given |= {"boot_layer": outer[memory.boot_layer_name], "is_seq": memory.is_sequence}
        if memory.boot_bias_parameter_name:
            given["boot_bias"] = _bias(memory.boot_bias_parameter_name)
            given["boot_bias_active_type"] = activation_of(memory.boot_bias_active_type)
        if memory.HasField("boot_with_const_id"):
            given["boot_with_const_id"] = memory.boot_with_const_id
        return layer.memory(_own(memory.layer_name), size, **given)


_OWN: Mapping[str, Callable[[_Reader, Any], LayerOutput]] = {
    **IMAGES,
    "cross_entropy_over_beam": _Reader._beams,
    "data": _Reader._data,
    "selective_fc": _Reader._selective,
    "seq_slice": _Reader._seq_slice,
    "switch_order": _Reader._switch_order,
    GROUP: _Reader._group,
    **dict.fromkeys(("max", "average", "seqlastins"), _Reader._sequence),
    **dict.fromkeys(("mixed", "concat2"), _Reader._mixed),
}
"""Types of layers whose arguments are not fields of the message."""


def _own(name: str) -> str:
    """Return a layer's name without the suffix of the group that is being declared."""
    group = model.current().group
    return name.removesuffix(f"@{group}") if group else name


def _bias(name: str) -> ParameterAttribute | bool:
    return Param(name=name, initial_mean=0.0, initial_std=0.0) if name else False
