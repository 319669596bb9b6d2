# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  a script talks to its user
"""An embedding of 10^11 rows with PyTorch: the rows lie on parameter servers, and only those that a step needs travel.

Who clicks on what? Ads are shown to people; both have a number out of 10^11, and no table of them would fit anywhere. A
growing table has a row for each, made when its first gradient comes. Each person and each ad likes one of a few themes,
which nobody tells: vectors of people and of ads that belong together become alike.

    python paddle.py --job_dispatch_package=examples --entry=torch_embedding.py
"""

import argparse

import numpy as np

from paddle.pserver import Client, GrowingTable, Initial, OptimizerSpec

NUMBERS = 10**11  # of people, and of ads; an id is kind * NUMBERS + number
THEMES = 8


def shown(number_of_people, number_of_ads, samples, seed):
    """Returns ids (samples, 2) int64 of a person and an ad, and whether there was a click (samples,) float32."""
    world = np.random.default_rng(11)  # the same for all trainers
    people, ads = (world.integers(0, NUMBERS, count) for count in (number_of_people, number_of_ads))
    random = np.random.default_rng(seed)
    who, what = random.integers(0, len(people), samples), random.integers(0, len(ads), samples)
    clicks = people[who] % THEMES == ads[what] % THEMES
    return np.stack((people[who], NUMBERS + ads[what]), axis=1), clicks.astype(np.float32)


def in_torch():
    """Returns what takes vectors (n, 2, width), a bias and clicks, and returns the cost, gradients, and guesses."""
    import torch  # gigabytes that no other part of the project needs
    from torch.nn.functional import binary_cross_entropy_with_logits

    def work(vectors, bias, clicks):
        vectors, bias = (torch.from_numpy(array).requires_grad_() for array in (vectors, bias))
        score = (vectors[:, 0] * vectors[:, 1]).sum(dim=1) + bias
        cost = binary_cross_entropy_with_logits(score, torch.from_numpy(clicks))
        cost.backward()
        return cost.item(), vectors.grad, bias.grad, (score > 0).numpy()

    return work


def train(client, work, args):
    """Trains; returns the share of unseen pairs that are told apart."""
    bias = np.zeros(1, np.float32)
    rows = GrowingTable(args.width, Initial("normal", spread=0.3, seed=1))
    client.create(
        {"rows": rows, "bias": bias}, OptimizerSpec("fluid_adagrad", learning_rate=args.learning_rate)
    )
    client.pull({"bias": bias})
    done = client.barriers
    for number in range(done, args.passes):
        ids, clicks = shown(args.people, args.ads, args.samples, seed=1000 * number + client.trainer_id)
        costs = []
        for at in range(0, len(ids), args.batch_size):
            batch = slice(at, at + args.batch_size)
            vectors = client.pull_rows("rows", ids[batch])  # (n, 2, width): these rows, and no others
            cost, of_vectors, of_bias, _ = work(vectors, bias, clicks[batch])
            share = 1 / client.num_trainers  # what all trainers push is summed
            client.push_pull(
                {"rows": (ids[batch], of_vectors * share), "bias": of_bias * share}, {"bias": bias}
            )
            costs.append(cost)
        client.barrier()
        print(f"pass {number}, cost {np.mean(costs):.4f}", flush=True)
    ids, clicks = shown(args.people, args.ads, 4096, seed=7)
    *_, guesses = work(client.pull_rows("rows", ids), bias, clicks)
    return np.mean(guesses == (clicks > 0))


def main():
    """Trains, and tells what was learnt."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8192, help="of each trainer in a pass")
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--people", type=int, default=500, help="that are seen at all, of 10^11")
    parser.add_argument("--ads", type=int, default=200)
    parser.add_argument("--learning_rate", type=float, default=0.2)
    args, _ = parser.parse_known_args()  # what paddle.py gave to its servers comes here too

    with Client() as client:
        right = train(client, in_torch(), args)
        print(f"trainer {client.trainer_id}: {right:.3f} of 4096 unseen pairs are told apart")


if __name__ == "__main__":
    main()
