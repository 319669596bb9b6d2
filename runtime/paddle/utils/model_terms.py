# SPDX-License-Identifier: Apache-2.0
"""Reads arguments, projections and operators from the original's messages; see `model_config`."""

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
    """Return the activation of a name."""
    if name not in _ACTIVATIONS:
        raise ModelFileError(f"activation {name!r} is unknown")
    return _ACTIVATIONS[name]()


def pool_type_of(name: str) -> Any:
    """Return the pooling of a name."""
    if name not in _POOLS:
        raise ModelFileError(f"pool_type {name!r} is unknown")
    return _POOLS[name]()


def fields_of(message: Any, names: str) -> dict[str, Any]:
    """Return arguments from the fields of a message; `argument=field` where the names differ."""
    pairs = (
        (argument, field or argument)
        for argument, _, field in (each.partition("=") for each in names.split())
    )
    return {argument: value_of(message, field) for argument, field in pairs}


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
    """Return arguments from fields of a layer, or of the message in its first input."""
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
    """Return the projection of an input of a layer."""
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
    """Return the operator over two inputs of a layer."""
    if config.type == "dot_mul":
        return layer.dotmul_operator(first, second, config.dotmul_scale)
    if config.type not in ("conv", "convt"):
        raise ModelFileError(f"operator {config.type!r} is unknown")
    given = fields_of(config.conv_conf, CONV.removesuffix(" dilation dilation_y groups"))
    return layer.conv_operator(
        first, second, num_filters=config.num_filters, trans=config.type == "convt", **given
    )
