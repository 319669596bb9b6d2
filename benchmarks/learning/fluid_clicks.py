# SPDX-License-Identifier: Apache-2.0
"""Our side of `clicks`: a dataset, one table for all fields as in programs of the time, Adam for the rows seen."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.learning import clicks
from paddle import fluid
from paddle.fluid import layers


def _dataset(path: str, slots: list[Any]) -> Any:
    made = fluid.DatasetFactory().create_dataset("QueueDataset")
    made.set_use_var(slots)
    made.set_batch_size(clicks.BATCH)
    made.set_thread(1)
    made.set_filelist([path])
    return made


def _run() -> None:
    numbers, label = layers.data("numbers", [clicks.NUMBERS]), layers.data("label", [1], dtype="int64")
    ids = [layers.data(f"C{at}", [1], dtype="int64", lod_level=1) for at in range(clicks.FIELDS)]
    size = [clicks.IDS, clicks.WIDTH]
    hidden = layers.concat(
        [*(layers.embedding(each, size, True, param_attr="table") for each in ids), numbers], 1
    )
    for at, width in enumerate(clicks.HIDDEN):
        hidden = layers.fc(hidden, width, act="relu", param_attr=f"w{at}")
    chance = layers.fc(hidden, 2, act="softmax", param_attr=f"w{len(clicks.HIDDEN)}")
    cost = layers.mean(layers.cross_entropy(chance, label))
    judged = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(clicks.RATE, epsilon=clicks.EPSILON, lazy_mode=True).minimize(cost)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    table, weights = clicks.first_values()
    scope = fluid.global_scope()
    for name, value in {"table": table, **{f"w{at}": each for at, each in enumerate(weights)}}.items():
        scope.var(name).get_tensor().set(value)
    slots = [numbers, *ids, label]
    rows = _dataset(sys.argv[1], slots)

    def train() -> float:
        executor.train_from_dataset(dataset=rows)
        return 0.0

    def scored(path: str) -> tuple[Any, Any]:
        found = [
            executor.run(judged, batch.feed(), [label, chance], return_numpy=False)
            for batch in _dataset(path, slots).batches()
        ]
        clicked, likely = (
            np.concatenate([np.array(each) for each in parts]) for parts in zip(*found, strict=True)
        )
        return clicked[:, 0], likely[:, 1]

    clicks.main(train, scored)


if __name__ == "__main__":
    _run()
