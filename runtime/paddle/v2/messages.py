# SPDX-License-Identifier: Apache-2.0
"""Tables of the protobuf messages in which the original's configurations store layer settings and recurrent groups.

A row of `INPUTS` names the message in a layer's first input, and its fields in the order of their numbers. A field is
``field=source``: an attribute or a size of the layer, ``name[-1]`` an item of one, ``name*`` all of its items; without
``=``, both have the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paddle.v2.model import InputConfig, LayerConfig
from paddle_node.contract.classes import NamedTuple, regex

Message = Mapping[str, Any]
"""Field -> value, a list for a repeated field, a Message for an inner one."""


class Row(NamedTuple):
    """A table row: the message of a type of layer or projection, its fields, and those of an inner ``image_conf``."""

    name: str
    fields: str
    image: bool = False


_CONV = (
    "filter_size=filter[-1] channels stride=strides[-1] padding=paddings[-1] groups filter_channels output_x=width "
    "img_size=in_width caffe_mode filter_size_y=filter[-2] padding_y=paddings[-2] stride_y=strides[-2] "
    "output_y=height img_size_y=in_height dilation=dilations[-1] dilation_y=dilations[-2]"
)
_POOL = (
    "pool_type channels size_x=ksize[-1] stride=strides[-1] output_x=width img_size=in_width "
    "padding=paddings[-1] size_y=ksize[-2] stride_y=strides[-2] output_y=height img_size_y=in_height "
    "padding_y=paddings[-2] exclude_mode"
)
_DEPTH = " stride_z=strides[-3] output_z=depth img_size_z=in_depth padding_z=paddings[-3]"
INPUTS: Mapping[str, Row] = MappingProxyType(
    {
        "img_conv": Row("conv_conf", _CONV),
        "img_conv3d": Row("conv_conf", f"{_CONV} filter_size_z=filter[-3]{_DEPTH}"),
        "img_pool": Row("pool_conf", _POOL),
        "img_pool3d": Row("pool_conf", f"{_POOL} size_z=ksize[-3]{_DEPTH}"),
        "img_cmrnorm": Row(
            "norm_conf",
            "norm_type=cmrnorm-projection channels size=n scale=alpha pow=beta output_x=width img_size=in_width "
            "blocked output_y=height img_size_y=in_height",
        ),
        "cross_channel_norm": Row("norm_conf", "norm_type=cross-channel-norm channels"),
        "block_expand": Row(
            "block_expand_conf",
            "channels stride_x=strides[1] stride_y=strides[0] padding_x=paddings[1] padding_y=paddings[0] "
            "block_x=kernels[1] block_y=kernels[0] img_size_x=in_width img_size_y=in_height",
        ),
        "batch_norm": Row("image_conf", "channels img_size=in_width img_size_y=in_height"),
        "bilinear_interp": Row("bilinear_interp_conf", "out_size_x=width out_size_y=height", True),
        "maxout": Row("maxout_conf", "groups", True),
        "spp": Row("spp_conf", "pool_type pyramid_height=height", True),
        "priorbox": Row(
            "priorbox_conf",
            "min_size=min_sizes* max_size=max_sizes* aspect_ratio=aspect_ratios* variance=variances*",
        ),
        "pad": Row(
            "pad_conf", "pad_c=paddings[2] pad_c=paddings[3] pad_h=paddings[4] pad_h=paddings[5] "
            "pad_w=paddings[6] pad_w=paddings[7]", True,
        ),
        "multibox_loss": Row(
            "multibox_loss_conf",
            "num_classes overlap_threshold neg_pos_ratio neg_overlap background_id input_num=maps",
        ),
        "detection_output": Row(
            "detection_output_conf",
            "num_classes nms_threshold nms_top_k background_id input_num=maps keep_top_k confidence_threshold",
        ),
        "clip": Row("clip_conf", "min max"),
        "row_conv": Row("row_conv_conf", "context_length"),
        "scale_sub_region": Row("scale_sub_region_conf", "value", True),
        "roi_pool": Row("roi_pool_conf", "pooled_width=width pooled_height=height spatial_scale"),
    }
)  # fmt: skip
"""Type of a layer -> its message."""

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
AGENTS = {"group_input": "scatter_agent", "memory": "agent", "group_output": "gather_agent"}
GROUP = "recurrent_layer_group"
SIZED_BY_INPUT = frozenset({"crf", "crf_decoding", "ctc", "warp_ctc"})
"""Layers whose size is, in the original's messages, that of their first input."""
MAPS_LAST = {"multibox_loss": 2, "detection_output": 1}
"""Layers whose last inputs, of the given number, come first in the original's messages."""

# pooling of sequences -> the original's type and its field
_POOLINGS: Mapping[str, tuple[str, Message]] = {
    "MAX": ("max", {}),
    "AVERAGE": ("average", {"average_strategy": "average"}),
    "SUM": ("average", {"average_strategy": "sum"}),
    "SQRT": ("average", {"average_strategy": "squarerootn"}),
    "LAST": ("seqlastins", {}),
    "FIRST": ("seqlastins", {"select_first": True}),
}
_CONVOLUTIONS: Mapping[tuple[int, bool], str] = {
    (2, False): "exconv", (2, True): "exconvt", (3, False): "conv3d", (3, True): "deconv3d",
}  # fmt: skip

# field of a layer's message -> our attribute
ATTRIBUTES: Mapping[str, str] = {
    "reversed": "reverse",
    "active_gate_type": "gate_act",
    "active_state_type": "state_act",
    "coeff": "coeff",
    "slope": "slope",
    "intercept": "intercept",
    "cos_scale": "scale",
    "epsilon": "epsilon",
    "moving_average_fraction": "momentum",
    "num_classes": "classes",
    "num_filters": "times",
    "num_neg_samples": "drawn",
    "neg_sampling_dist": "neg_distribution",
    "softmax_selfnorm_alpha": "alpha",
    "norm_by_times": "norm_by_times",
    "blank": "blank",
    "delta": "delta",
    "NDCG_num": "top",
    "max_sort_size": "compared",
    "partial_sum": "partial_sum",
    "eos_id": "eos_id",
    "trans_type": "trans_type",
    "seq_pool_stride": "stride",
    "depth": "depth",
}
# projection -> the original's type and fields
_PROJECTIONS: Mapping[str, tuple[str, str]] = {
    "full_matrix": ("fc", ""),
    "trans_full_matrix": ("trans_fc", ""),
    "table": ("table", ""),
    "identity": ("identity", ""),
    "slice": ("slice", ""),
    "scaling": ("scaling", ""),
    "dotmul": ("dot_mul", ""),
    "context": ("context", "context_start=start context_length=length"),
    "padded_context": ("context", "context_start=start context_length=length trainable_padding"),
    "conv": ("conv", ""),
}
_OPERATORS: Mapping[str, tuple[str, str]] = {
    "dotmul_operator": ("dot_mul", "dotmul_scale=scale"),
    "conv_operator": ("conv", ""),
}
_IMAGE = "channels img_size=in_width img_size_y=in_height"
_OF_PROJECTIONS = frozenset(["mixed", "concat2", "concat"])
_SOURCE = regex(r"([\w-]+)(?:\[(-?\d+)\]|(\*))?")


def type_of(config: LayerConfig) -> tuple[str, Message]:
    """Return a layer type's name in the original, and the fields that distinguish it from others of that name."""
    attrs: Mapping[str, Any] = config.attrs
    if config.type == "seq_pooling":
        return _POOLINGS[attrs["pooltype"]]
    if config.type == "img_conv":
        return _CONVOLUTIONS[len(attrs["filter"]), bool(attrs["trans"])], {}
    if attrs.get("kind", "step") != "step":  # the same at every step
        return "agent", {}
    if config.type == "cos_sim" and config.size > 1:
        return "cos_vm", {}
    if config.type == "rotate":
        return "rotate", {"height": attrs["in_height"], "width": attrs["in_width"]}
    if config.type == "kmax_seq_score":
        return "kmax_seq_score", {"beam_size": config.size}
    if config.type == "selective_fc":
        return "selective_fc", {"has_selected_colums": attrs["is_selective"]}
    if config.type == "seq_slice":
        return "seq_slice", {"select_first": attrs["given"] == "starts"}
    if config.type == "crop":
        return "crop", {"axis": 1, "offset": attrs["starts"], "shape": (1, *attrs["sizes"])}
    if config.type == "switch_order":
        axes, at = range(4), attrs["reshape_axis"]
        return "switch_order", {"reshape_conf": {"height_axis": axes[:at], "width_axis": axes[at:]}}
    if attrs.get("as_row_vector") is False:
        return "featmap_expand", {"user_arg": "as_col_vec"}
    return AGENTS.get(config.type) or ORIGINAL_TYPES.get(config.type, config.type), {}


def settings_of(config: LayerConfig) -> tuple[Message, set[str]]:
    """Return the message in a layer's first input, by name, and the attributes that it contains."""
    row = INPUTS.get(config.type)
    if row is None:
        return {}, set()
    if row.name == "conv_conf" and "sizes" in config.attrs:
        row = INPUTS["img_conv3d"]
    names = _names(
        config.attrs, {"width": config.width, "height": config.height, "filters": config.num_filters}
    )
    inner = {"image_conf": _fields(_IMAGE, names)} if row.image else {}
    used = {found[1] for text in (row.fields, _IMAGE) for found in _SOURCE.finditer(text)}
    used |= {
        "pooling_type", "sizes", "depth", "trans", "ceil_mode", "exclusive", "features", "whole", "images",
    }  # fmt: skip
    return {row.name: {**inner, **_fields(row.fields, names)}}, used & config.attrs.keys()


def projection_of(config: LayerConfig, link: InputConfig, input_size: int) -> Message:
    """Return ``proj_conf`` of an input of a projection layer; empty for other layers and for operators."""
    found = _PROJECTIONS.get(link.projection) if config.type in _OF_PROJECTIONS else None
    if found is None:
        return {}
    message: dict[str, Any] = {
        "type": found[0], "name": link.parameter, "input_size": input_size, "output_size": link.size,
    }  # fmt: skip
    names = {**link.attrs, "trainable_padding": True}
    message |= _fields(found[1], names)
    if link.attrs.get("trans"):
        message["type"] = "convt"
    if found[0] == "identity" and input_size != link.size:
        message["type"] = "identity_offset"
    if found[0] == "slice":
        pairs = zip(*(_sequence(link.attrs[key]) for key in ("starts", "ends")), strict=True)
        message["slices"] = [{"start": start, "end": end} for start, end in pairs]
    return {"proj_conf": {**message, **_convolution(link)}}


def operators_of(config: LayerConfig, sizes: Mapping[str, int]) -> list[Message]:
    """Return a layer's ``operator_confs``, the messages of its operators."""
    found: list[Message] = []
    at = -1
    for link in config.inputs:  # both inputs of an operator are inputs of its layer, one after the other
        at += 2 if "other" in link.attrs else 1
        if link.projection in _OPERATORS:
            kind, fields = _OPERATORS[link.projection]
            both = (link.layer, str(link.attrs["other"]))
            message: dict[str, Any] = {
                "type": f"{kind}t" if link.attrs.get("trans") else kind,
                "input_indices": [at - 1, at], "input_sizes": [sizes[each] for each in both],
                "output_size": link.size,
            }  # fmt: skip
            found.append({**message, **_fields(fields, link.attrs), **_convolution(link)})
    return found


def sub_models(
    layers: Mapping[str, LayerConfig],
    inputs: Sequence[str],
    outputs: Sequence[str],
    evaluators: Sequence[str],
) -> Iterator[Message]:
    """Yield the messages of ``sub_models``: the root and each recurrent group."""
    yield {
        "name": "root",
        "layer_names": _members(layers, ""),
        "input_layer_names": list(inputs),
        "output_layer_names": list(outputs),
        "evaluator_names": list(evaluators),
        "is_recurrent_layer_group": False,
    }
    for group in dict.fromkeys(each.group for each in layers.values() if each.group):
        yield _group(group, layers)


def with_groups(layers: Mapping[str, LayerConfig]) -> Iterator[tuple[str, LayerConfig | None]]:
    """Yield the layers by name, and before the first one of each recurrent group the group's name and None."""
    seen = {""}
    for name, each in layers.items():
        if each.group not in seen:
            seen.add(each.group)
            yield each.group, None
        yield name, each


def _members(layers: Mapping[str, LayerConfig], group: str) -> list[str]:
    """Return the names of a group's layers, or of those outside groups, with the groups among them."""
    return [
        name
        for name, each in with_groups(layers)
        if (each.group == group if each else name.endswith(f"@{group}") if group else "@" not in name)
    ]


def _group(group: str, layers: Mapping[str, LayerConfig]) -> Message:
    members = [each for each in layers.values() if each.group == group]
    given = [each for each in members if each.type == "group_input"]
    made = [each for each in layers.values() if each.attrs.get("group_name") == group]
    message: dict[str, Any] = {
        "name": group,
        "layer_names": _members(layers, group),
        "is_recurrent_layer_group": True,
        "reversed": any(bool(each.attrs.get("reverse")) for each in made),
        "memories": [
            *(_memory(each) for each in members if each.type == "memory"),
            *(_static(each) for each in given if each.attrs["kind"] != "step"),
        ],
        "in_links": [
            _link(each.inputs[0].layer, each.name) for each in given if each.attrs["kind"] == "step"
        ],
        "out_links": [_link(each.inputs[0].layer, each.name) for each in made],
    }
    for each in made:
        if "beam_size" in each.attrs:
            message["generator"] = _fields(
                "max_num_frames=max_length eos_layer_name num_results_per_sample=num_results beam_size",
                each.attrs,
            )
    return message


def _memory(config: LayerConfig) -> Message:
    message: dict[str, Any] = {"layer_name": config.attrs["of"], "link_name": config.name}
    if config.inputs:
        message["boot_layer_name"] = config.inputs[0].layer
    if config.bias:
        message |= {"boot_bias_parameter_name": config.bias, "boot_bias_active_type": config.activation}
    return message | _fields("boot_with_const_id=boot_id", config.attrs)


def _static(config: LayerConfig) -> Message:
    """Represent a layer that is the same at every step as a memory of itself."""
    message = {**_link(config.name, config.name), "boot_layer_name": config.inputs[0].layer}
    return {**message, "is_sequence": True} if config.attrs["kind"] == "static_seq" else message


def _link(layer: str, link: str) -> Message:
    return {"layer_name": layer, "link_name": link}


def _convolution(link: InputConfig) -> Message:
    if link.projection not in ("conv", "conv_operator"):
        return {}
    filters, height, width = _sequence(link.attrs["image"])
    names = _names(link.attrs, {"width": width, "height": height, "filters": filters})
    return {"conv_conf": _fields(_CONV, names), "num_filters": filters}


def _names(attrs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the sources of fields: attributes, sizes, and values derived from them."""
    names = {**sizes, **attrs, "caffe_mode": True, "blocked": False}
    if "pooling_type" in attrs:
        names["pool_type"] = f"{attrs['pooling_type']}-projection"
    if "sizes" in attrs:
        names |= dict(zip(("in_depth", "in_height", "in_width"), attrs["sizes"], strict=True))
    if attrs.get("trans"):  # the original's message describes the convolution that is transposed
        for side in ("width", "height", "depth"):
            names[side], names[f"in_{side}"] = names.get(f"in_{side}"), names.get(side)
    if attrs.get("exclusive") is False and attrs["pooling_type"] == "avg":
        names["exclude_mode"] = False
    if "filter" in attrs:
        shared = sizes["filters"] if attrs.get("trans") else attrs["channels"]
        names["filter_channels"] = shared // attrs.get("groups", 1)
    return names


def _fields(table: str, names: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    for each in table.split():
        field, _, source = each.partition("=")
        found = _SOURCE.fullmatch(source or field)
        assert found is not None, each
        name, index, _ = found.groups()
        if name not in names:
            if "-" in name:
                message[field] = name
            continue
        value = names[name] if index is None else names[name][int(index)]
        message[field] = [*_sequence(message[field]), value] if field in message else value
    return message


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]
