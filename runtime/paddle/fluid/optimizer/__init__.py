# SPDX-License-Identifier: Apache-2.0
"""Optimizers: they append a backward pass and the operators that update parameters; above `run`."""

from paddle.fluid.optimizer.adadelta import AdadeltaOptimizer
from paddle.fluid.optimizer.adagrad import AdagradOptimizer, DecayedAdagradOptimizer
from paddle.fluid.optimizer.adam import AdamOptimizer
from paddle.fluid.optimizer.adamax import AdamaxOptimizer
from paddle.fluid.optimizer.base import Optimizer
from paddle.fluid.optimizer.ftrl import FtrlOptimizer
from paddle.fluid.optimizer.lamb import LambOptimizer
from paddle.fluid.optimizer.model_average import ModelAverage
from paddle.fluid.optimizer.momentum import LarsMomentumOptimizer, MomentumOptimizer
from paddle.fluid.optimizer.rmsprop import RMSPropOptimizer
from paddle.fluid.optimizer.sgd import SGDOptimizer

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
    "SGD",
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "Adamax",
    "AdamaxOptimizer",
    "DecayedAdagrad",
    "DecayedAdagradOptimizer",
    "Ftrl",
    "FtrlOptimizer",
    "Lamb",
    "LambOptimizer",
    "LarsMomentum",
    "LarsMomentumOptimizer",
    "ModelAverage",
    "Momentum",
    "MomentumOptimizer",
    "Optimizer",
    "RMSProp",
    "RMSPropOptimizer",
    "SGDOptimizer",
]
