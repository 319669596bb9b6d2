# SPDX-License-Identifier: Apache-2.0
"""`LayerType`, the original's names of layer types, and `layer_support`, which declares the settings of a layer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from paddle.v2.attr import ExtraLayerAttribute

__all__ = ["LayerType", "layer_support"]

T = TypeVar("T")


class LayerType:
    """The types of layers under the names of the original's configurations, such as ``LayerType.FC_LAYER``."""

    DATA = "data"
    MIXED_LAYER = "mixed"
    LSTMEMORY = "lstmemory"
    GRUMEMORY = "gated_recurrent"
    SEQUENCE_LAST_INSTANCE = "seqlastins"
    SEQUENCE_FIRST_INSTANCE = "seqfirstins"
    SEQUENCE_RESHAPE = "seqreshape"
    POOLING_MAX = "max"
    POOLING_AVG = "average"
    FC_LAYER = "fc"
    COST = "cost"
    COSINE_SIM_VEC = "cos_vm"
    COSINE_SIM = "cos"
    L2_DISTANCE = "l2_distance"
    HSIGMOID = "hsigmoid"
    CONV_LAYER = "conv"
    CONVTRANS_LAYER = "convt"
    EXCONV_LAYER = "exconv"
    EXCONVTRANS_LAYER = "exconvt"
    CUDNNCONV_LAYER = "cudnn_conv"
    CUDNNCONVTRANS_LAYER = "cudnn_convt"
    POOL_LAYER = "pool"
    POOL3D_LAYER = "pool3d"
    BATCH_NORM_LAYER = "batch_norm"
    NORM_LAYER = "norm"
    SUM_TO_ONE_NORM_LAYER = "sum_to_one_norm"
    ROW_L2_NORM_LAYER = "row_l2_norm"
    ADDTO_LAYER = "addto"
    CONCAT_LAYER = "concat"
    CONCAT_PROJ_LAYER = "concat2"
    SEQUENCE_CONCAT_LAYER = "seqconcat"
    LSTM_STEP_LAYER = "lstm_step"
    GRU_STEP_LAYER = "gru_step"
    GET_OUTPUT_LAYER = "get_output"
    EXPAND_LAYER = "expand"
    INTERPOLATION_LAYER = "interpolation"
    BILINEAR_INTERP_LAYER = "bilinear_interp"
    POWER_LAYER = "power"
    SCALING_LAYER = "scaling"
    TRANS_LAYER = "trans"
    ROTATE_LAYER = "rotate"
    DOT_PROD_LAYER = "dot_prod"
    OUT_PROD_LAYER = "out_prod"
    FEATURE_MAP_EXPAND_LAYER = "featmap_expand"
    MEMORY = "memory"
    MAXID_LAYER = "maxid"
    EOSID_LAYER = "eos_id"
    RECURRENT_LAYER = "recurrent"
    CONV_SHIFT_LAYER = "conv_shift"
    TENSOR_LAYER = "tensor"
    SEL_FC_LAYER = "selective_fc"
    SAMPLING_ID_LAYER = "sampling_id"
    SLOPE_INTERCEPT_LAYER = "slope_intercept"
    LINEAR_COMBINATION_LAYER = "convex_comb"
    BLOCK_EXPAND = "blockexpand"
    MAXOUT = "maxout"
    SPP_LAYER = "spp"
    PAD_LAYER = "pad"
    MULTIPLEX_LAYER = "multiplex"
    ROW_CONV_LAYER = "row_conv"
    PRINT_LAYER = "print"
    PRIORBOX_LAYER = "priorbox"
    MULTIBOX_LOSS_LAYER = "multibox_loss"
    DETECTION_OUTPUT_LAYER = "detection_output"
    ROI_POOL_LAYER = "roi_pool"
    CTC_LAYER = "ctc"
    WARP_CTC_LAYER = "warp_ctc"
    CRF_LAYER = "crf"
    CRF_DECODING_LAYER = "crf_decoding"
    NCE_LAYER = "nce"
    CONV3D_LAYER = "conv3d"
    DECONV3D_LAYER = "deconv3d"
    RANK_COST = "rank-cost"
    LAMBDA_COST = "lambda_cost"
    HUBER_REGRESSION = "huber_regression"
    HUBER_CLASSIFICATION = "huber_classification"
    CROSS_ENTROPY = "multi-class-cross-entropy"
    CROSS_ENTROPY_WITH_SELFNORM = "multi_class_cross_entropy_with_selfnorm"
    CROSS_ENTROPY_OVER_BEAM = "cross_entropy_over_beam"
    SOFT_BIN_CLASS_CROSS_ENTROPY = "soft_binary_class_cross_entropy"
    MULTI_BIN_LABEL_CROSS_ENTROPY = "multi_binary_label_cross_entropy"
    SUM_COST = "sum_cost"
    SMOOTH_L1 = "smooth_l1"
    PRELU = "prelu"
    SWITCH_ORDER_LAYER = "switch_order"
    CROP_LAYER = "crop"
    SUB_NESTED_SEQ = "sub_nested_seq"
    CLIP_LAYER = "clip"
    SEQ_SLICE = "seq_slice"
    KMAX_SEQ_SCORE = "kmax_seq_score"
    SCALE_SHIFT_LAYER = "scale_shift"
    RESIZE = "resize"
    SUB_SEQ_LAYER = "subseq"
    SCALE_SUB_REGION_LAYER = "scale_sub_region"
    FACTORIZATION_MACHINE = "factorization_machine"

    @staticmethod
    def is_layer_type(type_name: str) -> bool:
        """Return whether this is the name of a layer type, such as "fc"."""
        return type_name in {value for name, value in vars(LayerType).items() if name.isupper()}


def layer_support(*attrs: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator for functions that declare layers; it checks that layer_attr has only supported settings.

    Args:
        attrs: the supported ones of "error_clipping_threshold" and "drop_rate"; every layer supports "device".

    The decorated function raises NotImplementedError for a layer_attr with any other setting.
    """

    def decorate(declare: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(declare)
        def call(*args: Any, **named: Any) -> T:
            for each in (*args, *named.values()):
                if isinstance(each, ExtraLayerAttribute):
                    each.supported = frozenset([*attrs, "device"])
                    each.check(declare.__name__)
            return declare(*args, **named)

        return call

    return decorate
