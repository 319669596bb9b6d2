# SPDX-License-Identifier: Apache-2.0
"""Layers of detection run in programs, pass gradients on, and refuse what they cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.errors import FluidError
from paddle.ops.base.lod import LoDArray, offsets_of

_RNG = np.random.default_rng(3)


def _lod(data: Any, *lengths: int) -> LoDArray:
    return LoDArray(np.asarray(data), offsets_of([list(lengths)]))


def _run(feed: dict[str, Any], fetches: list[Any]) -> list[Any]:
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=fetches, return_numpy=False)


def _boxes(count: int, scale: float = 1.0) -> Any:
    starts = _RNG.uniform(0, 0.6, (count, 2))
    return (np.concatenate([starts, starts + _RNG.uniform(0.1, 0.4, (count, 2))], axis=1) * scale).astype("f")


def test_sizes_of_ssd_go_from_ratio_to_ratio_and_its_loss_is_one_of_each_image() -> None:
    image = layers.data("image", [3, 32, 32])
    maps = [layers.conv2d(image, 4, 3, stride=8, padding=1)]
    for _ in range(3):
        maps.append(layers.conv2d(maps[-1], 4, 3, stride=2, padding=1))
    ratios = [[2.0], [2.0, 3.0], [2.0, 3.0], [2.0]]
    codes, scores, priors, spread = layers.multi_box_head(
        maps, image, 32, 3, ratios, min_ratio=20, max_ratio=90
    )
    assert codes.shape == (-1, 16 * 4 + 4 * 6 + 6 + 4, 4)
    assert scores.shape == (-1, 98, 3)
    assert priors.shape == spread.shape == (98, 4)
    boxes, label = (
        layers.data("boxes", [4], lod_level=1),
        layers.data("label", [1], dtype="int32", lod_level=1),
    )
    loss = layers.ssd_loss(codes, scores, boxes, label, priors, spread)
    found = layers.detection_output(codes, scores, priors, spread, keep_top_k=7)
    fluid.optimizer.SGD(0.01).minimize(layers.mean(loss))
    feed = {"image": _RNG.standard_normal((2, 3, 32, 32)).astype("f"), "boxes": _lod(_boxes(3), 2, 1)}
    feed["label"] = _lod(np.array([[1], [2], [1]], "int32"), 2, 1)
    cost, rows, prior = _run(feed, [loss, found, priors])
    assert np.array(cost).shape == (2, 1)
    assert np.isfinite(np.array(cost)).all()
    assert rows.recursive_sequence_lengths() == [[7, 7]]
    # Sides of the first map are 10 % and √(10 % 20 %) of the image.
    sides = (np.array(prior)[:4, 2:] - np.array(prior)[:4, :2])[[0, 3]]
    np.testing.assert_allclose(sides, [[0.1, 0.1], [0.02**0.5, 0.02**0.5]], rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"inputs": None}, "expected a list of variables as inputs"),
        ({"aspect_ratios": [[2.0], [2.0]]}, "expected 1 entries of aspect_ratios, .* got 2"),
        ({"min_sizes": None}, "give min_sizes and max_sizes"),
    ],
)
def test_heads_that_do_not_fit_are_refused(change: dict[str, Any], text: str) -> None:
    image = layers.data("image", [3, 8, 8])
    given = {"inputs": [image], "image": image, "base_size": 8, "num_classes": 2, "aspect_ratios": [[2.0]]}
    with pytest.raises(FluidError, match=text):
        layers.multi_box_head(**{**given, "min_sizes": [2.0], "max_sizes": [4.0], **change})


def test_precision_adds_up_until_it_is_reset() -> None:
    found = layers.data("found", [6], lod_level=1)
    label, box = layers.data("label", [1], dtype="int32", lod_level=1), layers.data("box", [4], lod_level=1)
    measure = fluid.metrics.DetectionMAP(found, label, box, class_num=2, overlap_threshold=0.5)
    assert fluid.evaluator.DetectionMAP is fluid.metrics.DetectionMAP
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    seen = []
    for hit in (True, False, True):
        row = [1, 0.9, 0.1, 0.1, 0.5, 0.5] if hit else [1, 0.9, 0.5, 0.5, 0.9, 0.9]
        feed = {"found": _lod([row], 1), "label": _lod(np.array([[1]], "int32"), 1)}
        feed["found"] = _lod(np.array([row], "f"), 1)
        feed["box"] = _lod(np.array([[0.1, 0.1, 0.5, 0.5]], "f"), 1)
        seen.append(
            [float(each[0]) for each in executor.run(feed=feed, fetch_list=list(measure.get_map_var()))]
        )
        if len(seen) == 2:
            measure.reset(executor)
    assert seen == [[1, 1], [0, pytest.approx(0.25, abs=0.26)], [1, 1]]
    assert 0 < seen[1][1] < 1


def test_a_region_network_and_its_head_train() -> None:
    features = layers.data("features", [8, 6, 6])
    features.stop_gradient = False
    info = layers.data("info", [3])
    boxes = layers.data("boxes", [4], lod_level=1)
    classes = layers.data("classes", [1], dtype="int32", lod_level=1)
    crowd = layers.data("crowd", [1], dtype="int32", lod_level=1)
    anchors, spread = layers.anchor_generator(features, [16.0, 32.0], [0.5, 1.0], stride=[8.0, 8.0])
    scores, codes = layers.conv2d(features, 4, 1), layers.conv2d(features, 16, 1)
    flat = [
        layers.reshape(layers.transpose(each, [0, 2, 3, 1]), [0, -1, n])
        for each, n in ((scores, 1), (codes, 4))
    ]
    score, code, wanted, goal, weight = layers.rpn_target_assign(
        flat[1], flat[0], layers.reshape(anchors, [-1, 4]), layers.reshape(spread, [-1, 4]), boxes, crowd, info,
        rpn_batch_size_per_im=32, rpn_positive_overlap=0.5,
    )  # fmt: skip
    chance = layers.sigmoid_cross_entropy_with_logits(score, layers.cast(wanted, "float32"))
    rpn = layers.mean(chance) + layers.mean(layers.smooth_l1(code, goal, weight, weight))
    rois, _ = layers.generate_proposals(
        layers.sigmoid(scores), codes, info, anchors, spread, 60, 20, 0.7, 2.0
    )
    rois, label, target, inside, outside = layers.generate_proposal_labels(
        rois, classes, crowd, boxes, info, batch_size_per_im=16, class_nums=3
    )
    hidden = layers.fc(layers.roi_align(features, rois, 3, 3, 1 / 8.0, 2), 32, act="relu")
    chosen = layers.fc(hidden, 3)
    cost = layers.mean(layers.softmax_with_cross_entropy(chosen, layers.cast(label, "int64")))
    place = layers.mean(layers.smooth_l1(layers.fc(hidden, 12), target, inside, outside))
    loss = rpn + cost + place
    fluid.optimizer.Adam(0.02).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    rng = np.random.default_rng(0)
    feed = {
        "features": rng.standard_normal((2, 8, 6, 6)).astype("f"),
        "info": np.array([[48, 48, 1.0], [48, 48, 1.0]], "f"),
        "boxes": _lod(np.array([[2, 3, 20, 20], [25, 20, 46, 45], [10, 10, 40, 30]], "f"), 2, 1),
        "classes": _lod(np.array([[1], [2], [1]], "int32"), 2, 1),
        "crowd": _lod(np.zeros((3, 1), "int32"), 2, 1),
    }
    losses = [float(np.asarray(executor.run(feed=feed, fetch_list=[loss])[0]).item()) for _ in range(40)]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_layers_of_pyramids_regions_and_shifts_run() -> None:
    x, rois = layers.data("x", [8, 8, 8]), layers.data("rois", [4], lod_level=1)
    scores = layers.data("scores", [1], lod_level=1)
    levels, restore = layers.distribute_fpn_proposals(rois, 2, 3, 3, 32)
    collected = layers.collect_fpn_proposals([rois, rois], [scores, scores], 2, 3, 3)
    offset, mask = layers.conv2d(x, 18, 3, padding=1), layers.conv2d(x, 9, 3, padding=1)
    second = layers.deformable_conv(x, offset, mask, 5, 3, padding=1)
    first = layers.deformable_conv(x, offset, None, 5, 3, padding=1, bias_attr=False)
    trans = layers.data("trans", [2, 2, 2])
    pooled = layers.deformable_roi_pooling(
        x, rois, trans, spatial_scale=0.25, group_size=[2, 2], pooled_height=2, pooled_width=2, sample_per_part=2,
        position_sensitive=True,
    )  # fmt: skip
    cells = layers.psroi_pool(x, rois, 2, 0.25, 2, 2)
    assert [first.shape, second.shape, pooled.shape, cells.shape] == [
        (-1, 5, 8, 8), (-1, 5, 8, 8), (-1, 2, 2, 2), (-1, 2, 2, 2),
    ]  # fmt: skip
    feed = {"x": _RNG.standard_normal((2, 8, 8, 8)).astype("f"), "rois": _lod(_boxes(3, 30), 1, 2)}
    feed["scores"] = _lod(_RNG.uniform(0, 1, (3, 1)).astype("f"), 1, 2)
    feed["trans"] = _RNG.standard_normal((3, 2, 2, 2)).astype("f")
    found = _run(feed, [*levels, restore, collected, first, second, pooled, cells])
    assert sum(np.array(each).shape[0] for each in found[:2]) == 3
    assert sorted(np.array(found[2]).reshape(-1).tolist()) == [0, 1, 2]
    assert sum(found[3].recursive_sequence_lengths()[0]) == 3
    assert all(np.isfinite(np.array(each)).all() for each in found[4:])


def test_retinanet_pays_for_classes_and_finds_boxes() -> None:
    codes, scores = layers.data("codes", [6, 4]), layers.data("scores", [6, 2])
    for each in (codes, scores):
        each.stop_gradient = False
    anchors = layers.data("anchors", [6, 4], append_batch_size=False)
    boxes, info = layers.data("boxes", [4], lod_level=1), layers.data("info", [3])
    labels = layers.data("labels", [1], dtype="int32", lod_level=1)
    crowd = layers.data("crowd", [1], dtype="int32", lod_level=1)
    score, _, wanted, *_, count = layers.retinanet_target_assign(
        codes, scores, anchors, anchors, boxes, labels, crowd, info, num_classes=2
    )
    loss = layers.reduce_sum(layers.sigmoid_focal_loss(score, wanted, count, gamma=2, alpha=0.25))
    fluid.backward.append_backward(loss)
    found = layers.retinanet_detection_output([codes], [layers.sigmoid(scores)], [anchors], info)
    feed = {
        "codes": np.zeros((1, 6, 4), "f"), "scores": np.zeros((1, 6, 2), "f"), "anchors": _boxes(6, 30),
        "info": np.array([[40, 40, 1.0]], "f"), "labels": _lod(np.array([[2]], "int32"), 1),
        "crowd": _lod(np.zeros((1, 1), "int32"), 1),
    }  # fmt: skip
    feed["boxes"] = _lod(feed["anchors"][2:3] + np.float32(0.5), 1)
    cost, change, rows = _run(feed, [loss, "scores@GRAD", found])
    assert float(np.array(cost).item()) > 0
    assert np.array(change)[0, 2, 1] < 0 < np.array(change)[0, 2, 0]
    assert np.array(rows).shape[1] == 6


def test_the_loss_of_a_fixed_number_of_images_takes_any_number_of_boxes() -> None:
    codes = layers.data("codes", [2, 5, 4], append_batch_size=False)
    scores = layers.data("scores", [2, 5, 3], append_batch_size=False)
    priors = layers.data("priors", [5, 4], append_batch_size=False)
    boxes = layers.data("boxes", [4], lod_level=1)
    label = layers.data("label", [1], dtype="int32", lod_level=1)
    assert layers.iou_similarity(boxes, priors).lod_level == 1
    assert layers.ssd_loss(codes, scores, boxes, label, priors, priors).shape[1:] == (1,)
