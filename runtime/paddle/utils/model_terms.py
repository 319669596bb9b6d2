# SPDX-License-Identifier: Apache-2.0
"""Converts arguments, projections and operators from the original's messages; see `model_config`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from paddle.v2 import activation, layer, pooling
from paddle.v2.attr import Param, ParameterAttribute
from paddle.v2.errors import ModelFileError
from paddle.v2.layer.output import LayerOutput
from paddle.v2.layer.projection import Projection

CONV = "filter_size filter_size_y num_channels=channels stride stride_y padding padding_y dilation dilation_y groups"
_COST = "input label weight? : coeff"
_GATES = "reverse=reversed gate_act=active_gate_type"
LAYERS: Mapping[str, str] = {
    "addto": "addto *input",
    "bilinear_interp": "bilinear_interp input : out_size_x out_size_y",
    "blockexpand": "block_expand input : block_x block_y stride_x stride_y padding_x padding_y num_channels=channels",
    "clip": "clip input : min max",
    "concat": "concat *input",
    "conv_shift": "conv_shift a b",
    "convex_comb": "linear_comb weights vectors : size",
    "cos": "cos_sim a b : scale=cos_scale",
    "cos_vm": "cos_sim a b : scale=cos_scale size",
    "crop": "crop *input : offset axis shape",
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
    "priorbox": "priorbox input image : min_size max_size aspect_ratio variance",
    "rank-cost": "rank_cost left right label weight? : coeff",
    "recurrent": "recurrent input : reverse=reversed",
    "resize": "resize input : size",
    "rotate": "rotate input : height width",
    "row_conv": "row_conv input : context_len=context_length",
    "row_l2_norm": "row_l2_norm input",
    "sampling_id": "sampling_id input",
    "print": "printer *input",
    "scale_shift": "scale_shift input",
    "scale_sub_region": "scale_sub_region input indices : value",
    "scaling": "scaling weight input",
    "seqconcat": "seq_concat a b",
    "seqreshape": "seq_reshape input : reshape_size=size",
    "slope_intercept": "slope_intercept input : slope intercept",
    "smooth_l1": "smooth_l1_cost input label : coeff",
    "spp": "spp input : pool_type pyramid_height num_channels=image_conf.channels",
    "square_error": f"square_error_cost {_COST}",
    "sub_nested_seq": "sub_nested_seq input selected_indices",
    "subseq": "sub_seq input offsets sizes",
    "sum_cost": "sum_cost input",
    "sum_to_one_norm": "sum_to_one_norm input",
    "tensor": "tensor a b : size",
    "trans": "trans input",
    "warp_ctc": "warp_ctc input label : blank norm_by_times",
}
"""Type of a layer -> its function, the names of its inputs, and its arguments with their fields in the message."""
_POOLS: Mapping[str, Any] = {
    "max-projection": pooling.Max, "avg-projection": pooling.Avg, "average-projection": pooling.Avg,
    **{kind.name: kind for kind in (
        pooling.MaxWithMask, pooling.CudnnMax, pooling.CudnnAvg, pooling.CudnnAvgInclPad
    )},
}  # fmt: skip
_ACTIVATIONS = {"linear": activation.Linear} | {
    kind.name: kind for kind in vars(activation).values() if inspect.isclass(kind) and issubclass(kind, activation.Base)
}  # fmt: skip


def activation_of(name: str) -> activation.Base:
    """Return the activation object for a name in a message."""
    if name not in _ACTIVATIONS:
        raise ModelFileError(f"activation {name!r} is unknown")
    return _ACTIVATIONS[name]()


def pool_type_of(name: str) -> Any:
    """Return the pooling object for a name in a message."""
    if name not in _POOLS:
        raise ModelFileError(f"pool_type {name!r} is unknown")
    return _POOLS[name]()


def fields_of(message: Any, names: str) -> dict[str, Any]:
    """Return the fields of a message as a layer's arguments, written `argument=field` where the names differ."""
    pairs = (
        (argument, field or argument)
        for argument, _, field in (each.partition("=") for each in names.split())
    )
    return {argument: value_of(message, field) for argument, field in pairs}


def sides_of(message: Any, name: str) -> list[int]:
    """Return the fields of a volume's sides x, y and z, such as stride, stride_y and stride_z."""
    x = f"{name}_x"
    names = (x if x in message.FIELDS else name, f"{name}_y", f"{name}_z")
    return [int(getattr(message, each)) for each in names]


def value_of(message: Any, path: str) -> Any:
    """Return the field at a dotted path of a message, such as "conv_conf.stride", as an argument of a layer.

    Names of activations and poolings become instances, and repeated fields become lists.
    """
    for name in path.split("."):
        message = getattr(message, name)
    if path.startswith("active_"):
        return activation_of(message)
    if path == "pool_type":
        return pool_type_of(message)
    return list(message) if isinstance(message, list) else message


def arguments_of(config: Any, names: str) -> dict[str, Any]:
    """Return the fields of a layer, or of the message in its first input, as a layer's arguments."""
    found: dict[str, Any] = {}
    for each in names.split():
        argument, _, field = each.partition("=")
        field = field or argument
        if field in config.FIELDS:
            found[argument] = value_of(config, field)
            continue
        first = config.inputs[0]
        own = (
            first
            if field in first.FIELDS
            else next((value for kind, value in first.ListFields() if isinstance(kind.kind, type)), None)
        )
        if own is None:
            raise ModelFileError(f"the message lacks {field}")
        found[argument] = value_of(own, field)
    if config.type == "featmap_expand":
        found["as_row_vector"] = config.user_arg != "as_col_vec"
    return found


def projection(link: Any, source: LayerOutput) -> Projection:
    """Return the projection that a message describes for one input of a layer."""
    proj, attr = link.proj_conf, Param(name=link.input_parameter_name or None)
    size = proj.output_size
    if proj.type in ("conv", "convt"):
        given = fields_of(proj.conv_conf, CONV.replace(" dilation dilation_y", ""))
        return layer.conv_projection(
            source, num_filters=proj.num_filters, param_attr=attr, trans=proj.type == "convt", **given
        )
    if proj.type == "context":
        padding = attr if proj.trainable_padding else False
        return layer.context_projection(source, proj.context_length, proj.context_start, padding)
    if proj.type not in _PROJECTIONS:
        raise ModelFileError(f"projection {proj.type!r} is unknown")
    return _PROJECTIONS[proj.type](source, size, attr, proj)


_PROJECTIONS: Mapping[str, Callable[[LayerOutput, int, ParameterAttribute, Any], Projection]] = {
    "fc": lambda source, size, attr, _: layer.full_matrix_projection(source, size, attr),
    "trans_fc": lambda source, size, attr, _: layer.trans_full_matrix_projection(source, size, attr),
    "table": lambda source, size, attr, _: layer.table_projection(source, size, attr),
    "identity": lambda source, size, attr, _: layer.identity_projection(source),
    "identity_offset": lambda source, size, _, proj: layer.identity_projection(source, proj.offset, size),
    "slice": lambda source, _, __, proj: layer.slice_projection(
        source, [(each.start, each.end) for each in proj.slices]
    ),
    "scaling": lambda source, _, attr, __: layer.scaling_projection(source, attr),
    "dot_mul": lambda source, _, attr, __: layer.dotmul_projection(source, attr),
}


def operator(config: Any, first: LayerOutput, second: LayerOutput) -> Projection:
    """Return the operator with two layers as inputs that a message describes."""
    if config.type == "dot_mul":
        return layer.dotmul_operator(first, second, config.dotmul_scale)
    if config.type not in ("conv", "convt"):
        raise ModelFileError(f"operator {config.type!r} is unknown")
    given = fields_of(config.conv_conf, CONV.removesuffix(" dilation dilation_y groups"))
    return layer.conv_operator(
        first, second, num_filters=config.num_filters, trans=config.type == "convt", **given
    )
