# SPDX-License-Identifier: Apache-2.0
"""The costs and gradients of `ctc` in PyTorch: sequences are padded to the longest one of their batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.learning import work


def network() -> Callable[[int], float]:
    """Return a function that computes the mean cost of a batch and the gradient of its scores."""
    batches = []
    for batch in work.heard():
        scores = nn.utils.rnn.pad_sequence([torch.tensor(each) for each, _ in batch])
        labels = torch.tensor([each for _, each in batch])
        steps = torch.tensor([len(each) for each, _ in batch])
        batches.append((scores.requires_grad_(), labels, steps))

    def step(number: int) -> float:
        scores, labels, steps = batches[number % len(batches)]
        scores.grad = None
        lengths = torch.full((len(labels),), labels.shape[1])
        costs = nn.functional.ctc_loss(scores.log_softmax(2), labels, steps, lengths, reduction="none")
        cost = costs.mean()
        cost.backward()
        return float(cost.item())

    return step
