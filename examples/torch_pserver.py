# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""A PyTorch model whose parameters and optimizer are on parameter servers: learns which of two spirals a point is on.

PyTorch only computes gradients; they are sent to the servers, and the values are returned into the same tensors, in
place. Only `spirals_in_torch` uses PyTorch: `train` accepts tensors of any library that supports DLPack.

    python paddle.py -p examples --entry=torch_pserver.py
"""

import argparse
import os

from paddle.pserver import Client, OptimizerSpec


def train(client, parameters, gradients_of, batches, learning_rate=0.01):
    """Train tensors in place.

    Args:
        client: a paddle.pserver.Client.
        parameters: float32 tensors by name; all trainers start with the values of the first one to connect.
        gradients_of: takes a batch, returns the mean cost and the gradients by name. The pushes of all trainers are
            summed, so each trainer returns its share of the mean.
        batches: this trainer's batches; other trainers may have more or fewer.
        learning_rate: learning rate of Adam.

    Returns:
        The mean cost of this trainer's batches.
    """
    client.create(parameters, OptimizerSpec("fluid_adam", learning_rate=learning_rate))
    client.pull(parameters)
    costs = []
    for batch in batches:
        cost, gradients = gradients_of(batch)
        client.push_pull(gradients, parameters)
        costs.append(cost)
    client.barrier()
    client.pull(parameters)
    return sum(costs) / max(len(costs), 1)


def spirals_in_torch(rank, world, epochs, batch_size):
    """Return the parameters, the gradient function, this trainer's batches, and functions to test and to save."""
    import torch  # imported only here, because it takes gigabytes
    from torch import nn

    def spirals(samples, seed):
        random = torch.Generator().manual_seed(seed)
        turn = torch.rand(samples, generator=random).sqrt() * 3 * torch.pi
        arm = torch.randint(2, (samples,), generator=random)
        angle = turn + arm * torch.pi
        points = torch.stack((turn * angle.cos(), turn * angle.sin()), dim=1) / 10
        return points + 0.02 * torch.randn(points.shape, generator=random), arm.float().unsqueeze(1)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layers = [nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)]
    model = nn.Sequential(*layers).to(device)
    parameters = dict(model.named_parameters())
    cost_of = nn.BCEWithLogitsLoss()

    def gradients_of(batch):
        points, arms = (tensor.to(device) for tensor in batch)
        model.zero_grad()
        cost = cost_of(model(points), arms)
        (cost / world).backward()
        return cost.item(), {name: parameter.grad for name, parameter in parameters.items()}

    def batches():
        points, arms = (tensor[rank::world] for tensor in spirals(8192, seed=1))
        for epoch in range(epochs):
            order = torch.randperm(len(points), generator=torch.Generator().manual_seed(epoch))
            yield from zip(points[order].split(batch_size), arms[order].split(batch_size), strict=True)

    def test():
        points, arms = (tensor.to(device) for tensor in spirals(2000, seed=3))
        with torch.no_grad():
            return ((model(points) > 0) == (arms > 0)).float().mean().item()

    def save(path):
        torch.save(model.state_dict(), path)

    return parameters, gradients_of, batches(), test, save


def main():
    """Train, test and save the model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch_size", type=int, default=256, help="per process")
    args = parser.parse_args()

    with Client() as client:
        rank, world = client.trainer_id, client.num_trainers
        parameters, gradients_of, batches, test, save = spirals_in_torch(
            rank, world, args.epochs, args.batch_size
        )
        cost = train(client, parameters, gradients_of, batches)
        print(f"trainer {rank} of {world}: mean cost {cost:.4f}, test accuracy {test():.3f}")
        if rank == 0:
            os.makedirs("output", exist_ok=True)
            save("output/model.pt")


if __name__ == "__main__":
    main()
