# SPDX-License-Identifier: Apache-2.0
"""The protobuf messages that describe data sources."""

from __future__ import annotations

from paddle.proto.message import messages

MESSAGES = messages(
    __name__,
    """
    FileGroupConf:
    1 uint32 queue_capacity =1
    2 int32 load_file_count =1
    3 int32 load_thread_num =1
    DataConfig:
    1 string type !
    3 string files
    4 int32 feat_dim
    5 int32 slot_dims *
    6 int32 context_len
    7 uint64 buffer_capacity
    8 int64 train_sample_num =-1
    9 int32 file_load_num =-1
    12 bool async_load_data
    13 bool for_test
    14 FileGroupConf file_group_conf
    15 int32 float_slot_dims *
    20 double constant_slots *
    21 string load_data_module
    22 string load_data_object
    23 string load_data_args
    24 DataConfig sub_data_configs *
    25 int32 data_ratio
    26 bool is_main_data =true
    27 double usage_ratio =1.0
    """,
)
globals().update(MESSAGES)
__all__ = list(MESSAGES)
