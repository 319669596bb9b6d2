# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import metrics


def test_precision_and_recall_count_over_minibatches() -> None:
    both = metrics.CompositeMetric()
    for each in (metrics.Precision(), metrics.Recall()):
        both.add_metric(each)
    both.update([[0.9], [0.8], [0.2]], [[1], [0], [1]])
    both.update([[0.9]], [[1]])
    assert both.eval() == [2 / 3, 2 / 3]
    both.reset()
    assert both.eval() == [0.0, 0.0]


def test_accuracies_are_weighted() -> None:
    accuracy = metrics.Accuracy()
    with pytest.raises(ValueError, match="no sample has been counted"):
        accuracy.eval()
    accuracy.update(np.array([0.5]), 30)
    accuracy.update(1.0, 10)
    assert accuracy.eval() == 0.625


def test_chunks_and_distances_are_summed_up() -> None:
    chunks = metrics.ChunkEvaluator()
    chunks.update(10, 8, 4)
    assert chunks.eval() == pytest.approx((0.4, 0.5, 4 / 9))
    distance = metrics.EditDistance("distance")
    distance.update(np.array([[0.0], [2.0]]), 2)
    assert distance.eval() == (1.0, 0.5)


def test_the_area_is_that_of_all_pairs_in_the_right_order() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 200)
    scores = np.clip(0.3 * labels + 0.7 * rng.random(200), 0, 1)
    auc = metrics.Auc("auc")
    for part in (slice(0, 120), slice(120, 200)):
        auc.update(np.stack([1 - scores[part], scores[part]], 1), labels[part])
    pairs = scores[labels == 1][:, None] - scores[labels == 0][None]
    assert auc.eval() == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean(), abs=1e-3)


def test_the_layer_of_the_area_agrees_with_the_metric() -> None:
    p, y = fluid.layers.data("p", [2]), fluid.layers.data("y", [1], dtype="int64")
    area, _, _ = fluid.layers.auc(p, y)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    rng = np.random.default_rng(2)
    metric = metrics.Auc("auc")
    for _ in range(3):
        scores, labels = rng.random(50).astype("float32"), rng.integers(0, 2, (50, 1))
        both = np.stack([1 - scores, scores], 1)
        metric.update(both, labels)
        (got,) = exe.run(feed={"p": both, "y": labels}, fetch_list=[area])
    assert got[0] == pytest.approx(metric.eval(), abs=1e-6)


def test_attention_in_heads_has_the_shape_of_its_values() -> None:
    q, v = fluid.layers.data("q", [3, 8]), fluid.layers.data("v", [5, 6])
    k = fluid.layers.data("k", [5, 8])
    out = fluid.nets.scaled_dot_product_attention(q, k, v, num_heads=2)
    rng = np.random.default_rng(0)
    feed = {
        name: rng.standard_normal((2, *shape)).astype("float32")
        for name, shape in {"q": (3, 8), "k": (5, 8), "v": (5, 6)}.items()
    }
    (got,) = fluid.Executor().run(feed=feed, fetch_list=[out])
    heads = []
    for at in range(2):
        part = {n: x[..., at * (x.shape[-1] // 2) : (at + 1) * (x.shape[-1] // 2)] for n, x in feed.items()}
        e = np.exp(part["q"] @ part["k"].transpose(0, 2, 1) / 2.0)
        heads.append(e / e.sum(-1, keepdims=True) @ part["v"])
    np.testing.assert_allclose(got, np.concatenate(heads, -1), rtol=1e-4, atol=1e-6)


def test_groups_of_convolutions_end_in_a_pool() -> None:
    image = fluid.layers.data("image", [3, 16, 16])
    out = fluid.nets.img_conv_group(
        image,
        [4, 8],
        2,
        conv_act="relu",
        param_attr=["first", fluid.ParamAttr("second")],
        conv_with_batchnorm=True,
        conv_batchnorm_drop_rate=[0.3, 0.0],
        pool_stride=2,
    )
    assert out.shape == (-1, 8, 8, 8)
    types = [op.type for op in fluid.default_main_program().global_block().ops]
    assert types.count("batch_norm") == 2
    assert fluid.default_main_program().global_block().var("second").shape == (8, 4, 3, 3)
    assert types.count("dropout") == 1
    assert fluid.nets.simple_img_conv_pool(image, 6, 5, 2, 2, act="relu").shape == (-1, 6, 6, 6)
    assert fluid.nets.glu(fluid.layers.data("g", [6])).shape == (-1, 3)
