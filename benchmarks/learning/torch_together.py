# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of `benchmarks.scaling`: ranks that train word2vec together, with all tensors dense; see there.

Arguments: ranks, batches, warm-up, a file that does not exist yet, where ranks meet. Each process is one rank.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time

import torch
from torch import distributed, nn

from benchmarks.learning import work

WORDS, WIDTH, HIDDEN, BATCH, RATE = 2000, 32, 128, 64, 0.05
"""The hyperparameters of the sample job."""


class Words(nn.Module):  # type: ignore[misc]  # torch is nowhere but with the peers
    """Predicts the fifth of five consecutive words from the first four."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.hidden = nn.Linear(work.CONTEXT * WIDTH, HIDDEN)
        self.output = nn.Linear(HIDDEN, WORDS)

    def forward(self, contexts: torch.Tensor) -> torch.Tensor:
        """Return a score (N, WORDS) for each word."""
        vectors = self.table(contexts).view(len(contexts), -1)
        scores: torch.Tensor = self.output(torch.sigmoid(self.hidden(vectors)))
        return scores


def main(rank: int, ranks: int, batches: int, warm_up: int, meeting: str) -> None:
    """Train, and print when the steps after the warm-up began and ended."""
    torch.set_num_threads(1)
    torch.manual_seed(work.SEED)
    model: nn.Module = Words()
    if ranks > 1:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=RATE, eps=1e-6)
    drawn, weights = random.Random(rank), [1.0 / (at + 3) for at in range(WORDS)]
    begun = (0.0, 0.0)
    for number in range(batches):
        rows = torch.tensor(drawn.choices(range(WORDS), weights, k=BATCH * 5)).view(BATCH, 5)
        optimizer.zero_grad()
        cost = nn.functional.cross_entropy(model(rows[:, :4]), rows[:, 4])
        cost.backward()
        optimizer.step()
        cost.item()
        if number == warm_up:
            begun = time.monotonic(), time.process_time()
    samples = (batches - warm_up - 1) * BATCH
    told = [begun[0], time.monotonic(), samples, time.process_time() - begun[1], 0.0]
    sys.stdout.write(f"times {json.dumps(told)}\n")
    sys.stdout.flush()
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    ranks, batches, warm_up = map(int, sys.argv[1:4])
    started = [
        multiprocessing.Process(target=main, args=(rank, ranks, batches, warm_up, sys.argv[4]))
        for rank in range(ranks)
    ]
    for each in started:
        each.start()
    for each in started:
        each.join()
    sys.exit(max(each.exitcode or 0 for each in started))
