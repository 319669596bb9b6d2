# SPDX-License-Identifier: Apache-2.0
"""The types of operator attributes, with their numbers in the original's file format."""

from __future__ import annotations

from enum import IntEnum

from paddle.fluid.errors import ModelFileError


class AttrType(IntEnum):
    """The type of an operator attribute, numbered as in the original."""

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOLEAN = 6
    BOOLEANS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11


BLOCK_ATTRS = {"sub_block": AttrType.BLOCK, "optimize_blocks": AttrType.BLOCKS}
_LONG_ATTRS = {"padding_idx", "min_row_size_to_use_multithread"}
_LONGS_ATTRS = {"height_sections"}
_SHAPES_OF_LONGS = {"fill_constant", "uniform_random", "gaussian_random", "fake_init"}
_STRINGS_ATTRS = {
    "op_role_var",
    "epmap",
    "endpoints",
    "table_names",
    "send_varnames",
    "recv_varnames",
    "varnames",
    "grad_to_block_id",
    "sparse_grad_to_param",
    "prefetch_var_name_to_block_id",
    "trainers",
}
_FLOATS_ATTRS = {"fp32_values"}


def attribute_type(op_type: str, name: str, value: object) -> AttrType:
    """Return the type of an attribute, given its value; lists are represented as tuples.

    Raises:
        ModelFileError: the format has no type for the value.
    """
    if name in BLOCK_ATTRS:
        return BLOCK_ATTRS[name]
    if isinstance(value, bool):
        return AttrType.BOOLEAN
    if isinstance(value, int):
        return AttrType.LONG if name in _LONG_ATTRS or abs(value) >= 1 << 31 else AttrType.INT
    if isinstance(value, float):
        return AttrType.FLOAT
    if isinstance(value, str):
        return AttrType.STRING
    if not isinstance(value, tuple):
        raise ModelFileError(
            f"attribute {name!r} of {op_type!r} has a value that cannot be written to a file: {value!r}"
        )
    first = value[0] if value else None
    if name in _STRINGS_ATTRS or isinstance(first, str):
        return AttrType.STRINGS
    if name in _FLOATS_ATTRS or any(isinstance(each, float) for each in value):
        return AttrType.FLOATS
    if isinstance(first, bool):
        return AttrType.BOOLEANS
    longs = name in _LONGS_ATTRS or (name == "shape" and op_type in _SHAPES_OF_LONGS)
    return AttrType.LONGS if longs else AttrType.INTS
