# SPDX-License-Identifier: Apache-2.0
"""PyTorch Lightning: its cluster environment finds NODE_RANK, LOCAL_RANK and the master by itself.

python paddle.py -p examples --entry=lightning_fit.py --mode=collective --nproc_per_node=2
"""

import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from paddle_job import report

FEATURES = 8


class Report(lightning.Callback):
    """Reports every batch of every rank."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        """Report the finished step."""
        report(
            step=trainer.global_step, loss=outputs["loss"], samples=len(batch[0]), epoch=trainer.current_epoch
        )


class Line(lightning.LightningModule):
    """A linear function of the points."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(FEATURES, 1)

    def training_step(self, batch, batch_idx):
        """Return the mean squared error."""
        points, values = batch
        return nn.functional.mse_loss(self.line(points), values)

    def configure_optimizers(self):
        """Return plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    """Train on all nodes."""
    lightning.seed_everything(1)
    points = torch.randn(4096, FEATURES)
    values = points @ torch.arange(1.0, FEATURES + 1).unsqueeze(1) + 0.01 * torch.randn(4096, 1)
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(
        accelerator="auto",
        strategy="ddp",
        num_nodes=int(os.environ["WORLD_SIZE"]) // local,
        devices=local,
        max_epochs=5,
        callbacks=[Report()],
        default_root_dir="output",
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(Line(), DataLoader(TensorDataset(points, values), batch_size=32))


if __name__ == "__main__":
    main()
