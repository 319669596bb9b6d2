# SPDX-License-Identifier: Apache-2.0
"""The protobuf messages that describe networks: layers, their inputs, evaluators and recurrent groups."""

from __future__ import annotations

from paddle.proto.message import messages
from paddle.proto.ParameterConfig_pb2 import MESSAGES as _PARAMETERS

MESSAGES = messages(
    __name__,
    """
    ExternalConfig:
    1 string layer_names *
    2 string input_layer_names *
    3 string output_layer_names *
    ActivationConfig:
    1 string type !
    ConvConfig:
    1 uint32 filter_size !
    2 uint32 channels !
    3 uint32 stride !
    4 uint32 padding !
    5 uint32 groups !
    6 uint32 filter_channels !
    7 uint32 output_x !
    8 uint32 img_size !
    9 bool caffe_mode ! =true
    10 uint32 filter_size_y !
    11 uint32 padding_y !
    12 uint32 stride_y !
    13 uint32 output_y
    14 uint32 img_size_y
    15 uint32 dilation =1
    16 uint32 dilation_y =1
    17 uint32 filter_size_z =1
    18 uint32 padding_z =1
    19 uint32 stride_z =1
    20 uint32 output_z =1
    21 uint32 img_size_z =1
    PoolConfig:
    1 string pool_type !
    2 uint32 channels !
    3 uint32 size_x !
    4 uint32 start
    5 uint32 stride ! =1
    6 uint32 output_x !
    7 uint32 img_size !
    8 uint32 padding
    9 uint32 size_y
    10 uint32 stride_y
    11 uint32 output_y
    12 uint32 img_size_y
    13 uint32 padding_y
    14 uint32 size_z =1
    15 uint32 stride_z =1
    16 uint32 output_z =1
    17 uint32 img_size_z =1
    18 uint32 padding_z =1
    19 bool exclude_mode
    ImageConfig:
    2 uint32 channels !
    8 uint32 img_size !
    9 uint32 img_size_y
    10 uint32 img_size_z =1
    SppConfig:
    1 ImageConfig image_conf !
    2 string pool_type !
    3 uint32 pyramid_height !
    NormConfig:
    1 string norm_type !
    2 uint32 channels !
    3 uint32 size !
    4 double scale !
    5 double pow !
    6 uint32 output_x !
    7 uint32 img_size !
    8 bool blocked
    9 uint32 output_y
    10 uint32 img_size_y
    BlockExpandConfig:
    1 uint32 channels !
    2 uint32 stride_x !
    3 uint32 stride_y !
    4 uint32 padding_x !
    5 uint32 padding_y !
    6 uint32 block_x !
    7 uint32 block_y !
    8 uint32 output_x !
    9 uint32 output_y !
    10 uint32 img_size_x !
    11 uint32 img_size_y !
    MaxOutConfig:
    1 ImageConfig image_conf !
    2 uint32 groups !
    RowConvConfig:
    1 uint32 context_length !
    SliceConfig:
    1 uint32 start !
    2 uint32 end !
    ProjectionConfig:
    1 string type !
    2 string name !
    3 uint64 input_size !
    4 uint64 output_size !
    5 int32 context_start
    6 int32 context_length
    7 bool trainable_padding
    8 ConvConfig conv_conf
    9 int32 num_filters
    11 uint64 offset
    12 PoolConfig pool_conf
    13 SliceConfig slices *
    OperatorConfig:
    1 string type !
    2 int32 input_indices *
    3 uint64 input_sizes *
    4 uint64 output_size !
    5 double dotmul_scale =1.0
    6 ConvConfig conv_conf
    7 int32 num_filters
    BilinearInterpConfig:
    1 ImageConfig image_conf !
    2 uint32 out_size_x !
    3 uint32 out_size_y !
    PriorBoxConfig:
    1 uint32 min_size *
    2 uint32 max_size *
    3 float aspect_ratio *
    4 float variance *
    PadConfig:
    1 ImageConfig image_conf !
    2 uint32 pad_c *
    3 uint32 pad_h *
    4 uint32 pad_w *
    ReshapeConfig:
    1 uint32 height_axis *
    2 uint32 width_axis *
    MultiBoxLossConfig:
    1 uint32 num_classes !
    2 float overlap_threshold !
    3 float neg_pos_ratio !
    4 float neg_overlap !
    5 uint32 background_id !
    6 uint32 input_num !
    7 uint32 height =1
    8 uint32 width =1
    DetectionOutputConfig:
    1 uint32 num_classes !
    2 float nms_threshold !
    3 uint32 nms_top_k !
    4 uint32 background_id !
    5 uint32 input_num !
    6 uint32 keep_top_k !
    7 float confidence_threshold !
    8 uint32 height =1
    9 uint32 width =1
    ClipConfig:
    1 double min !
    2 double max !
    ROIPoolConfig:
    1 uint32 pooled_width !
    2 uint32 pooled_height !
    3 float spatial_scale !
    4 uint32 height =1
    5 uint32 width =1
    ScaleSubRegionConfig:
    1 ImageConfig image_conf !
    2 float value !
    LayerInputConfig:
    1 string input_layer_name !
    2 string input_parameter_name
    3 ConvConfig conv_conf
    4 PoolConfig pool_conf
    5 NormConfig norm_conf
    6 ProjectionConfig proj_conf
    7 BlockExpandConfig block_expand_conf
    8 ImageConfig image_conf
    9 string input_layer_argument
    10 BilinearInterpConfig bilinear_interp_conf
    11 MaxOutConfig maxout_conf
    12 SppConfig spp_conf
    13 PriorBoxConfig priorbox_conf
    14 PadConfig pad_conf
    15 RowConvConfig row_conv_conf
    16 MultiBoxLossConfig multibox_loss_conf
    17 DetectionOutputConfig detection_output_conf
    18 ClipConfig clip_conf
    19 ScaleSubRegionConfig scale_sub_region_conf
    20 ROIPoolConfig roi_pool_conf
    LayerConfig:
    1 string name !
    2 string type !
    3 uint64 size
    4 string active_type
    5 LayerInputConfig inputs *
    6 string bias_parameter_name
    7 uint32 num_filters
    8 bool shared_biases
    9 uint32 partial_sum
    10 double drop_rate
    11 uint32 num_classes
    12 int32 device =-1
    13 bool reversed
    14 string active_gate_type
    15 string active_state_type
    16 int32 num_neg_samples =10
    17 double neg_sampling_dist **
    19 bool output_max_index
    21 double softmax_selfnorm_alpha =0.1
    24 bool directions *
    25 bool norm_by_times
    26 double coeff =1.0
    27 string average_strategy
    28 double error_clipping_threshold
    29 OperatorConfig operator_confs *
    30 int32 NDCG_num
    31 int32 max_sort_size
    32 double slope
    33 double intercept
    34 double cos_scale
    36 string data_norm_strategy
    37 uint32 bos_id
    38 uint32 eos_id
    39 uint32 beam_size
    40 bool select_first
    41 string trans_type =non-seq
    42 bool selective_fc_pass_generation
    43 bool has_selected_colums =true
    44 double selective_fc_full_mul_ratio =0.02
    45 uint32 selective_fc_parallel_plain_mul_thread_num
    46 bool use_global_stats
    47 double moving_average_fraction =0.9
    48 uint32 bias_size
    49 string user_arg
    50 uint64 height
    51 uint64 width
    52 uint32 blank
    53 int32 seq_pool_stride =-1
    54 int32 axis =2
    55 uint32 offset *
    56 uint32 shape *
    57 double delta =1.0
    58 uint64 depth =1
    59 ReshapeConfig reshape_conf
    60 double epsilon =1e-5
    61 uint32 factor_size
    EvaluatorConfig:
    1 string name !
    2 string type !
    3 string input_layers *
    4 string chunk_scheme
    5 int32 num_chunk_types
    6 double classification_threshold =0.5
    7 int32 positive_label =-1
    8 string dict_file
    9 string result_file
    10 int32 num_results =1
    11 bool delimited =true
    12 int32 excluded_chunk_types *
    13 int32 top_k =1
    14 double overlap_threshold =0.5
    15 int32 background_id
    16 bool evaluate_difficult
    17 string ap_type =11point
    LinkConfig:
    1 string layer_name !
    2 string link_name !
    3 bool has_subseq
    MemoryConfig:
    1 string layer_name !
    2 string link_name !
    3 string boot_layer_name
    4 string boot_bias_parameter_name
    5 string boot_bias_active_type
    6 bool is_sequence
    7 uint32 boot_with_const_id
    GeneratorConfig:
    1 uint32 max_num_frames !
    2 string eos_layer_name !
    3 int32 num_results_per_sample =1
    4 int32 beam_size =1
    5 bool log_prob =true
    SubModelConfig:
    1 string name !
    2 string layer_names *
    3 string input_layer_names *
    4 string output_layer_names *
    5 string evaluator_names *
    6 bool is_recurrent_layer_group
    7 bool reversed
    8 MemoryConfig memories *
    9 LinkConfig in_links *
    10 LinkConfig out_links *
    11 GeneratorConfig generator
    12 int32 target_inlinkid
    ModelConfig:
    1 string type ! =nn
    2 LayerConfig layers *
    3 ParameterConfig parameters *
    4 string input_layer_names *
    5 string output_layer_names *
    6 EvaluatorConfig evaluators *
    8 SubModelConfig sub_models *
    9 ExternalConfig external_config
    """,
    [_PARAMETERS],
)
globals().update(MESSAGES)
__all__ = list(MESSAGES)
