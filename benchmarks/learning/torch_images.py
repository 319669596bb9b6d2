# SPDX-License-Identifier: Apache-2.0
"""The networks of `images` in PyTorch, eager or by torch.compile."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.learning import work


def network(name: str, compiled: bool = False) -> Callable[[int], float]:
    """Return a function that takes one step of training and returns the cost."""
    torch.manual_seed(work.SEED)
    batch, shape = work.PICTURES[name]
    model = {"lenet": _lenet, "vgg16": _vgg16, "resnet20": _resnet20}[name]()
    forward = torch.compile(model) if compiled else model
    images, label = torch.randn(batch, *shape), torch.randint(0, 10, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=work.PICTURE_RATE, momentum=0.9)

    def step(number: int) -> float:
        optimizer.zero_grad()
        cost = nn.functional.cross_entropy(forward(images), label)
        cost.backward()
        optimizer.step()
        return float(cost.item())

    return step


def _lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 10),
    )


def _normed(channels: int, filters: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, filters, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(filters),
    ]


def _vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [*_normed(channels, filters, 3), nn.ReLU(inplace=True)]
            channels = filters
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512, 512), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Linear(512, 10))


def _block(channels: int, filters: int, stride: int) -> nn.Module:
    """Return two convolutions with a shortcut."""
    block = nn.Module()
    block.body = nn.Sequential(
        *_normed(channels, filters, 3, stride), nn.ReLU(inplace=True), *_normed(filters, filters, 3)
    )
    block.short = nn.Sequential(*_normed(channels, filters, 1, stride)) if stride > 1 else nn.Identity()
    block.forward = lambda x: torch.relu(block.body(x) + block.short(x))
    return block


def _resnet20() -> nn.Module:
    blocks: list[nn.Module] = []
    channels = 16
    for filters in (16, 32, 64):
        for block in range(3):
            blocks.append(_block(channels, filters, 2 if filters > 16 and not block else 1))
            channels = filters
    first = [*_normed(3, 16, 3), nn.ReLU(inplace=True)]
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
