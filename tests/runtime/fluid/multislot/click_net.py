# SPDX-License-Identifier: Apache-2.0
"""Made-up clicks in MultiSlot text, and a small net that learns them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import paddle.fluid as fluid

IDS = 50
Row = tuple[list[float], list[int], int]


def rows(count: int, seed: int) -> list[Row]:
    """Two numbers, one to four ids, and a click that the ids and the first number rule."""
    rng = np.random.default_rng(seed)
    taste = np.random.default_rng(7).standard_normal(IDS)
    found = []
    for _ in range(count):
        ids = rng.integers(0, IDS, rng.integers(1, 5)).tolist()
        numbers = [round(float(x), 3) for x in rng.standard_normal(2)]
        found.append((numbers, ids, int(taste[ids].mean() + numbers[0] > 0)))
    return found


def text(some: list[Row]) -> str:
    """Lines of the slots numbers, ids, click."""
    return "".join(
        f"2 {numbers[0]} {numbers[1]} {len(ids)} {' '.join(map(str, ids))} 1 {click}\n"
        for numbers, ids, click in some
    )


def write(folder: Path, *parts: list[Row]) -> list[str]:
    """Write a file for each part; return their paths."""
    paths = [folder / f"part-{number}" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_text(text(part))
    return [str(path) for path in paths]


def inputs() -> list[Any]:
    """Variables of the slots, in their order."""
    return [
        fluid.layers.data("numbers", [2]),
        fluid.layers.data("ids", [1], dtype="int64", lod_level=1),
        fluid.layers.data("click", [1], dtype="int64"),
    ]


def net(is_sparse: bool = True) -> tuple[list[Any], Any, Any]:
    """Return inputs, mean cost and probabilities."""
    slots = inputs()
    numbers, ids, click = slots
    table = fluid.ParamAttr("table", fluid.initializer.Constant(0.0))
    embedded = fluid.layers.embedding(ids, [IDS, 4], is_sparse=is_sparse, param_attr=table)
    pooled = fluid.layers.sequence_pool(embedded, "average")
    hidden = fluid.layers.concat([pooled, numbers], axis=1)
    weights = fluid.ParamAttr(
        "w", fluid.initializer.NumpyArrayInitializer(np.linspace(-1, 1, 12).reshape(6, 2))
    )
    chance = fluid.layers.fc(hidden, 2, act="softmax", param_attr=weights)
    return slots, fluid.layers.mean(fluid.layers.cross_entropy(chance, click)), chance


def feed(batch: list[Row]) -> dict[str, Any]:
    """A batch as a script would feed it."""
    ids = np.concatenate([np.array(row[1]) for row in batch])[:, None]
    return {
        "numbers": np.array([row[0] for row in batch], "float32"),
        "ids": fluid.create_lod_tensor(ids, [[len(row[1]) for row in batch]], fluid.CPUPlace()),
        "click": np.array([[row[2]] for row in batch]),
    }


def dataset(paths: list[str], slots: list[Any], kind: str = "QueueDataset", batch_size: int = 16) -> Any:
    """Return a dataset of files."""
    made = fluid.DatasetFactory().create_dataset(kind)
    made.set_use_var(slots)
    made.set_batch_size(batch_size)
    made.set_filelist(paths)
    return made
