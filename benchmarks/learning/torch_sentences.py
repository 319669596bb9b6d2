# SPDX-License-Identifier: Apache-2.0
"""The networks of `sentences` and `v2_recurrent` in PyTorch, eager: sentences are padded to the longest of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.learning import work


def network(name: str) -> Callable[[int], float]:
    """Return a function that takes one step of training and returns the cost."""
    torch.manual_seed(work.SEED)
    table = nn.Embedding(work.VOCABULARY, work.WORD_WIDTH, sparse=True)
    cost, layers = {"lstm": _lstm, "recurrent": _recurrent, "decoder": _decoder}[name](table)
    parameters = [*table.parameters(), *(each for layer in layers for each in layer.parameters())]
    optimizer = torch.optim.Adagrad(parameters, lr=work.RATE, eps=1e-6)
    batches = []
    for sentences in work.sentences(name):
        words = nn.utils.rnn.pad_sequence([torch.tensor(each) for each in sentences], batch_first=True)
        lengths = torch.tensor([len(each) for each in sentences])
        batches.append((words, torch.arange(words.shape[1])[None, :] < lengths[:, None]))

    def step(number: int) -> float:
        optimizer.zero_grad()
        value = cost(*batches[number % len(batches)])
        value.backward()
        optimizer.step()
        return float(value.item())

    return step


def _lstm(table: nn.Embedding) -> tuple[Callable[..., Any], list[nn.Module]]:
    lstm, scores = nn.LSTM(work.WORD_WIDTH, work.STATE, batch_first=True), nn.Linear(work.STATE, 2)

    def cost(words: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        hidden, _ = lstm(table(words))
        greatest = hidden.masked_fill(~there[..., None], -1e9).amax(dim=1)
        return nn.functional.cross_entropy(scores(greatest), torch.arange(len(words)) % 2)

    return cost, [lstm, scores]


def _recurrent(table: nn.Embedding) -> tuple[Callable[..., Any], list[nn.Module]]:
    of_word, of_state = nn.Linear(work.WORD_WIDTH, work.STATE), nn.Linear(work.STATE, work.STATE, bias=False)
    scores = nn.Linear(work.STATE, 2)

    def cost(words: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        vectors, state = table(words), torch.zeros(len(words), work.STATE)
        for at in range(words.shape[1]):
            following = torch.tanh(of_word(vectors[:, at]) + of_state(state))
            state = torch.where(there[:, at, None], following, state)
        return nn.functional.cross_entropy(scores(state), torch.arange(len(words)) % 2)

    return cost, [of_word, of_state, scores]


def _decoder(table: nn.Embedding) -> tuple[Callable[..., Any], list[nn.Module]]:
    first = nn.Linear(work.WORD_WIDTH, work.STATE)
    of_word, of_state = nn.Linear(work.WORD_WIDTH, work.STATE), nn.Linear(work.STATE, work.STATE, bias=False)
    scores = nn.Linear(work.STATE, work.VOCABULARY)

    def cost(words: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        vectors = table(words)
        state = torch.tanh(first(vectors[:, 0]))
        found = []
        for at in range(words.shape[1]):
            state = torch.tanh(of_word(vectors[:, at]) + of_state(state))
            found.append(scores(state))
        return nn.functional.cross_entropy(torch.stack(found, dim=1)[there], words[there])

    return cost, [first, of_word, of_state, scores]
