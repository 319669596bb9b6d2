# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Plain JAX over several processes: each has a share of the samples, and the gradients are summed over all devices.

`jax.distributed.initialize()` finds the other processes by itself, through variables that the launcher sets.

    python paddle.py -p examples --entry=jax_allreduce.py --mode=collective --nproc_per_node=2
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from paddle_job import report

FEATURES = 8


def samples(count):
    """Return points (count, FEATURES) float32 and the values of a linear function with some noise."""
    random = np.random.default_rng(1)
    points = random.normal(size=(count, FEATURES)).astype(np.float32)
    noise = random.normal(size=count).astype(np.float32)
    return points, points @ np.arange(1, FEATURES + 1, dtype=np.float32) + 0.01 * noise


def cost(weights, points, values):
    """Return the mean squared error."""
    return jnp.mean((points @ weights - values) ** 2)


@jax.jit
def step(weights, points, values):
    """Return the weights after one step; the sum over all processes is in the gradient of the mean."""
    return weights - 0.1 * jax.grad(cost)(weights, points, values)


def main():
    """Train, and check that every process has the same weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--samples", type=int, default=6144)
    args = parser.parse_args()

    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    print(f"process {rank} of {world} owns {jax.local_device_count()} of {jax.device_count()} devices")

    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    points, values = samples(args.samples)
    own = slice(rank * args.samples // world, (rank + 1) * args.samples // world)
    points = jax.make_array_from_process_local_data(rows, points[own])
    values = jax.make_array_from_process_local_data(rows, values[own])
    weights = jax.device_put(jnp.zeros(FEATURES), NamedSharding(mesh, PartitionSpec()))
    for done in range(1, args.steps + 1):
        weights = step(weights, points, values)
        if done % 10 == 0:
            report(step=done, loss=cost(weights, points, values), samples=10 * (own.stop - own.start))

    found = np.asarray(weights)
    everyones = multihost_utils.process_allgather(found, tiled=False).reshape(world, FEATURES)
    assert (everyones == found).all(), "the processes have different weights"
    print(f"process {rank}: weights", *(f"{weight:.3f}" for weight in found))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
