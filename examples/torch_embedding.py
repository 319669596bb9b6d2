# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""An embedding of 10^11 rows with PyTorch: the rows are on parameter servers, which send only those needed for a step.

Predicts which person clicks on which ad. People and ads have numbers below 10^11, and no machine could store a table
of all of them. A growing table creates a row when its number first gets a gradient. Each person and each ad belongs to
one of a few hidden themes, and vectors of people and ads with the same theme become similar.

    python paddle.py -p examples --entry=torch_embedding.py
"""

import argparse

import numpy as np
import torch

from paddle.pserver import Adagrad, RowWiseAdagrad
from paddle.pserver.torch import Embedding, Prefetching, ServerOptimizer

NUMBERS = 10**11  # possible numbers of people and of ads; an ID is kind * NUMBERS + number
THEMES = 8


def shown(number_of_people, number_of_ads, samples, seed):
    """Return a data set: IDs (samples, 2) int64 of a person and an ad, and clicks (samples,) float32."""
    world = np.random.default_rng(11)  # the same for all trainers
    people, ads = (world.integers(0, NUMBERS, count) for count in (number_of_people, number_of_ads))
    random = np.random.default_rng(seed)
    who, what = random.integers(0, len(people), samples), random.integers(0, len(ads), samples)
    clicks = people[who] % THEMES == ads[what] % THEMES
    ids = np.stack((people[who], NUMBERS + ads[what]), axis=1)
    return torch.utils.data.TensorDataset(torch.from_numpy(ids), torch.from_numpy(clicks.astype(np.float32)))


class Clicks(torch.nn.Module):
    """Scores pairs of a person and an ad, (n, 2) int64 -> (n,) float32."""

    def __init__(self, args):
        super().__init__()
        rule = RowWiseAdagrad(lr=args.learning_rate)
        self.rows = Embedding("rows", args.width, std=0.3, optimizer=rule)
        self.bias = torch.nn.Parameter(torch.zeros(1))

    def forward(self, ids):
        """Return a score for each pair; above 0 is a click."""
        person, ad = self.rows(ids).unbind(dim=1)
        return (person * ad).sum(dim=1) + self.bias


def train(args, client=None):
    """Train, and return the fraction of unseen pairs that are classified correctly."""
    model = Clicks(args)
    with ServerOptimizer(model, Adagrad(lr=args.learning_rate), client=client) as optimizer:
        client = optimizer.client
        for number in range(client.barriers, args.passes):
            samples = shown(args.people, args.ads, args.samples, seed=1000 * number + client.trainer_id)
            loader = torch.utils.data.DataLoader(samples, args.batch_size)
            costs = []
            for ids, clicks in Prefetching(loader, optimizer, lambda batch: batch[0]):
                optimizer.zero_grad()
                cost = torch.nn.functional.binary_cross_entropy_with_logits(model(ids), clicks)
                cost.backward()
                optimizer.step()  # with the mean of all trainers' gradients
                costs.append(cost.item())
            client.barrier()
            print(f"pass {number}, cost {np.mean(costs):.4f}", flush=True)
        model.eval()
        ids, clicks = shown(args.people, args.ads, 4096, seed=7).tensors
        right = ((model(ids) > 0) == (clicks > 0)).float().mean().item()
        print(f"trainer {client.trainer_id}: {right:.3f} of 4096 unseen pairs classified correctly")
    return right


def main():
    """Train, and print what was learned."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8192, help="per trainer and pass")
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument(
        "--people", type=int, default=500, help="number of distinct ids that occur, out of 10^11"
    )
    parser.add_argument("--ads", type=int, default=200)
    parser.add_argument("--learning_rate", type=float, default=0.2)
    args, _ = parser.parse_known_args()  # receives the servers' options from paddle.py too
    train(args)


if __name__ == "__main__":
    main()
