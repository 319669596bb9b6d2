# SPDX-License-Identifier: Apache-2.0
"""Unknown keyword arguments: the error names the argument that was meant, or those that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import paddle.v2 as paddle
from paddle import fluid
from paddle.pserver import Client, OptimizerSpec, TensorOptions
from paddle.signatures import explained


@pytest.mark.parametrize(
    ("call", "given", "text"),
    [
        (OptimizerSpec, "lr", "OptimizerSpec.*'lr'.*'learning_rate'"),
        (OptimizerSpec, "beta1", "'beta1'.* rule, hyper, learning_rate"),
        (TensorOptions, "learningrate", "'learning_rate'"),
        (Client, "endpoint", "'endpoints'"),
        (fluid.optimizer.SGD, "lr", "'learning_rate'"),
        (fluid.layers.fc, "activation", "'act'"),
        (fluid.layers.relu, "y", "'y'.* x, name$"),
        (fluid.ParamAttr, "nam", "ParamAttr.*'name'"),
        (fluid.initializer.Constant, "val", "ConstantInitializer.*'value'"),
        (fluid.regularizer.L2Decay, "coef", "L2Decay.* regularization_coeff$"),
        (fluid.clip.GradientClipByNorm, "norm", "clip_norm"),
        (fluid.DistributeTranspiler().transpile, "trainer", "'trainers'"),
        (fluid.DistributeTranspilerConfig, "slice_var", "'slice_var_up'"),
        (fluid.io.save_inference_model, "dir", "dirname"),
        (paddle.layer.fc, "inptu", "'input'"),
        (paddle.layer.data, "typ", "'type'"),
        (paddle.attr.Param, "lr", "'learning_rate'"),
        (paddle.optimizer.Momentum, "momentm", "'momentum'"),
        (paddle.optimizer.L2Regularization, "coef", " rate$"),
        (paddle.trainer.SGD, "params", "'parameters'"),
        (paddle.infer, "output", "output_layer"),
        (paddle.batch, "batchsize", "'batch_size'"),
        (paddle.reader.shuffle, "buf", "buf_size"),
    ],
)
def test_an_unknown_argument_is_named_with_advice(call: Callable[..., Any], given: str, text: str) -> None:
    with pytest.raises(TypeError, match=text) as caught:
        call(**{given: 1})
    assert repr(given) in str(caught.value)


def test_errors_inside_a_function_pass_unchanged() -> None:
    def plain(left: Any, right: Any = 1) -> Any:
        return left + right

    add: Any = explained(plain)
    assert add(2) == 3
    with pytest.raises(TypeError, match="unsupported operand"):
        add(None, right=1)
    with pytest.raises(TypeError, match="missing 1 required"):
        add(right=1)
