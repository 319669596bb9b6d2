# SPDX-License-Identifier: Apache-2.0
"""A network as data: the layers, parameters and evaluators that given outputs need; also converts it to JSON.

Layers keep their order of creation, which is also a valid order of computation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from paddle import protobuf
from paddle.proto.ModelConfig_pb2 import MESSAGES
from paddle.v2.data_type import DataType, InputType, SequenceType
from paddle.v2.errors import ModelFileError, UsageError
from paddle.v2.messages import (
    AGENTS,
    ATTRIBUTES,
    GROUP,
    MAPS_LAST,
    ORIGINAL_TYPES,
    SIZED_BY_INPUT,
    Message,
    operators_of,
    projection_of,
    settings_of,
    sub_models,
    type_of,
    with_groups,
)
from paddle.v2.model import EvaluatorConfig, Extras, InputConfig, LayerConfig, Model
from paddle.v2.parameter_format import ParameterConfig, UpdateHook
from paddle_node.contract.classes import asdict, dataclass, fields, replace

FORMAT = "paddle-v2-network"
VERSION = 1
MAX_BYTES = 1 << 28
OWN_FIELD = 9999
"""Number of the field that contains a network as JSON, next to the fields of the original's message."""
FIRST_FIELD = b"\n"
"""The first byte of the original's messages."""
_T = TypeVar("_T")
_ModelConfig: Any = MESSAGES["ModelConfig"]


@dataclass(frozen=True)
class Network:
    """A network: the layers, parameters and evaluators that its outputs need, by name, in order of creation."""

    layers: Mapping[str, LayerConfig]
    parameters: Mapping[str, ParameterConfig]
    evaluators: tuple[EvaluatorConfig, ...]
    outputs: tuple[str, ...]

    @property
    def data_types(self) -> list[tuple[str, InputType]]:
        """Return the names and types of the data layers, in order of declaration."""
        return [
            (name, layer.input_type) for name, layer in self.layers.items() if layer.input_type is not None
        ]

    def images(self) -> dict[str, tuple[int, ...]]:
        """Return the (channels, height, width) as which image layers read other layers, by their names."""
        keys = ("channels", "in_height", "in_width")
        return {
            layer.inputs[0].layer: tuple(int(layer.attrs[key]) for key in keys)  # type: ignore[arg-type]
            for layer in self.layers.values()
            if layer.inputs and layer.attrs.keys() >= {*keys}
        }

    def behind(self, names: Iterable[str]) -> set[str]:
        """Return the names of the given layers and of all layers that they depend on."""
        return _needed(self.layers, names)

    def costs(self) -> list[str]:
        """Return the names of the cost layers outside of recurrent groups."""
        return [name for name, layer in self.layers.items() if "coeff" in layer.attrs and not layer.group]

    def to_json(self) -> bytes:
        """Convert the network to JSON values, without evaluators, which are needed only for training."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "outputs": list(self.outputs),
            "layers": [_layer_to_json(layer) for layer in self.layers.values()],
            "parameters": [asdict(parameter) for parameter in self.parameters.values()],
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> Network:
        """Convert the result of ``to_json`` or ``with_network`` back to a network.

        Raises:
            ModelFileError: the data is damaged or does not describe a network.
        """
        if raw[:1] == FIRST_FIELD:
            raw = dict(protobuf.fields(raw))[OWN_FIELD]  # type: ignore[assignment]
        try:
            content = json.loads(raw)
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ModelFileError(
                "this is not a topology; write it with Topology(...).serialize_for_inference(file)"
            ) from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ModelFileError(f"this is not a topology: expected a JSON object with format {FORMAT!r}")
        if content.get("version") != VERSION:
            raise ModelFileError(
                f"topology version {content.get('version')!r} is unknown; expected {VERSION}"
            )
        try:
            layers = [_layer_from_json(item) for item in content["layers"]]
            parameters = [_parameter_from_json(item) for item in content["parameters"]]
            outputs = tuple(str(name) for name in content["outputs"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"the topology is damaged: {type(error).__name__}: {error}") from error
        network = cls(
            {layer.name: layer for layer in layers}, {item.name: item for item in parameters}, (), outputs
        )
        network.check()
        return network

    def check(self) -> None:
        """Check that every layer reads only earlier layers and existing parameters.

        Raises:
            ModelFileError: a layer reads a later layer or a missing parameter.
        """
        seen: set[str] = set()
        for layer in self.layers.values():
            missing = [name for name in sources(layer) if name not in seen]
            missing += [name for name in parameters_of(layer) if name not in self.parameters]
            if missing:
                raise ModelFileError(
                    f"the topology is damaged: layer {layer.name!r} reads {missing[0]!r}, which is missing"
                )
            seen.add(layer.name)
        if not self.outputs or not seen.issuperset(self.outputs):
            raise ModelFileError(
                f"the topology is damaged: expected at least one output, each a layer, got {list(self.outputs)}"
            )


class NetworkMessage(_ModelConfig):  # type: ignore[misc]
    """A network as the original's message `ModelConfig`; settings for which it has no field are omitted.

    Attributes:
        network: the network itself, which changes of the message do not reach; None in a message that was read.
    """

    __slots__ = ("network",)

    def __init__(self, network: Network | None = None, inputs: Sequence[str] | None = None) -> None:
        super().__init__()
        object.__setattr__(self, "network", network)
        if network is not None:
            fill(self, _model_fields(network, inputs))

    def with_network(self) -> bytes:
        """Serialize the message, with the network in an additional field, which other readers of the message skip."""
        assert self.network is not None
        content: bytes = self.SerializeToString()
        return content + protobuf.bytes_field(OWN_FIELD, self.network.to_json())


def has_network(message: bytes) -> bool:
    """Return whether a serialized message has the additional field with the network.

    Raises:
        ModelFileError: the message is damaged.
    """
    return any(number == OWN_FIELD and isinstance(raw, bytes) for number, raw in protobuf.fields(message))


def fill(message: Any, values: Message) -> None:
    """Set the fields that a message has from `values`, and its missing required fields to defaults."""
    for name, field in message.FIELDS.items():
        value = values.get(name, field.default if field.label == "!" else None)
        if value is None:
            continue
        if field.is_repeated:
            for each in value if isinstance(value, (list, tuple, range)) else [value]:
                if isinstance(each, Mapping):
                    fill(getattr(message, name).add(), each)
                else:
                    getattr(message, name).append(_number(field.kind, each))
        elif isinstance(value, Mapping):
            fill(getattr(message, name), value)
        else:
            setattr(message, name, _number(field.kind, value))


def _number(kind: Any, value: Any) -> Any:
    return int(value) if isinstance(value, float) and kind in ("int32", "uint32", "uint64") else value


def _model_fields(network: Network, inputs: Sequence[str] | None) -> Message:
    layers = _with_generators(network.layers)
    network = replace(network, layers=layers)
    data = [name for name, layer in layers.items() if layer.type == "data"]
    inputs = data if inputs is None else [name for name in inputs if name in data]
    return {
        "type": "recurrent_nn" if any(each.group for each in layers.values()) else "nn",
        "layers": [
            {"name": name, "type": GROUP, "active_type": ""} if each is None else _layer(each, network)
            for name, each in with_groups(layers)
        ],
        "parameters": [each.message() for each in network.parameters.values()],
        "input_layer_names": inputs,
        "output_layer_names": list(network.outputs),
        "evaluators": [_evaluator(each) for each in network.evaluators],
        "sub_models": list(
            sub_models(layers, inputs, network.outputs, [each.name for each in network.evaluators])
        ),
    }


def _with_generators(layers: Mapping[str, LayerConfig]) -> Mapping[str, LayerConfig]:
    """Replace each `beam_search` by layers of its group: the chosen word, whether it is eos, and a memory of it."""
    searches = {each.attrs["group_name"]: each for each in layers.values() if each.type == "beam_search"}
    found: dict[str, LayerConfig] = {}
    for name, each in layers.items():
        if each.type == "generated_word" and each.group in searches:
            search = searches[each.group]
            before = {"of": f"{search.name}@{each.group}", "boot_id": search.attrs["bos_id"]}
            found[name] = replace(each, type="memory", attrs=before)
        elif each.type == "beam_search":
            group, prob = str(each.attrs["group_name"]), each.inputs[0].layer
            chosen = LayerConfig(
                f"{name}@{group}", "max_id", layers[prob].size, (InputConfig(prob),), group=group
            )
            seen, eos = (InputConfig(chosen.name),), {"eos_id": each.attrs["eos_id"]}
            end = LayerConfig(f"__{group}_eos_layer__@{group}", "eos", 1, seen, attrs=eos, group=group)
            attrs = {**each.attrs, "eos_layer_name": end.name}
            found |= {chosen.name: chosen, end.name: end}
            found[name] = replace(each, type="group_output", inputs=seen, attrs=attrs)
        else:
            found[name] = each
    return found


def _layer(config: LayerConfig, network: Network) -> Message:
    kind, own_fields = type_of(config)
    message = {"name": config.name, "type": kind, "size": config.size, "active_type": ""}
    if config.type in AGENTS:
        return message
    settings, used = settings_of(config)
    sizes = {name: layer.size for name, layer in network.layers.items()}
    inputs: list[dict[str, Any]] = []
    for link in config.inputs:
        own = {"input_layer_name": link.layer, "input_parameter_name": link.parameter}
        inputs.append({**_filled(own), **projection_of(config, link, sizes[link.layer])})
        if "other" in link.attrs:
            inputs.append({"input_layer_name": link.attrs["other"]})
    count = len(inputs) - MAPS_LAST.get(config.type, 0)
    inputs = [*inputs[count:], *inputs[:count]]
    if settings:
        inputs[0] |= settings
    if "arg_name" in config.attrs:
        inputs[0]["input_layer_argument"] = config.attrs["arg_name"]
    rest = {key: each for key, each in config.attrs.items() if key not in {*used, "inputs"}}
    if "conv" in kind:
        is_shared = bool(config.bias) and network.parameters[config.bias].size == config.num_filters
        message |= {"num_filters": config.num_filters, "shared_biases": is_shared}
    if config.type in SIZED_BY_INPUT:
        message["size"] = sizes[config.inputs[0].layer]
    if config.type == "factorization_machine":
        message["factor_size"] = network.parameters[config.inputs[0].parameter].dims[1]
    return {
        **message,
        "active_type": config.attrs.get("act", config.activation),
        "inputs": inputs,
        **_filled({"bias_parameter_name": config.bias}),
        **_filled(vars(config.extras)),
        "operator_confs": operators_of(config, sizes),
        **_filled({"height": config.height, "width": config.width}),
        **_filled(rest),
        **{name: rest[own] for name, own in ATTRIBUTES.items() if own in rest},
        **own_fields,
    }


def _evaluator(config: EvaluatorConfig) -> dict[str, Any]:
    kind = ORIGINAL_TYPES.get(config.type, config.type)
    return {"name": config.name, "type": kind, "input_layers": list(config.inputs), **_filled(config.attrs)}


def _filled(fields: Message) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def network_of(space: Model, outputs: Sequence[str], extra: Sequence[str] = ()) -> Network:
    """Collect the layers, parameters and evaluators that ``outputs`` and ``extra`` need from a namespace.

    Raises:
        UsageError: a layer is not declared in the namespace, or two layers use one parameter in different ways.
    """
    needed = _needed(space.layers, [*outputs, *extra])
    known = set(needed)
    for name, layer in space.layers.items():  # layers that only evaluators need
        if layer.type in ("group_output", "ids") and known.issuperset(sources(layer)):
            known.add(name)
    evaluators = tuple(item for item in space.evaluators if known.issuperset(item.inputs))
    needed |= _needed(space.layers, [name for item in evaluators for name in item.inputs])
    layers = {name: layer for name, layer in space.layers.items() if name in needed}
    used = {name for layer in layers.values() for name in parameters_of(layer)}
    return Network(
        layers,
        {name: parameter for name, parameter in space.parameters.items() if name in used},
        evaluators,
        tuple(outputs),
    )


def _needed(layers: Mapping[str, LayerConfig], names: Iterable[str]) -> set[str]:
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        if name not in layers:
            raise UsageError(
                f"unknown layer {name!r} in this namespace (if it is a mixed layer, finish it first)"
            )
        needed.add(name)
        waiting.extend(sources(layers[name]))
    return needed


def sources(layer: LayerConfig) -> Iterator[str]:
    """Return the names of the layers that a layer reads."""
    for link in layer.inputs:
        yield link.layer
        if "other" in link.attrs:
            yield str(link.attrs["other"])


def parameters_of(layer: LayerConfig) -> Iterator[str]:
    """Return the names of a layer's parameters, weights first."""
    yield from (link.parameter for link in layer.inputs if link.parameter)
    if layer.bias:
        yield layer.bias


def _layer_to_json(layer: LayerConfig) -> dict[str, Any]:
    content = {item.name: getattr(layer, item.name) for item in fields(layer)}
    content["attrs"] = dict(layer.attrs)
    content |= _flat(content.pop("extras"))
    content["inputs"] = [{**_flat(link), "attrs": dict(link.attrs)} for link in layer.inputs]
    content["input_type"] = None if layer.input_type is None else _flat(layer.input_type)
    return content


def _flat(value: InputConfig | InputType | Extras) -> dict[str, Any]:
    return {item.name: getattr(value, item.name) for item in fields(value)}


def _layer_from_json(content: dict[str, Any]) -> LayerConfig:
    content = {"group": "", **content}
    kind = content.get("input_type")
    if kind is not None:
        content["input_type"] = InputType(
            int(kind["dim"]),
            SequenceType(kind["seq_type"]),
            DataType(kind["type"]),
            bool(kind.get("has_own_shape")),
        )
    links = [dict(link) for link in content["inputs"]]
    content["inputs"] = tuple(_build(InputConfig, {**link, "attrs": _attrs(link["attrs"])}) for link in links)
    content["attrs"] = _attrs(content["attrs"])
    # files of earlier versions do not contain error clipping
    content.setdefault("error_clipping_threshold", 0.0)
    content["extras"] = _build(Extras, {item.name: content.pop(item.name) for item in fields(Extras)})
    return _build(LayerConfig, content)


def _attrs(content: dict[str, Any]) -> dict[str, Any]:
    for name, value in content.items():
        if not isinstance(value, (bool, int, float, str, list)):
            raise TypeError(f"attribute {name!r}: expected a bool, int, float, str or list, got {value!r}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}


def _parameter_from_json(content: dict[str, Any]) -> ParameterConfig:
    hooks = tuple(_build(UpdateHook, hook) for hook in content["update_hooks"])
    return _build(ParameterConfig, {**content, "dims": tuple(content["dims"]), "update_hooks": hooks})


def _build(kind: type[_T], content: dict[str, Any]) -> _T:
    for item in fields(kind):  # type: ignore[arg-type]
        value = content[item.name]
        expected = {"str": str, "int": int, "bool": bool, "float": (int, float)}.get(str(item.type))
        if expected is not None and not isinstance(value, expected):  # type: ignore[arg-type]
            raise TypeError(f"{kind.__name__}.{item.name}: expected {item.type}, got {value!r}")
    return kind(**content)
