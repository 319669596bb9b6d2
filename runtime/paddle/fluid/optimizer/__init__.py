# SPDX-License-Identifier: Apache-2.0
"""Optimizers: they append a backward pass and the operators that update parameters; above `run`."""

from paddle.fluid.errors import answering
from paddle.fluid.optimizer.adam import AdamaxOptimizer, AdamOptimizer, LambOptimizer
from paddle.fluid.optimizer.adaptive import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    DecayedAdagradOptimizer,
    FtrlOptimizer,
    RMSPropOptimizer,
)
from paddle.fluid.optimizer.base import Optimizer
from paddle.fluid.optimizer.descent import LarsMomentumOptimizer, MomentumOptimizer, SGDOptimizer
from paddle.fluid.optimizer.model_average import ExponentialMovingAverage, ModelAverage

SGD = SGDOptimizer
Momentum = MomentumOptimizer
LarsMomentum = LarsMomentumOptimizer
Adagrad = AdagradOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
Adadelta = AdadeltaOptimizer
Adam = AdamOptimizer
Adamax = AdamaxOptimizer
RMSProp = RMSPropOptimizer
Ftrl = FtrlOptimizer
Lamb = LambOptimizer

__all__ = [
    "SGD", "Adadelta", "AdadeltaOptimizer", "Adagrad", "AdagradOptimizer", "Adam", "AdamOptimizer",
    "Adamax", "AdamaxOptimizer", "DecayedAdagrad", "DecayedAdagradOptimizer", "ExponentialMovingAverage",
    "Ftrl", "FtrlOptimizer", "Lamb", "LambOptimizer", "LarsMomentum", "LarsMomentumOptimizer",
    "ModelAverage", "Momentum", "MomentumOptimizer", "Optimizer", "RMSProp", "RMSPropOptimizer",
    "SGDOptimizer",
]  # fmt: skip

__getattr__ = answering(__name__)
