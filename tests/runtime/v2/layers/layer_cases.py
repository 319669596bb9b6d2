# SPDX-License-Identifier: Apache-2.0
"""Inputs, formulas and one case a layer, for tests of values and of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput

layer, attr, data_type, act = paddle.layer, paddle.attr, paddle.data_type, paddle.activation


ROWS = np.array([[0.5, -1.0, 2.0, 0.25], [1.5, 0.75, -0.5, 3.0], [-2.0, 1.0, 0.1, 0.4]], np.float32)
OTHER = np.array([[1.0, 2.0, -1.0, 0.5], [0.5, 0.5, 0.5, -2.0], [3.0, 0.1, -0.7, 1.2]], np.float32)
WEIGHT = np.array([[0.5], [2.0], [-1.5]], np.float32)


def dense(name: str, dim: int) -> LayerOutput:
    return layer.data(name, data_type.dense_vector(dim))


def values(out: LayerOutput, *columns: Any, parameters: dict[str, np.ndarray] | None = None) -> np.ndarray:
    made = paddle.parameters.create(out)
    for name, value in (parameters or {}).items():
        made[name] = value
    found: np.ndarray = paddle.infer(out, made, list(zip(*columns, strict=True)))
    return found


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Tanh": np.tanh,
    "Sigmoid": sigmoid,
    "Softmax": lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True),
    "Linear": lambda x: x,
    "Identity": lambda x: x,
    "Exp": np.exp,
    "Relu": lambda x: np.maximum(x, 0),
    "BRelu": lambda x: np.clip(x, 0, 24),
    "SoftRelu": lambda x: np.log1p(np.exp(x)),
    "STanh": lambda x: 1.7159 * np.tanh(2 * x / 3),
    "Abs": np.abs,
    "Square": np.square,
    "Reciprocal": lambda x: 1 / x,
    "SoftSign": lambda x: x / (1 + np.abs(x)),
}


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1))


LAYERS: dict[str, tuple[Callable[[LayerOutput, LayerOutput, LayerOutput], LayerOutput], np.ndarray]] = {
    "addto": (lambda x, y, w: layer.addto([x, y]), ROWS + OTHER),
    "concat": (lambda x, y, w: layer.concat([x, y]), np.concatenate([ROWS, OTHER], axis=1)),
    "cos_sim": (lambda x, y, w: layer.cos_sim(x, y, scale=5), 5 * cosine(ROWS, OTHER)[:, None]),
    "cos_sim of parts": (
        lambda x, y, w: layer.cos_sim(x, layer.concat([y, x]), size=2),
        np.stack([cosine(ROWS, OTHER), np.ones(3)], axis=1),
    ),
    "dot_prod": (lambda x, y, w: layer.dot_prod(x, y), (ROWS * OTHER).sum(axis=1, keepdims=True)),
    "out_prod": (lambda x, y, w: layer.out_prod(x, y), np.einsum("ni,nj->nij", ROWS, OTHER).reshape(3, 16)),
    "l2_distance": (
        lambda x, y, w: layer.l2_distance(x, y),
        np.linalg.norm(ROWS - OTHER, axis=1, keepdims=True),
    ),
    "scaling": (lambda x, y, w: layer.scaling(x, w), ROWS * WEIGHT),
    "interpolation": (lambda x, y, w: layer.interpolation([x, y], w), WEIGHT * ROWS + (1 - WEIGHT) * OTHER),
    "slope_intercept": (lambda x, y, w: layer.slope_intercept(x, slope=2, intercept=-1), 2 * ROWS - 1),
    "scale_shift": (
        lambda x, y, w: layer.scale_shift(x, None, attr.Param(initial_mean=3, initial_std=0)),
        3 * ROWS,
    ),
    "prelu": (lambda x, y, w: layer.prelu(x, partial_sum=2), np.where(ROWS > 0, ROWS, 0.25 * ROWS)),
    "clip": (lambda x, y, w: layer.clip(x, -0.6, 0.6), np.clip(ROWS, -0.6, 0.6)),
    "sum_to_one_norm": (lambda x, y, w: layer.sum_to_one_norm(x), ROWS / ROWS.sum(axis=1, keepdims=True)),
    "row_l2_norm": (lambda x, y, w: layer.row_l2_norm(x), ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)),
    "trans": (lambda x, y, w: layer.trans(x), ROWS.T),
    "resize": (lambda x, y, w: layer.resize(x, 2), ROWS.reshape(6, 2)),
    "repeat rows": (lambda x, y, w: layer.repeat(x, 2), np.tile(ROWS, 2)),
    "repeat columns": (lambda x, y, w: layer.repeat(x, 2, as_row_vector=False), np.repeat(ROWS, 2, axis=1)),
    "linear_comb": (
        lambda x, y, w: layer.linear_comb(x, layer.concat([y, x])),
        np.einsum("nm,nms->ns", ROWS, np.concatenate([OTHER, ROWS], axis=1).reshape(3, 4, 2)),
    ),
    "gated_unit": (
        lambda x, y, w: layer.dot_prod(layer.gated_unit(x, 5), layer.gated_unit(x, 5)),
        np.empty(0),
    ),
    "x + 2": (lambda x, y, w: x + 2, ROWS + 2),
    "2 - x": (lambda x, y, w: 2 - x, 2 - ROWS),
    "x - 2": (lambda x, y, w: x - 2, ROWS - 2),
    "x - y": (lambda x, y, w: x - y, ROWS - OTHER),
    "x * 3": (lambda x, y, w: x * 3, ROWS * 3),
    "x * w": (lambda x, y, w: x * w, ROWS * WEIGHT),
    "x + w": (lambda x, y, w: x + w, ROWS + WEIGHT),
    "-x": (lambda x, y, w: -x, -ROWS),
    "op.square": (lambda x, y, w: paddle.op.square(x), ROWS**2),
    "op.softmax": (lambda x, y, w: paddle.op.softmax(x), ACTIVATIONS["Softmax"](ROWS)),
}
