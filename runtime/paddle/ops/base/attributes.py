# SPDX-License-Identifier: Apache-2.0
"""Attributes of operators: their canonical types and limits, and attributes of the original that have no effect."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np

from paddle.errors import if_divided
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import AttrError
from paddle_node.contract.classes import NamedTuple

# Attributes that every operator has; they are not passed to kernels.
COMMON_ATTRS: Mapping[str, object] = MappingProxyType({"op_role": 0, "op_role_var": (), "op_namescope": "/"})
_OFF, _UNSCALED = (False,), (1.0,)
_LAYOUTS = ("AnyLayout", "NCHW", "NCDHW", "")
# Attributes of the original's operators that are ignored where an operator lacks them: name -> the type, or the
# values for which that is safe. Kernels are selected by other means here; layouts, fusions and the scales of
# quantized kernels would change the results.
IDLE_ATTRS: Mapping[str, type | tuple[object, ...]] = MappingProxyType(
    {
        "op_callstack": tuple,
        "op_device": str,
        "is_test": bool,
        "use_cudnn": bool,
        "use_mkldnn": bool,
        "use_quantizer": bool,
        "mkldnn_data_type": str,
        "workspace_size_MB": int,
        "exhaustive_search": bool,
        "data_format": _LAYOUTS,
        "data_layout": _LAYOUTS,
        "x_data_format": _LAYOUTS,
        "y_data_format": _LAYOUTS,
        "fuse_relu": _OFF,
        "fuse_with_relu": bool,
        "fuse_residual_connection": _OFF,
        "fuse_relu_before_depthwise_conv": _OFF,
        "force_fp32_output": _OFF,
        "Scale_in": _UNSCALED,
        "Scale_in_eltwise": _UNSCALED,
        "Scale_out": _UNSCALED,
        "Scale_x": _UNSCALED,
        "Scale_y": _UNSCALED,
        "Scale_weights": (_UNSCALED,),
        "neg_overlap": float,  # an older name of neg_dist_threshold, which programs still contain without effect
        "downsample": (32,),  # likewise, for downsample_ratio
    }
)


class Limit(NamedTuple):
    """The limits of an attribute's values, as declared in the table of operators.

    Attributes:
        default: the default, or the type if the attribute is required.
        least, most: bounds of a number, or of each of several.
        among: valid values; empty for all.
        length: required number of elements; None means any.
    """

    default: Any
    least: float = -inf
    most: float = inf
    among: tuple[object, ...] = ()
    length: int | None = None

    def refusal(self, value: Any) -> str | None:
        """Check a value: return None if it is allowed, else a description of the allowed values."""
        if self.among:
            *names, last = map(repr, self.among)
            return None if value in self.among else f"{', '.join(names)} or {last}" if names else last
        if self.length is not None and len(value) != self.length:
            return f"{self.length} numbers"
        numbers = value if isinstance(value, tuple) else (value,)
        if not all(self.least <= each <= self.most for each in numbers):
            return (
                f"{self.least} or more" if self.most == inf else f"a number from {self.least} to {self.most}"
            )
        return None


def one_of(*values: object, default: object = None) -> Limit:
    """Return a `Limit` to the given values, the first of which is the default unless `default` is given."""
    return Limit(values[0] if default is None else default, among=values)


def canonical(op_type: str, name: str, value: object, default: object, limit: Limit | None = None) -> object:
    """Convert a value to the type of its attribute, and check its limits.

    Args:
        default: the default, or the type.

    Raises:
        AttrError: the value has another type, or is outside the limit.
    """
    found = _converted(op_type, name, value, default)
    wanted = limit.refusal(found) if limit else None
    if wanted:
        raise AttrError(f"operator {op_type!r}: {name}: expected {wanted}, got {found!r}")
    return found


def _converted(op_type: str, name: str, value: object, default: object) -> object:
    kind = default if isinstance(default, type) else default.__class__
    try:
        if kind is bool and isinstance(value, (bool, np.bool_, int, float, np.number)):
            return bool(value)
        if kind is int and not isinstance(value, (bool, str)):
            return value.__index__()  # type: ignore[attr-defined]
        if kind is float and not isinstance(value, (bool, str)):
            return float(value)  # type: ignore[arg-type]
        if kind is str and isinstance(value, str):
            return value
        if kind is tuple and isinstance(value, (list, tuple, np.ndarray)):
            return tuple(item.item() if isinstance(item, np.generic) else item for item in value)
        if kind is VarType:
            return VarType.of(value)
    except (TypeError, AttributeError, ValueError) as error:
        raise _wrong_type(op_type, name, value, kind) from error
    raise _wrong_type(op_type, name, value, kind)


def idle_value(op_type: str, name: str, value: object) -> object:
    """Check and return the value of an attribute of the original that has no effect in this implementation.

    Raises:
        AttrError: it would change the result.
    """
    expected = IDLE_ATTRS[name]
    if isinstance(expected, type):
        return canonical(op_type, name, value, expected)
    found = canonical(op_type, name, value, expected[0])
    if found not in expected:
        raise AttrError(
            f"operator {op_type!r} does not support attribute {name!r}, and {found!r} would "
            f"change the result: omit it, or give {' or '.join(map(repr, expected))}"
        )
    return found


def _wrong_type(op_type: str, name: str, value: object, kind: type) -> AttrError:
    hint = if_divided(value) if kind is int else ""
    return AttrError(
        f"operator {op_type!r}, attribute {name!r}: expected {kind.__name__}, "
        f"got {value!r} ({value.__class__.__name__}){hint}"
    )
