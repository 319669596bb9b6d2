# SPDX-License-Identifier: Apache-2.0
"""Every layer that a script can declare, ``paddle.layer``; above ``model``."""

from __future__ import annotations

from paddle.v2.layer import emit_cost as _emit_cost  # noqa: F401 - registers operators
from paddle.v2.layer import emit_image as _emit_image  # noqa: F401 - registers operators
from paddle.v2.layer import emit_rows as _emit_rows  # noqa: F401 - registers operators
from paddle.v2.layer.combine import (
    addto,
    cos_sim,
    dot_prod,
    dropout,
    factorization_machine,
    gated_unit,
    interpolation,
    l2_distance,
    out_prod,
    power,
    prelu,
    scale_shift,
    scaling,
    slope_intercept,
)
from paddle.v2.layer.cost import (
    classification_cost,
    cross_entropy_cost,
    cross_entropy_with_selfnorm_cost,
    huber_classification_cost,
    huber_regression_cost,
    lambda_cost,
    multi_binary_label_cross_entropy_cost,
    rank_cost,
    regression_cost,
    smooth_l1_cost,
    square_error_cost,
    sum_cost,
)
from paddle.v2.layer.data import data
from paddle.v2.layer.fc import fc
from paddle.v2.layer.generation import BaseGeneratedInput, GeneratedInput, beam_search
from paddle.v2.layer.group import StaticInput, memory, recurrent_group
from paddle.v2.layer.image import crop, img_cmrnorm, img_conv, maxout, pad, scale_sub_region
from paddle.v2.layer.image_pool import block_expand, img_pool
from paddle.v2.layer.lstm_gru import (
    get_output,
    gru_step,
    gru_step_naive,
    grumemory,
    lstm_step,
    lstmemory,
    recurrent,
)
from paddle.v2.layer.missing import RENAMED, explain
from paddle.v2.layer.mixed import concat, embedding, mixed
from paddle.v2.layer.norm import batch_norm
from paddle.v2.layer.output import LayerOutput, parse_network
from paddle.v2.layer.projection import (
    context_projection,
    dotmul_operator,
    dotmul_projection,
    full_matrix_projection,
    identity_projection,
    scaling_projection,
    slice_projection,
    table_projection,
    trans_full_matrix_projection,
)
from paddle.v2.layer.rows import (
    clip,
    convex_comb,
    linear_comb,
    max_id,
    multiplex,
    repeat,
    resize,
    row_l2_norm,
    sampling_id,
    sum_to_one_norm,
    trans,
)
from paddle.v2.layer.sequence import (
    AggregateLevel,
    ExpandLevel,
    expand,
    first_seq,
    last_seq,
    row_conv,
    seq_concat,
    seq_reshape,
    sub_seq,
)
from paddle.v2.layer.sequence import pooling_ as pooling
from paddle.v2.layer.structured import crf, crf_decoding, ctc, hsigmoid, nce, warp_ctc

__all__ = [
    "AggregateLevel",
    "BaseGeneratedInput",
    "ExpandLevel",
    "GeneratedInput",
    "LayerOutput",
    "StaticInput",
    "addto",
    "batch_norm",
    "beam_search",
    "block_expand",
    "classification_cost",
    "clip",
    "concat",
    "context_projection",
    "convex_comb",
    "cos_sim",
    "crf",
    "crf_decoding",
    "crop",
    "cross_entropy_cost",
    "cross_entropy_with_selfnorm_cost",
    "ctc",
    "data",
    "dot_prod",
    "dotmul_operator",
    "dotmul_projection",
    "dropout",
    "embedding",
    "expand",
    "factorization_machine",
    "fc",
    "first_seq",
    "full_matrix_projection",
    "gated_unit",
    "get_output",
    "gru_step",
    "gru_step_naive",
    "grumemory",
    "hsigmoid",
    "huber_classification_cost",
    "huber_regression_cost",
    "identity_projection",
    "img_cmrnorm",
    "img_conv",
    "img_pool",
    "interpolation",
    "l2_distance",
    "lambda_cost",
    "last_seq",
    "linear_comb",
    "lstm_step",
    "lstmemory",
    "max_id",
    "maxout",
    "memory",
    "mixed",
    "multi_binary_label_cross_entropy_cost",
    "multiplex",
    "nce",
    "out_prod",
    "pad",
    "parse_network",
    "pooling",
    "power",
    "prelu",
    "rank_cost",
    "recurrent",
    "recurrent_group",
    "regression_cost",
    "repeat",
    "resize",
    "row_conv",
    "row_l2_norm",
    "sampling_id",
    "scale_shift",
    "scale_sub_region",
    "scaling",
    "scaling_projection",
    "seq_concat",
    "seq_reshape",
    "slice_projection",
    "slope_intercept",
    "smooth_l1_cost",
    "square_error_cost",
    "sub_seq",
    "sum_cost",
    "sum_to_one_norm",
    "table_projection",
    "trans",
    "trans_full_matrix_projection",
    "warp_ctc",
]


def __getattr__(name: str) -> object:
    if name in RENAMED:
        return globals()[RENAMED[name]]
    raise explain(name, __all__)
