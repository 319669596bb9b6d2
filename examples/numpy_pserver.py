# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Uses a parameter server from plain numpy: words that occur together get similar vectors.

Each process has a share of the pairs. The table grows with the number of distinct words. A step fetches the rows of its
words and sends their gradients. The answer to this push contains the only dense tensor, a bias.

    python paddle.py -p examples --entry=numpy_pserver.py

Without paddle.py, with a separate server (`paddle pserver --port=7164 --wire=plain`):

    PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:7164 PADDLE_WIRE=plain python examples/numpy_pserver.py
"""

import argparse
import os

import numpy as np

from paddle.pserver import Client, GrowingTable, Initial, OptimizerSpec


def make_pairs(samples, groups, seed):
    """Return word IDs (samples, 2) int64, arbitrary numbers, and whether both are in one group (samples,) float32."""
    random = np.random.default_rng(seed)
    group = random.integers(0, groups, (samples, 2))
    group[::2, 1] = group[::2, 0]  # half of the pairs belong together
    words = group * 1_000_003 + random.integers(0, 20, (samples, 2)) - 2**40
    return words, (group[:, 0] == group[:, 1]).astype(np.float32)


def gradients(vectors, bias, same):
    """Return the mean cost of pairs (n, 2, width), and the gradients of vectors and bias."""
    left, right = vectors[:, 0], vectors[:, 1]
    score = (left * right).sum(axis=1) + bias[0]
    likely = 1 / (1 + np.exp(-score))
    cost = np.mean(np.logaddexp(0, score) - same * score)
    slope = (likely - same).astype(np.float32) / len(same)
    return cost, np.stack((slope[:, None] * right, slope[:, None] * left), axis=1), slope.sum(keepdims=True)


def main():
    """Train, and print how many unseen pairs are classified correctly."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=12)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--width", type=int, default=16)
    args = parser.parse_args()

    adagrad = OptimizerSpec("fluid_adagrad", learning_rate=0.5)
    with Client() as client:
        bias = np.zeros(1, np.float32)
        table = GrowingTable(args.width, Initial("normal", spread=0.1, seed=1))
        client.create({"vectors": table, "bias": bias}, adagrad)
        client.pull({"bias": bias})
        words, same = make_pairs(args.samples, groups=10, seed=0)
        words, same = (
            words[client.trainer_id :: client.num_trainers],
            same[client.trainer_id :: client.num_trainers],
        )
        for number in range(args.passes):
            costs = []
            for start in range(0, len(words), args.batch_size):
                batch = slice(start, start + args.batch_size)
                vectors = client.pull_rows("vectors", words[batch])
                cost, of_vectors, of_bias = gradients(vectors, bias, same[batch])
                client.push_pull({"vectors": (words[batch], of_vectors), "bias": of_bias}, {"bias": bias})
                costs.append(cost)
            client.barrier()  # shares can differ in size; at the end of a pass, trainers wait for each other
            if client.trainer_id == 0:
                print(f"pass {number}, cost {np.mean(costs):.4f}")

        client.pull({"bias": bias})
        words, same = make_pairs(2000, groups=10, seed=9)
        left, right = np.moveaxis(client.pull_rows("vectors", words), 1, 0)
        right_ones = np.mean(((left * right).sum(axis=1) + bias[0] > 0) == (same > 0))
        print(
            f"trainer {client.trainer_id} of {client.num_trainers}: {right_ones:.3f} of unseen pairs correct"
        )
        if client.trainer_id == 0:
            os.makedirs("output", exist_ok=True)
            known = np.unique(words)
            np.savez("output/vectors.npz", words=known, vectors=client.pull_rows("vectors", known))


if __name__ == "__main__":
    main()
