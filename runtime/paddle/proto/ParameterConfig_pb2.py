# SPDX-License-Identifier: Apache-2.0
"""The protobuf messages that describe parameters."""

from __future__ import annotations

from paddle.proto.message import messages

MESSAGES = messages(
    __name__,
    """
    enum ParameterInitStrategy: PARAMETER_INIT_NORMAL=0 PARAMETER_INIT_UNIFORM=1
    ParameterUpdaterHookConfig:
    1 string type !
    2 double sparsity_ratio =0.6
    ParameterConfig:
    1 string name !
    2 uint64 size !
    3 double learning_rate =1.0
    4 double momentum
    5 double initial_mean
    6 double initial_std =0.01
    7 double decay_rate
    8 double decay_rate_l1
    9 uint64 dims *
    10 int32 device =-1
    11 int32 initial_strategy
    12 bool initial_smart
    13 int32 num_batches_regularization =1
    14 bool is_sparse
    15 string format
    16 bool sparse_remote_update
    17 double gradient_clipping_threshold
    18 bool is_static
    19 uint64 para_id
    20 ParameterUpdaterHookConfig update_hooks *
    21 bool need_compact
    22 bool sparse_update
    23 bool is_shared
    24 uint64 parameter_block_size
    """,
)
globals().update(MESSAGES)
__all__ = list(MESSAGES)
