# SPDX-License-Identifier: Apache-2.0
"""The protobuf messages that describe a training run: the network, the data and the optimization."""

from __future__ import annotations

from paddle.proto.DataConfig_pb2 import MESSAGES as _DATA
from paddle.proto.message import messages
from paddle.proto.ModelConfig_pb2 import MESSAGES as _NETWORK

MESSAGES = messages(
    __name__,
    """
    OptimizationConfig:
    3 int32 batch_size !
    4 string algorithm ! =async_sgd
    5 int32 num_batches_per_send_parameter =1
    6 int32 num_batches_per_get_parameter =1
    7 double learning_rate !
    8 double learning_rate_decay_a
    9 double learning_rate_decay_b
    10 double l1weight =0.1
    11 double l2weight
    12 double c1 =0.0001
    13 double backoff =0.5
    14 int32 owlqn_steps =10
    15 int32 max_backoff =5
    17 int32 l2weight_zero_iter
    18 double average_window
    19 int64 max_average_window =9223372036854775807
    23 string learning_method =momentum
    24 double ada_epsilon =1e-6
    25 bool do_average_in_cpu
    26 double ada_rou =0.95
    27 string learning_rate_schedule =constant
    28 double delta_add_rate =1.0
    29 int32 mini_batch_size =128
    30 bool use_sparse_remote_updater
    31 string center_parameter_update_method =average
    32 double shrink_parameter_value
    33 double adam_beta1 =0.9
    34 double adam_beta2 =0.999
    35 double adam_epsilon =1e-8
    36 string learning_rate_args
    37 double async_lagged_grad_discard_ratio =1.5
    38 double gradient_clipping_threshold
    TrainerDefaultValues:
    1 double gradient_clipping_threshold
    TrainerConfig:
    1 ModelConfig model_config
    2 DataConfig data_config
    3 OptimizationConfig opt_config !
    4 DataConfig test_data_config
    5 string config_files *
    6 string save_dir =./output/model
    7 string init_model_path
    8 int32 start_pass
    9 string config_file
    10 TrainerDefaultValues default_values
    """,
    [_DATA, _NETWORK],
)
globals().update(MESSAGES)
__all__ = list(MESSAGES)
