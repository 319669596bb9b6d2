# SPDX-License-Identifier: Apache-2.0
"""CTC costs and their gradients as a Fluid program; `torch_ctc` computes the same."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.learning import work


def network() -> Callable[[int], float]:
    """Return a function that computes the mean cost of a batch and the gradient of its scores."""
    import numpy as np

    from paddle import fluid
    from paddle.fluid import layers

    scores = layers.data("scores", shape=[work.CLASSES], lod_level=1, stop_gradient=False)
    labels = layers.data("labels", shape=[1], dtype="int32", lod_level=1)
    cost = layers.mean(layers.warpctc(scores, labels, blank=0))
    (gradient,) = fluid.gradients(cost, scores)
    assert gradient is not None
    place = work.place(fluid)
    executor = fluid.Executor(place)
    feeds = []
    for batch in work.heard():
        rows = np.array([row for each, _ in batch for row in each], "float32")
        words = np.array([label for _, each in batch for label in each], "int32").reshape(-1, 1)
        feeds.append(
            {
                "scores": fluid.create_lod_tensor(rows, [[len(each) for each, _ in batch]], place),
                "labels": fluid.create_lod_tensor(words, [[len(each) for _, each in batch]], place),
            }
        )

    def step(number: int) -> float:
        value, _ = executor.run(
            feed=feeds[number % len(feeds)], fetch_list=[cost, gradient], return_numpy=False
        )
        return float(np.array(value).reshape(-1)[0])

    return step
