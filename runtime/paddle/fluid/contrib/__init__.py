# SPDX-License-Identifier: Apache-2.0
"""The namespace `fluid.contrib`: cells and decoders, mixed precision, readers. Depends on `optimizer`."""

import sys
from typing import TYPE_CHECKING

from paddle import later, second_names
from paddle.fluid.contrib import (
    beam_search_decoder,
    ctr_reader,
    distributed_reader,
    mixed_precision,
    rnn_impl,
)
from paddle.fluid.contrib.beam_search_decoder import BeamSearchDecoder, TrainingDecoder
from paddle.fluid.contrib.distributed_reader import distributed_batch_reader
from paddle.fluid.contrib.extend_optimizer import extend_with_decoupled_weight_decay
from paddle.fluid.contrib.fused import fused_elemwise_activation
from paddle.fluid.contrib.hdfs import HDFSClient
from paddle.fluid.contrib.lookup_tables import (
    convert_dist_to_sparse_program,
    load_persistables_for_increment,
    load_persistables_for_inference,
)
from paddle.fluid.contrib.rnn_impl import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm
from paddle.fluid.contrib.state_cell import InitState, StateCell
from paddle.fluid.contrib.statistics import memory_usage, op_freq_statistic
from paddle.fluid.errors import answering

if TYPE_CHECKING:
    from paddle.fluid.contrib import inferencer, trainer
    from paddle.fluid.contrib.inferencer import Inferencer
    from paddle.fluid.contrib.trainer import Trainer

__all__ = [
    "BasicGRUUnit", "BasicLSTMUnit", "BeamSearchDecoder", "HDFSClient", "Inferencer", "InitState", "StateCell",
    "Trainer", "TrainingDecoder", "basic_gru", "basic_lstm", "convert_dist_to_sparse_program", "ctr_reader",
    "distributed_batch_reader", "extend_with_decoupled_weight_decay", "fused_elemwise_activation", "inferencer",
    "load_persistables_for_increment", "load_persistables_for_inference", "memory_usage", "mixed_precision",
    "op_freq_statistic", "trainer",
]  # fmt: skip

_here = sys.modules[__name__]
_MODULES = {
    "decoder": _here,
    "decoder.beam_search_decoder": beam_search_decoder,
    "extend_optimizer": _here,
    "extend_optimizer.extend_optimizer_with_weight_decay": _here,
    "int8_inference": _here,
    "int8_inference.utility": _here,
    "layers": _here,
    "layers.nn": _here,
    "layers.rnn_impl": rnn_impl,
    "memory_usage_calc": _here,
    "mixed_precision.decorator": mixed_precision,
    "mixed_precision.fp16_lists": mixed_precision,
    "mixed_precision.fp16_utils": mixed_precision,
    "op_frequence": _here,
    "quantize": _here,
    "quantize.quantize_transpiler": _here,
    "reader": _here,
    "reader.ctr_reader": ctr_reader,
    "reader.distributed_reader": distributed_reader,
    "slim": _here,
    "slim.core": _here,
    "slim.quantization": _here,
    "utils": _here,
    "utils.hdfs_utils": _here,
    "utils.lookup_table_utils": _here,
}
# Modules of the original whose names are in other modules here: scripts import them too.
second_names.nest(__name__, _MODULES)

__getattr__, __dir__ = later.attributes(
    __name__, {".inferencer": "Inferencer", ".trainer": "Trainer"}, answering(__name__, depth=2)
)
