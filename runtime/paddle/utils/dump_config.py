# SPDX-License-Identifier: Apache-2.0
"""`paddle dump_config CONFIG [config_args] [--whole | --binary]`: prints the network that a configuration declares."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paddle.trainer.config_parser import TrainerConfig, parse_config
from paddle.utils.original_messages import Message, operators_of, projection_of, settings_of, sub_models
from paddle.v2.model import EvaluatorConfig, LayerConfig
from paddle.v2.network import text_lines

ORIGINAL_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "auc": "last-column-auc",
        "block_expand": "blockexpand",
        "column_sum": "last-column-sum",
        "cos_sim": "cos",
        "cross_channel_norm": "norm",
        "cross_entropy": "multi-class-cross-entropy",
        "cross_entropy_with_selfnorm": "multi_class_cross_entropy_with_selfnorm",
        "ctc_error": "ctc_edit_distance",
        "eos": "eos_id",
        "gru": "gated_recurrent",
        "img_cmrnorm": "norm",
        "img_conv": "exconv",
        "img_pool": "pool",
        "img_pool3d": "pool3d",
        "linear_comb": "convex_comb",
        "max_id": "maxid",
        "printer": "print",
        "rank_cost": "rank-cost",
        "repeat": "featmap_expand",
        "sub_seq": "subseq",
    }
)
"""Type of a layer or an evaluator -> the name that the original's configurations have for it, where they differ."""

# layers at the borders of recurrent groups, whose links are in sub_models
_AGENTS = {"group_input": "scatter_agent", "memory": "agent", "group_output": "gather_agent"}
_USAGE = "usage: paddle dump_config CONFIG [config_args] [--whole | --binary]\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a configuration; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = [each for each in given if each.startswith("--")]
    names = [each for each in given if not each.startswith("--")]
    if not 1 <= len(names) <= 2 or set(options) - {"--whole", "--binary"}:
        sys.stderr.write(_USAGE)
        return 1
    config = parse_config(names[0], names[1] if len(names) == 2 else "")
    if "--binary" in options:
        sys.stdout.buffer.write(config.SerializeToString())
    elif "--whole" in options:
        sys.stdout.write(whole(config) + "\n")
    else:
        sys.stdout.write(f"{model_text(config)}\n")
    return 0


def model_text(config: TrainerConfig) -> str:
    """Return the network as text, in the messages and with the names of the original."""
    network, message = config.network, config.model_config
    layers = network.layers
    fields = {
        "type": "recurrent_nn" if any(each.group for each in layers.values()) else "nn",
        "layers": [_layer(each, layers) for each in layers.values()],
        "parameters": message.parameters,
        "input_layer_names": message.input_layer_names,
        "output_layer_names": message.output_layer_names,
        "evaluators": [{**_evaluator(each)} for each in message.evaluators],
        "sub_models": list(sub_models(layers, message.input_layer_names, message.output_layer_names)),
    }
    return "\n".join(line for name, value in fields.items() for line in text_lines(name, value))


def _layer(config: LayerConfig, layers: Mapping[str, LayerConfig]) -> Message:
    """Return a layer's message, then, under our names, the attributes for which the original has no message."""
    settings, used = settings_of(config)
    sizes = {name: layer.size for name, layer in layers.items()}
    inputs: list[dict[str, Any]] = []
    for link in config.inputs:
        own = {"input_layer_name": link.layer, "input_parameter_name": link.parameter}
        inputs.append({**_filled(own), **projection_of(config, link, sizes[link.layer])})
        if "other" in link.attrs:
            inputs.append({"input_layer_name": link.attrs["other"]})
    if settings:
        inputs[0] |= settings
    kind = _AGENTS.get(config.type) or ORIGINAL_TYPES.get(config.type, config.type)
    rest = (
        {} if config.type in _AGENTS else {key: each for key, each in config.attrs.items() if key not in used}
    )
    return {
        "name": config.name,
        "type": kind,
        "size": config.size,
        "active_type": config.activation,
        "inputs": inputs,
        **_filled({"bias_parameter_name": config.bias, "num_filters": config.num_filters}),
        **_filled(vars(config.extras)),
        "operator_confs": operators_of(config, sizes),
        **_filled({"height": config.height, "width": config.width}),
        **_filled(rest),
    }


def _evaluator(config: EvaluatorConfig) -> Message:
    kind = ORIGINAL_TYPES.get(config.type, config.type)
    return {"name": config.name, "type": kind, "input_layers": config.inputs, **_filled(config.attrs)}


def _filled(fields: Message) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def whole(config: TrainerConfig) -> str:
    """Return the network, the settings and the data sources as text."""
    configuration = config.configuration
    network = "\n".join(f"  {line}" for line in model_text(config).splitlines())
    parts = [f"model_config {{\n{network}\n}}", _message("opt_config", _optimization(config))]
    sources = (("data_config", configuration.train), ("test_data_config", configuration.test))
    for name, source in sources:
        if source is not None:
            files = source.files if isinstance(source.files, str) else ",".join(source.files)
            fields = {
                "type": "py2",
                "files": files,
                "load_data_module": source.module,
                "load_data_object": source.provider,
                "load_data_args": str(dict(source.arguments)) if source.arguments else "",
            }
            parts.append(_message(name, fields))
    return "\n".join(parts)


def _optimization(config: TrainerConfig) -> dict[str, Any]:
    """Return the settings under the names of the original's message."""
    given = dict(config.opt_config)
    method, average = given.pop("learning_method", None), given.pop("model_average", None)
    is_async = given.pop("is_async", False)
    for name in ("regularization", "gradient_clipping_threshold"):
        given.pop(name, None)
    found = {"algorithm": "async_sgd" if is_async else "sgd", **given}
    for part in (method, average):
        if part is not None:
            found |= part.to_setting_kwargs()
    return found


def _message(name: str, fields: Mapping[str, Any]) -> str:
    lines = [
        f'  {key}: "{value}"' if isinstance(value, str) else f"  {key}: {_plain(value)}"
        for key, value in fields.items()
        if value not in (None, "")
    ]
    return "\n".join([f"{name} {{", *lines, "}"])


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.exit(main())
