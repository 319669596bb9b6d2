# SPDX-License-Identifier: Apache-2.0
"""Reads networks from the original's messages `ModelConfig` and `TrainerConfig`.

The layers of a message are declared again, by functions of `paddle.v2.layer`; sizes and parameters must agree with the
message. What this runtime writes contains the network itself too, in a field that the original skips.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddle import protobuf
from paddle.errors import PaddleError
from paddle.proto.ModelConfig_pb2 import MESSAGES
from paddle.utils.model_terms import (
    CONV,
    activation_of,
    arguments_of,
    fields_of,
    operator,
    pool_type_of,
    projection,
)  # fmt: skip
from paddle.v2 import layer, model, pooling
from paddle.v2.attr import ExtraAttr, Param, ParameterAttribute
from paddle.v2.errors import ModelFileError
from paddle.v2.layer.data import declare_input
from paddle.v2.layer.output import LayerOutput
from paddle.v2.messages import AGENTS, GROUP, SIZED_BY_INPUT
from paddle.v2.network import FIRST_FIELD, Network, has_network, network_of
from paddle.v2.parameter_format import ParameterConfig

_COST = "input label weight? : coeff"
_GATES = "reverse=reversed gate_act=active_gate_type"
_LAYERS: Mapping[str, str] = {
    "addto": "addto *input",
    "bilinear_interp": "bilinear_interp input : out_size_x out_size_y",
    "blockexpand": "block_expand input : block_x block_y stride_x stride_y padding_x padding_y num_channels=channels",
    "clip": "clip input : min max",
    "concat": "concat *input",
    "conv_shift": "conv_shift a b",
    "convex_comb": "linear_comb weights vectors : size",
    "cos": "cos_sim a b : scale=cos_scale",
    "cos_vm": "cos_sim a b : scale=cos_scale size",
    "crf": f"crf {_COST}",
    "crf_decoding": "crf_decoding input label? : size",
    "ctc": "ctc input label : norm_by_times",
    "dot_prod": "dot_prod input1 input2",
    "eos_id": "eos input : eos_id",
    "expand": "expand input expand_as : expand_level=trans_type",
    "factorization_machine": "factorization_machine input : factor_size",
    "fc": "fc *input : size",
    "featmap_expand": "repeat input : num_repeats=num_filters",
    "gated_recurrent": f"grumemory input : {_GATES}",
    "get_output": "get_output input : arg_name=input_layer_argument",
    "gru_step": "gru_step input output_mem : gate_act=active_gate_type",
    "hsigmoid": "hsigmoid *input label : num_classes",
    "huber_classification": "huber_classification_cost input label : coeff",
    "huber_regression": "huber_regression_cost input label : coeff delta",
    "interpolation": "interpolation weight *input",
    "kmax_seq_score": "kmax_seq_score input : beam_size",
    "l2_distance": "l2_distance x y",
    "lambda_cost": "lambda_cost input score : NDCG_num max_sort_size",
    "lstm_step": "lstm_step input state : gate_act=active_gate_type state_act=active_state_type",
    "lstmemory": f"lstmemory input : {_GATES} state_act=active_state_type",
    "maxid": "max_id input",
    "maxout": "maxout input : groups num_channels=image_conf.channels",
    "multi-class-cross-entropy": f"cross_entropy_cost {_COST}",
    "multi_binary_label_cross_entropy": "multi_binary_label_cross_entropy_cost input label : coeff",
    "multi_class_cross_entropy_with_selfnorm": (
        "cross_entropy_with_selfnorm_cost input label : coeff softmax_selfnorm_alpha"
    ),
    "multiplex": "multiplex *input",
    "nce": "nce *input label : num_classes num_neg_samples",
    "out_prod": "out_prod input1 input2",
    "pad": "pad input : pad_c pad_h pad_w",
    "power": "power weight input",
    "prelu": "prelu input : partial_sum",
    "rank-cost": "rank_cost left right label weight? : coeff",
    "recurrent": "recurrent input : reverse=reversed",
    "resize": "resize input : size",
    "rotate": "rotate input : height width",
    "row_conv": "row_conv input : context_len=context_length",
    "row_l2_norm": "row_l2_norm input",
    "sampling_id": "sampling_id input",
    "print": "printer *input",
    "scale_shift": "scale_shift input",
    "scaling": "scaling weight input",
    "seqconcat": "seq_concat a b",
    "seqreshape": "seq_reshape input : reshape_size=size",
    "slope_intercept": "slope_intercept input : slope intercept",
    "smooth_l1": "smooth_l1_cost input label : coeff",
    "spp": "spp input : pool_type pyramid_height num_channels=image_conf.channels",
    "square_error": f"square_error_cost {_COST}",
    "subseq": "sub_seq input offsets sizes",
    "sum_cost": "sum_cost input",
    "sum_to_one_norm": "sum_to_one_norm input",
    "tensor": "tensor a b : size",
    "trans": "trans input",
    "warp_ctc": "warp_ctc input label : blank norm_by_times",
}
"""Type of a layer -> its function, the names of its inputs, and its arguments with their fields in the message."""

_SETTLED = frozenset({"nce"})  # whose activation is always the same


def network_in(content: bytes) -> Network:
    """Return the network of a serialized message, or of the JSON of `Topology.serialize_for_inference`.

    Raises:
        ModelFileError: the content is damaged, or has a layer that cannot be declared.
    """
    if content[:1] != FIRST_FIELD or has_network(content):
        return Network.from_json(content)
    first = dict(protobuf.fields(content)).get(1)
    is_model = isinstance(first, bytes) and first[:1].isalpha()  # its type, such as "nn"
    return network_from(MESSAGES["ModelConfig"].FromString(content if is_model else first))


def network_from(message: Any) -> Network:
    """Return the network that a message `ModelConfig` describes; the types of its inputs are open.

    Raises:
        ModelFileError: a layer cannot be declared, or differs from the message.
    """
    with model.fresh() as space:
        reader = _Reader(message)
        for config in message.layers:
            reader.declare(config)
        network = network_of(space, list(message.output_layer_names))
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
        if config.size and made.size != config.size and config.type not in SIZED_BY_INPUT:
            raise ModelFileError(
                f"layer {config.name!r} of type {config.type!r} has size {config.size}, but inputs imply {made.size}"
            )
        self.made[config.name] = made

    def _by_table(self, config: Any) -> LayerOutput:
        if config.type not in _LAYERS:
            raise ModelFileError("this type cannot be read; declare the network in Python instead")
        text, _, fields = _LAYERS[config.type].partition(" : ")
        name, *inputs = text.split()
        return self._call(name, config, self._named(inputs, config), fields)

    def _named(self, names: Sequence[str], config: Any) -> dict[str, Any]:
        """Return the input layers of a layer by the names of the function's arguments."""
        given = [self._input(each.input_layer_name) for each in config.inputs]
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

    def _input(self, name: str) -> LayerOutput:
        if name not in self.made:
            raise ModelFileError(f"reads {name!r}, which is not an earlier layer")
        return self.made[name]

    def _call(self, name: str, config: Any, given: Mapping[str, Any], fields: str = "") -> LayerOutput:
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
                raise ModelFileError(f"{each} of this type cannot be read")
        arguments = {**given, **arguments_of(config, fields)}
        arguments |= {
            each: value for each, value in shared.items() if each in known and each not in arguments
        }
        made: LayerOutput = function(name=_own(config.name), **arguments)
        return made

    def _data(self, config: Any) -> LayerOutput:
        volume = (config.depth or 1, config.height, config.width)
        return declare_input(config.name, config.size, None, volume, None)

    def _conv(self, config: Any) -> LayerOutput:
        conv = config.inputs[0].conv_conf
        given = {
            "num_filters": config.num_filters,
            "shared_biases": config.shared_biases,
            "trans": config.type.endswith("t"),
        }
        return self._call(
            "img_conv", config, {**self._named(["input"], config), **given, **fields_of(conv, CONV)}
        )

    def _pool(self, config: Any) -> LayerOutput:
        pool = config.inputs[0].pool_conf
        sides = [
            (pool.img_size, pool.padding, pool.size_x, pool.stride, pool.output_x),
            (
                pool.img_size_y or pool.img_size,
                pool.padding_y if pool.HasField("padding_y") else pool.padding,
                pool.size_y or pool.size_x,
                pool.stride_y or pool.stride,
                pool.output_y or pool.output_x,
            ),
        ]
        (_, padding, size, stride, _), (_, padding_y, size_y, stride_y, _) = sides
        given = {
            "pool_size": size, "pool_size_y": size_y, "stride": stride, "stride_y": stride_y, "padding": padding,
            "padding_y": padding_y, "num_channels": pool.channels, "pool_type": pool_type_of(pool.pool_type),
            "exclude_mode": pool.exclude_mode if pool.HasField("exclude_mode") else None,
            "ceil_mode": any((image + 2 * pad - window) // step + 1 != out for image, pad, window, step, out in sides),
        }  # fmt: skip
        return self._call("img_pool", config, {**self._named(["input"], config), **given})

    def _batch_norm(self, config: Any) -> LayerOutput:
        weight, *moving = (each.input_parameter_name for each in config.inputs)
        given = {
            "input": self._input(config.inputs[0].input_layer_name),
            "param_attr": Param(name=weight),
            "mean_var_names": tuple(moving),
            "num_channels": config.inputs[0].image_conf.channels,
            "use_global_stats": config.use_global_stats if config.HasField("use_global_stats") else None,
        }
        return self._call("batch_norm", config, given, "epsilon moving_average_fraction")

    def _norm(self, config: Any) -> LayerOutput:
        norm, given = config.inputs[0].norm_conf, self._named(["input"], config)
        if norm.norm_type == "cross-channel-norm":
            return self._call("cross_channel_norm", config, given)
        if norm.norm_type != "cmrnorm-projection":
            raise ModelFileError(f"norm_type {norm.norm_type!r} cannot be read")
        given |= {
            "size": norm.size,
            "scale": norm.scale * norm.size,
            "power": norm.pow,
            "num_channels": norm.channels,
        }
        return self._call("img_cmrnorm", config, given)

    def _sequence(self, config: Any) -> LayerOutput:
        given = {
            **self._named(["input"], config),
            "agg_level": config.trans_type,
            "stride": config.seq_pool_stride,
        }
        if config.type == "seqlastins":
            return self._call("first_seq" if config.select_first else "last_seq", config, given)
        if config.output_max_index:
            raise ModelFileError("output_max_index cannot be read")
        kind = (
            pooling.Avg(config.average_strategy or "average") if config.type == "average" else pooling.Max()
        )
        return self._call("pooling", config, {**given, "pooling_type": kind})

    def _selective(self, config: Any) -> LayerOutput:
        names = ["*input", "select"] if config.has_selected_colums else ["*input"]
        return self._call("selective_fc", config, {**self._named(names, config), "size": config.size})

    def _mixed(self, config: Any) -> LayerOutput:
        layers = [self._input(each.input_layer_name) for each in config.inputs]
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
            return self._call("mixed", config, {**given, "size": config.size})
        return self._call("concat", config, given)

    def _group(self, config: Any) -> LayerOutput:
        if config.name not in self._groups:
            raise ModelFileError("the message has no sub_models entry for this group")
        group = self._groups[config.name]
        if group.HasField("generator"):
            raise ModelFileError(
                "generation (beam_search) cannot be read; declare the network in Python instead"
            )
        statics = [each for each in group.memories if each.layer_name == each.link_name]
        inputs: list[Any] = [self._input(each.layer_name) for each in group.in_links]
        inputs += [layer.StaticInput(self._input(each.boot_layer_name), each.is_sequence) for each in statics]
        outer = dict(self.made)

        def step(*seen: LayerOutput) -> list[LayerOutput]:
            self.made.update(zip([each.link_name for each in (*group.in_links, *statics)], seen, strict=True))
            for each in group.memories:
                if each not in statics:
                    self.made[each.link_name] = self._memory(each, outer)
            for name in group.layer_names:
                self.declare(self._configs[name])
            return [self._input(each.layer_name) for each in group.out_links]

        made = layer.recurrent_group(step, inputs, group.reversed, _own(config.name))
        outs = made if isinstance(made, list) else [made]
        for link, out in zip(group.out_links, outs, strict=True):
            if out.name != link.link_name:
                raise ModelFileError(
                    f"expected {out.name!r} as the name of a group's output, got {link.link_name!r}"
                )
            self.made[link.link_name] = out
        return outs[0]

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
    "data": _Reader._data,
    "norm": _Reader._norm,
    "pool": _Reader._pool,
    "selective_fc": _Reader._selective,
    GROUP: _Reader._group,
    **dict.fromkeys(("exconv", "cudnn_conv", "mkldnn_conv", "exconvt", "cudnn_convt"), _Reader._conv),
    **dict.fromkeys(("batch_norm", "cudnn_batch_norm", "mkldnn_batch_norm"), _Reader._batch_norm),
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
