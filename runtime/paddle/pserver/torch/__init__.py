# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules with their rows on servers, and the optimizer that trains them. Depends on `client`.

    model = Net()                                   # contains Embedding("ads", 16) or EmbeddingBag(...)
    with ServerOptimizer(model, Adagrad(lr=0.01)) as optimizer:
        for ids, clicks in Prefetching(loader, optimizer, lambda batch: batch[0]):
            optimizer.zero_grad()
            loss(model(ids), clicks).backward()
            optimizer.step()

A lookup fetches distinct rows (n, dim) as a leaf of the graph, and `step` pushes the gradient of that leaf. Values and
gradients are those of `torch.nn.Embedding` and `EmbeddingBag`. Only importing this package imports torch.
"""

from paddle.pserver.torch.embeddings import Embedding, EmbeddingBag
from paddle.pserver.torch.optimizer import ServerOptimizer
from paddle.pserver.torch.prefetching import Prefetched, Prefetching
from paddle.pserver.torch.tables import Tables

__all__ = ["Embedding", "EmbeddingBag", "Prefetched", "Prefetching", "ServerOptimizer", "Tables"]
