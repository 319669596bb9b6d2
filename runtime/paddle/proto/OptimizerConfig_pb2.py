# SPDX-License-Identifier: Apache-2.0
"""The protobuf messages that describe optimizers of parameter servers, in the format of later Paddle versions."""

from __future__ import annotations

from paddle.proto.message import messages

MESSAGES = messages(
    __name__,
    """
    SGDConfig:
    21 double momentum
    23 double decay
    24 bool nesterov
    AdadeltaConfig:
    31 double epsilon =1e-5
    32 double decay
    33 double rho =0.90
    AdagradConfig:
    41 double epsilon =1e-5
    42 double decay
    AdamConfig:
    41 double beta_1
    42 double beta_2
    43 double epsilon
    44 double decay
    ConstLrConfig:
    1 double learning_rate =1.0
    LinearLrConfig:
    1 double learning_rate !
    2 double lr_decay_a
    3 double lr_decay_b
    OptimizerConfig:
    1 int32 optimizer !
    3 SGDConfig sgd
    4 AdadeltaConfig adadelta
    5 AdagradConfig adagrad
    6 AdamConfig adam
    11 int32 lr_policy !
    12 ConstLrConfig const_lr
    13 LinearLrConfig linear_lr
    101 double clip_norm
    102 double clip_value
    """,
)
globals().update(MESSAGES)
__all__ = list(MESSAGES)
_OPTIMIZER = MESSAGES["OptimizerConfig"]
_OPTIMIZER.SGD, _OPTIMIZER.Adadelta, _OPTIMIZER.Adagrad, _OPTIMIZER.Adam = 1, 2, 3, 4
_OPTIMIZER.Const, _OPTIMIZER.Linear = 0, 1
