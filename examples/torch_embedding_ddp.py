# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""A recommender whose dense layers DistributedDataParallel trains, by gloo or nccl, and whose rows are on servers.

Each sample is a person and the ads on one page, in any number. The person clicks on the page if they like most of the
ads. IDs are below 10^11. In `torch_embedding.py`, the servers also train the dense layers.

    python paddle.py -p examples --entry=torch_embedding_ddp.py --nproc_per_node=2
"""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from paddle.pserver import RowWiseAdagrad
from paddle.pserver.torch import Embedding, EmbeddingBag, Prefetching, ServerOptimizer

NUMBERS = 10**11
THEMES = 4


def shown(samples, seed):
    """Return people (samples,), ads (m,), offsets (samples,) of the pages among the ads, and clicks (samples,)."""
    world = np.random.default_rng(11)  # the same for all trainers
    people, ads = (world.integers(0, NUMBERS, count) for count in (300, 100))
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 4, samples)
    who = people[random.integers(0, len(people), samples)]
    theme = random.integers(0, THEMES, samples)
    of_theme = [ads[ads % THEMES == each] for each in range(THEMES)]
    page = [random.choice(of_theme[theme[i]], lengths[i]) for i in range(samples)]
    clicks = (who % THEMES == theme).astype(np.float32)
    whole, offsets = np.concatenate(page), np.cumsum(lengths) - lengths
    return [torch.from_numpy(each) for each in (who, whole, offsets, clicks)]


class Clicks(torch.nn.Module):
    """Scores people (n,) and pages of ads (values, offsets): (n,) float32."""

    def __init__(self, width):
        super().__init__()
        self.person = Embedding("person", width, std=0.3)
        self.page = EmbeddingBag("ad", width, mode="mean", std=0.3)
        self.top = torch.nn.Sequential(
            torch.nn.Linear(3 * width, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1), torch.nn.Flatten(0)
        )

    def forward(self, who, ads, offsets):
        """Return a score for each sample; above 0 is a click."""
        person, page = self.person(who), self.page(ads, offsets)
        return self.top(torch.cat((person, page, person * page), dim=1))


def main():
    """Train, and print what was learned."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--batches", type=int, default=40, help="per trainer and pass")
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--width", type=int, default=8)
    args, _ = parser.parse_known_args()  # receives the servers' options from paddle.py too

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    model = Clicks(args.width)
    # dense=False: the servers only have the tables.
    with ServerOptimizer(model, RowWiseAdagrad(lr=0.3), dense=False) as rows:
        ddp = DistributedDataParallel(model)
        dense = torch.optim.Adam(ddp.parameters(), lr=5e-3)
        for number in range(args.passes):
            seeds = range(args.batches * dist.get_world_size())[dist.get_rank() :: dist.get_world_size()]
            loader = [shown(args.batch_size, 1000 * number + seed) for seed in seeds]
            costs = []
            for who, ads, offsets, clicks in Prefetching(
                loader, rows, lambda batch: {"person": batch[0], "ad": batch[1]}
            ):
                rows.zero_grad()
                dense.zero_grad()
                cost = torch.nn.functional.binary_cross_entropy_with_logits(ddp(who, ads, offsets), clicks)
                cost.backward()
                dense.step()
                rows.step()
                costs.append(cost.item())
            print(f"pass {number}, cost {np.mean(costs):.4f}", flush=True)
        rows.client.barrier()
        model.eval()
        *given, clicks = shown(2048, seed=7)
        with torch.no_grad():
            right = ((model(*given) > 0) == (clicks > 0)).float().mean().item()
        digest = sum(each.detach().double().sum().item() for each in model.top.parameters())
        print(
            f"trainer {dist.get_rank()}: {right:.3f} of 2048 unseen pages classified correctly, model {digest:.9f}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
