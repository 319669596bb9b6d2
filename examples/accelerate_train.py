# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: T201  scripts print their results
"""Hugging Face accelerate: the Accelerator reads torchrun's variables; on CPUs it needs ACCELERATE_USE_CPU=true.

    python paddle.py -p examples --entry=accelerate_train.py --mode=collective --nproc_per_node=2 \\
        --env=ACCELERATE_USE_CPU=true
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from paddle_job import report

FEATURES = 8


def main():
    """Train a linear function on all nodes."""
    set_seed(1)
    points = torch.randn(4096, FEATURES)
    values = points @ torch.arange(1.0, FEATURES + 1).unsqueeze(1) + 0.01 * torch.randn(4096, 1)
    accelerator = Accelerator()
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = DataLoader(TensorDataset(points, values), batch_size=32, shuffle=True)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    print(f"process {accelerator.process_index} of {accelerator.num_processes} on {accelerator.device}")
    step = 0
    for epoch in range(5):
        for some, wanted in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(some), wanted)
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            report(step=step, loss=loss, samples=len(some), epoch=epoch)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.save(accelerator.unwrap_model(model).state_dict(), "output/model.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
