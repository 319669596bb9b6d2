# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""PyTorch FSDP on CPUs or GPUs: parameters, gradients and Adam's state are sharded over all processes.

python paddle.py -p examples --entry=torch_fsdp.py --mode=collective --nproc_per_node=2
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from paddle_job import report

WORDS, WIDTH, LENGTH = 64, 64, 16


def batch(samples, generator):
    """Return sequences (samples, LENGTH) whose next word is the sum of the previous two, mod WORDS."""
    words = torch.randint(WORDS, (samples, LENGTH), generator=generator)
    for at in range(2, LENGTH):
        words[:, at] = (words[:, at - 1] + words[:, at - 2]) % WORDS
    return words


class Model(nn.Module):
    """Predicts a word from the previous two."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([nn.Linear(2 * WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WORDS)])

    def forward(self, words):
        """Return logits (N, LENGTH - 2, WORDS) for the words from the third on."""
        known = self.embedding(words)
        pairs = torch.cat((known[:, :-2], known[:, 1:-1]), dim=-1)
        return self.layers[1](torch.relu(self.layers[0](pairs)))


def main():
    """Train, and save the whole model on rank 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch_size", type=int, default=64, help="per process")
    args = parser.parse_args()

    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(kind, local % torch.cuda.device_count()) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")

    torch.manual_seed(0)
    model = Model().to(device)
    mesh = init_device_mesh(kind, (world,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1 + rank)
    for step in range(1, args.steps + 1):
        words = batch(args.batch_size, generator).to(device)
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words[:, 2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step=step, loss=loss, samples=len(words))
        if rank == 0 and step % 50 == 0:
            print(f"step {step}, loss {loss.item():.4f}")

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        os.makedirs("output", exist_ok=True)
        torch.save(state, "output/model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
