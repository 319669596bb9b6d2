# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side, run by a Python that has torch and needs none of our packages.

Eager, unless `--compile` follows a network's name.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.learning import torch_ctc, torch_images, torch_sentences, work


def _word2vec(batch: int) -> Callable[[int], float]:
    torch.manual_seed(work.SEED)
    table = nn.Embedding(work.WORDS, work.WIDTH, sparse=True)
    hidden, output = nn.Linear(work.CONTEXT * work.WIDTH, work.HIDDEN), nn.Linear(work.HIDDEN, work.WORDS)
    for weight in (table.weight, hidden.weight, output.weight):
        nn.init.xavier_uniform_(weight)  # Fluid's initial values, with biases of zero
    for bias in (hidden.bias, output.bias):
        nn.init.zeros_(bias)
    parameters = [*table.parameters(), *hidden.parameters(), *output.parameters()]
    optimizer = torch.optim.Adagrad(parameters, lr=work.RATE, eps=1e-6)
    batches = [(torch.tensor(contexts), torch.tensor(nexts)) for contexts, nexts in work.windows(batch)]

    def step(number: int) -> float:
        contexts, nexts = batches[number % len(batches)]
        optimizer.zero_grad()
        vectors = table(contexts).view(batch, work.CONTEXT * work.WIDTH)
        cost = nn.functional.cross_entropy(output(torch.sigmoid(hidden(vectors))), nexts)
        cost.backward()
        optimizer.step()
        return float(cost.item())

    return step


def _operators() -> Callable[[int], float]:
    ones, halves = torch.ones(work.LENGTH), torch.full((work.LENGTH,), 0.5)

    def step(number: int) -> float:
        x = ones
        with torch.no_grad():
            for _ in range(work.PAIRS):
                x = torch.relu(x + halves)
        return float(x[0])

    return step


if __name__ == "__main__":
    if work.ON_GPU:
        torch.set_default_device("cuda")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sides: dict[str, Callable[[], Callable[[int], float]]] = {
        "word2vec": lambda: _word2vec(int(sys.argv[2])),
        "operators": _operators,
        "ctc": torch_ctc.network,
        **{
            name: functools.partial(torch_images.network, name, "--compile" in sys.argv)
            for name in work.PICTURES
        },
        **{name: functools.partial(torch_sentences.network, name) for name in work.LENGTHS},
    }
    work.take_turns(sides[sys.argv[1]]())
