# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Plain PyTorch DistributedDataParallel: learns which of two spirals a point belongs to; gloo on CPUs, nccl on GPUs.

It reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as scripts for torchrun do. Every job includes
`paddle_job`; under torchrun, `pip install paddle-cluster` provides it, and `report` does nothing.

    python paddle.py -p examples --entry=torch_ddp.py --mode=collective --nproc_per_node=2
"""

import argparse
import datetime
import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from paddle_job import report

WAIT = datetime.timedelta(seconds=60)


def two_spirals(samples, seed):
    """Return points (samples, 2) float32 and the spiral of each (samples, 1) float32."""
    random = torch.Generator().manual_seed(seed)
    turn = torch.rand(samples, generator=random).sqrt() * 3 * torch.pi
    arm = torch.randint(2, (samples,), generator=random)
    angle = turn + arm * torch.pi
    points = torch.stack((turn * angle.cos(), turn * angle.sin()), dim=1) / 10
    return points + 0.02 * torch.randn(points.shape, generator=random), arm.float().unsqueeze(1)


def network():
    """Return a small network from points to one logit."""
    return nn.Sequential(
        nn.Linear(2, 64),
        nn.Tanh(),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Linear(64, 32),
        nn.Tanh(),
        nn.Linear(32, 1),
    )


def digest(model):
    """Return a short digest of all parameters."""
    state = hashlib.sha256()
    for parameter in model.parameters():
        state.update(parameter.detach().cpu().numpy().tobytes())
    return state.hexdigest()[:16]


def main():
    """Train, test, and check that every process has the same model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--batch_size", type=int, default=512, help="total over all processes")
    args = parser.parse_args()

    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    use_gpu = torch.cuda.is_available()
    # A process sees either only its own GPU or all GPUs of the machine. This line works in both cases.
    device = torch.device("cuda", local % torch.cuda.device_count()) if use_gpu else torch.device("cpu")
    if use_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if use_gpu else "gloo", timeout=WAIT)
    print(f"process {rank} of {world} on {device}, {dist.get_backend()}")

    torch.manual_seed(0)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    cost = nn.BCEWithLogitsLoss()
    data = TensorDataset(*two_spirals(args.samples, seed=1))
    sampler = DistributedSampler(data, shuffle=True, seed=2)
    batches = DataLoader(data, batch_size=args.batch_size // world, sampler=sampler)
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for points, arms in batches:
            optimizer.zero_grad()
            loss = cost(model(points.to(device)), arms.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
            step += 1
            if step % 10 == 0:
                report(step=step, loss=loss, samples=10 * len(points), epoch=epoch)
        dist.all_reduce(total)
        if rank == 0 and epoch % 10 == 9:
            print(f"epoch {epoch}, cost {total.item() / len(batches) / world:.4f}")

    points, arms = two_spirals(2000, seed=3)
    with torch.no_grad():
        right = ((model(points.to(device)) > 0) == (arms.to(device) > 0)).float().mean().item()
    print(f"process {rank}: test accuracy {right:.3f}, model {digest(model)}")
    if rank == 0:
        os.makedirs("output", exist_ok=True)
        torch.save(model.module.state_dict(), "output/model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
