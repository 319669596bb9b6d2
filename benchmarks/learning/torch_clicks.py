# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of `clicks`: a DataLoader with one worker, which parses whole batches with numpy, and SparseAdam."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.learning import clicks


class _Batches(IterableDataset):  # type: ignore[misc]
    """Numbers, ids and labels of each batch of a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        first = 2 + clicks.NUMBERS
        with open(self._path) as lines:
            while text := list(islice(lines, clicks.BATCH)):
                found = np.fromstring("".join(text), sep=" ").reshape(len(text), -1)
                ids = found[:, first : first + 2 * clicks.FIELDS : 2]
                columns = found[:, 1 : 1 + clicks.NUMBERS].astype("float32"), ids.astype("int64")
                yield tuple(map(torch.from_numpy, (*columns, found[:, -1].astype("int64"))))


def _run() -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    first, weights = clicks.first_values()
    table = nn.Embedding.from_pretrained(torch.from_numpy(first), freeze=False, sparse=True)
    layers: list[Any] = []
    for weight in weights:
        linear = nn.Linear(*weight.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight.T))
            linear.bias.zero_()
        layers += [linear, nn.ReLU()]
    net = nn.Sequential(*layers[:-1])
    sparse = torch.optim.SparseAdam(table.parameters(), lr=clicks.RATE, eps=clicks.EPSILON)
    dense = torch.optim.Adam(net.parameters(), lr=clicks.RATE, eps=clicks.EPSILON)

    def loader(path: str) -> Any:
        return DataLoader(
            _Batches(path), batch_size=None, num_workers=1, persistent_workers=True, prefetch_factor=4
        )

    def logits(numbers: Any, ids: Any) -> Any:
        return net(torch.cat([table(ids).flatten(1), numbers], 1))

    rows = loader(sys.argv[1])

    def train() -> float:
        for numbers, ids, label in rows:
            sparse.zero_grad()
            dense.zero_grad()
            cost = nn.functional.cross_entropy(logits(numbers, ids), label)
            cost.backward()
            sparse.step()
            dense.step()
        return float(cost.item())

    def scored(path: str) -> tuple[Any, Any]:
        with torch.no_grad():
            found = [(label, logits(numbers, ids).softmax(1)[:, 1]) for numbers, ids, label in loader(path)]
        return tuple(torch.cat(each).numpy() for each in zip(*found, strict=True))

    clicks.main(train, scored)


if __name__ == "__main__":
    _run()
