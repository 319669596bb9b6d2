# SPDX-License-Identifier: Apache-2.0
"""Embeddings on parameter servers against `torch.nn.Embedding` and `EmbeddingBag` with the same optimizer."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.pserver import SGD, Adagrad, Client, GrowingTable, Initial
from tests.runtime.pserver.neutral_job import client, run, server

torch = pytest.importorskip(
    "torch", reason="torch is not installed here: it is gigabytes; run this file by a Python that has it"
)

DIM, HEIGHT, STEPS, BATCH = 5, 40, 4, 12
START = Initial("normal", spread=0.5)
OPTIMIZER = {"lr": 0.1, "eps": 1e-8}


def tables_of(*names: str) -> dict[str, GrowingTable]:
    return {name: GrowingTable(DIM, START) for name in names}


def weight() -> Any:
    return torch.from_numpy(START.rows(np.arange(HEIGHT), DIM))


def bags(step: int, trainer: int = 0) -> tuple[Any, Any, Any, Any]:
    """Values, offsets, weights and targets of bags, one of them empty."""
    rng = np.random.default_rng((step, trainer))
    lengths = rng.integers(0, 5, BATCH)
    lengths[3] = 0
    ids = torch.from_numpy(rng.integers(0, HEIGHT, lengths.sum()))
    offsets = torch.from_numpy(np.cumsum(lengths) - lengths)
    weights = torch.from_numpy(rng.random(len(ids)).astype(np.float32))
    return ids, offsets, weights, torch.from_numpy(rng.standard_normal((BATCH, 1)).astype(np.float32))


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, bag: Any) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.bag, self.top = bag, torch.nn.Linear(DIM, 1)

    def forward(self, *given: Any, **more: Any) -> Any:
        return self.top(torch.tanh(self.bag(*given, **more)))


def cost(out: Any, targets: Any) -> Any:
    return ((out - targets) ** 2).mean()


def module() -> Any:
    from paddle.pserver import torch as found

    return found


def trained_by_torch(bag: Any, forward: Any, trainers: int = 1) -> tuple[list[float], Net]:
    net = Net(bag)
    with torch.no_grad():
        net.bag.weight.copy_(weight())
    optimizer = torch.optim.Adagrad(net.parameters(), **OPTIMIZER)
    costs = []
    for step in range(STEPS):
        optimizer.zero_grad()
        parts = [cost(forward(net, step, trainer), bags(step, trainer)[3]) for trainer in range(trainers)]
        (sum(parts) / trainers).backward()
        costs.append(parts[0].item())
        optimizer.step()
    return costs, net


def trained_on_servers(
    each: Client, bag: Any, forward: Any, trainer: int = 0
) -> tuple[list[float], Any, Any]:
    net = Net(bag)
    optimizer = module().ServerOptimizer(net, Adagrad(**OPTIMIZER), client=each)
    costs = []
    for step in range(STEPS):
        loss = cost(forward(net, step, trainer), bags(step, trainer)[3])
        optimizer.zero_grad()  # after the lookups: their rows stay in the step
        loss.backward()
        costs.append(loss.item())
        optimizer.step()
    rows = each.pull_rows("t", np.arange(HEIGHT))
    return costs, net.top.weight.detach().clone(), rows


def assert_same(found: tuple[list[float], Any, Any], expected: tuple[list[float], Net]) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
    top = expected[1].top.weight.detach().numpy()
    np.testing.assert_allclose(found[1].numpy(), top, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[2], expected[1].bag.weight.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weighted"])
def test_bags_train_as_those_of_torch(mode: str) -> None:
    def forward(net: Net, step: int, trainer: int) -> Any:
        ids, offsets, weights, _ = bags(step, trainer)
        return net(ids, offsets, per_sample_weights=weights if mode == "weighted" else None)

    named = "sum" if mode == "weighted" else mode
    expected = trained_by_torch(torch.nn.EmbeddingBag(HEIGHT, DIM, mode=named), forward)
    bag = module().EmbeddingBag("t", DIM, initial=START, mode=named)
    with server(1) as process, client(process, 0, 1) as each:
        assert_same(trained_on_servers(each, bag, forward), expected)


def test_two_trainers_train_as_one_process_with_the_mean_of_their_costs() -> None:
    def forward(net: Net, step: int, trainer: int) -> Any:
        ids = bags(step, trainer)[0][:BATCH]
        return net(ids.reshape(len(ids), 1))[:, 0]

    def padded(net: Net, step: int, trainer: int) -> Any:
        out = forward(net, step, trainer)
        return torch.nn.functional.pad(out, (0, 0, 0, BATCH - len(out)))

    expected = trained_by_torch(torch.nn.Embedding(HEIGHT, DIM), padded, 2)
    with server(2) as process:
        found = run(
            process,
            2,
            lambda each, i: trained_on_servers(
                each, module().Embedding("t", dim=DIM, initial=START), padded, i
            ),
        )
    assert_same(found[0], expected)
    np.testing.assert_array_equal(found[0][2].view(np.uint32), found[1][2].view(np.uint32))


def test_a_loader_that_prefetches_changes_no_bit_and_brings_every_batch_but_the_first() -> None:
    loader = [bags(step) for step in range(STEPS)]

    def train(each: Client, prefetches: bool) -> tuple[Any, list[bool]]:
        net = Net(module().EmbeddingBag("t", DIM, std=0.5, mode="sum"))
        optimizer = module().ServerOptimizer(net, Adagrad(**OPTIMIZER), client=each)
        batches = module().Prefetching(loader, optimizer, lambda batch: (batch[0], batch[1]))
        assert len(batches) == STEPS
        came = []
        for ids, offsets, _, targets in batches if prefetches else loader:
            cost(net(ids, offsets), targets).backward()
            handle = optimizer.prefetch(ids)
            optimizer.step()
            came.append(handle.is_here)
            optimizer.zero_grad()
        return each.pull_rows("t", np.arange(HEIGHT)), came

    found = []
    for prefetches in (True, False):
        with server(1) as process, client(process, 0, 1) as each:
            found.append(train(each, prefetches))
    np.testing.assert_array_equal(found[0][0].view(np.uint32), found[1][0].view(np.uint32))
    assert found[1][1] == [True] * STEPS


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", ["jagged", "strided", "pair"])
def test_ragged_ids_in_every_form_give_the_same_vectors(layout: str) -> None:
    sequences = [torch.tensor([3, 9, 3]), torch.tensor([7]), torch.tensor([1, 2, 3, 4])]
    whole, table = torch.cat(sequences), weight()
    offsets = torch.tensor([0, 3, 4])
    bag, rows = (
        module().EmbeddingBag("t", DIM, initial=START, mode="sum"),
        module().Embedding("t", DIM, initial=START),
    )
    net = torch.nn.ModuleList([bag, rows])
    given: Any = (whole, offsets)
    if layout != "pair":
        given = torch.nested.nested_tensor(sequences, layout=getattr(torch, layout))
    with server(1) as process, client(process, 0, 1) as each:
        optimizer = module().ServerOptimizer(net, SGD(lr=1.0), client=each)
        found = bag(given)
        torch.testing.assert_close(found, torch.stack([table[ids].sum(dim=0) for ids in sequences]))
        if layout != "pair":
            lookup = rows(given)
            torch.testing.assert_close(lookup.values(), table[whole])
            lookup.values().sum().backward()
        found.sum().backward()
        optimizer.step()  # two modules of one table: their gradients are added
        times = 1.0 if layout == "pair" else 2.0
        counts = torch.bincount(whole, minlength=HEIGHT)[:, None]
        after = torch.from_numpy(each.pull_rows("t", np.arange(HEIGHT)))
        torch.testing.assert_close(after, table - times * counts)


def test_several_tables_one_without_a_gradient_and_evaluation_change_what_they_should() -> None:
    both = module().Embedding(tables_of("user", "ad"))
    ids = {"user": torch.tensor([[1, 2], [2, 2**62]]), "ad": torch.tensor([[5], [6]], dtype=torch.int32)}
    with server(1, "--ports_num=2") as process, client(process, 0, 1) as each:
        optimizer = module().ServerOptimizer(both, SGD(lr=1.0), client=each)
        found = both(ids)
        assert {name: tuple(out.shape) for name, out in found.items()} == {
            "user": (2, 2, DIM),
            "ad": (2, 1, DIM),
        }
        found["user"].sum().backward()
        before = {name: each.pull_rows(name, ids[name]) for name in ids}
        both.eval()
        both(ids)["ad"].sum()
        both.train()
        with torch.no_grad():
            assert not both(ids)["ad"].requires_grad
        optimizer.step()
        times = np.array([[1.0, 2.0], [2.0, 1.0]], np.float32)[..., None]
        np.testing.assert_allclose(each.pull_rows("user", ids["user"]), before["user"] - times, rtol=1e-6)
        np.testing.assert_array_equal(each.pull_rows("ad", ids["ad"]), before["ad"])


def test_a_dense_part_that_is_left_to_torch_stays_there() -> None:
    net = Net(module().Embedding("t", DIM))
    with server(1) as process, client(process, 0, 1) as each:
        optimizer = module().ServerOptimizer(net, SGD(lr=1.0), client=each, dense=False)
        net(torch.tensor([1, 1, 3])).sum().backward()
        before = net.top.weight.detach().clone()
        optimizer.step()
        torch.testing.assert_close(net.top.weight.detach(), before)
        assert each.growing == ("t",)


def test_what_cannot_be_is_refused_by_name() -> None:
    embedding = module().Embedding("t", DIM)
    with pytest.raises(ConfigError, match="Embedding of t has no servers yet: create ServerOptimizer"):
        embedding(torch.tensor([1]))
    with pytest.raises(ConfigError, match="unknown argument 'stdev': did you mean std"):
        module().Embedding("t", DIM, stdev=0.1)
    with pytest.raises(ConfigError, match="mode: expected one of sum, mean, max, got 'min'"):
        module().EmbeddingBag("t", DIM, mode="min")
    other = torch.nn.ModuleList([embedding, module().EmbeddingBag("t", DIM + 1)])
    with pytest.raises(ConfigError, match=r"table t: .*GrowingTable"):
        module().ServerOptimizer(other, SGD(), client=object())
    both = module().Embedding(tables_of("a", "b"))
    with pytest.raises(ConfigError, match=r"expected ids for the tables a, b, got \['c'\]"):
        both({"c": torch.tensor([1])})
    for wrong, got in (([1], "list"), (np.array([1]), "ndarray"), ((torch.tensor([1]), [0]), "list")):
        with pytest.raises(ConfigError, match=f"ids: expected a tensor of int64 or int32, got {got}"):
            embedding(wrong)


def test_a_module_with_servers_is_copied_without_them() -> None:
    net = Net(module().EmbeddingBag("t", DIM, mode="sum"))
    with server(1) as process, client(process, 0, 1) as each:
        optimizer = module().ServerOptimizer(net, SGD(), client=each)
        ids = torch.tensor([[1, 2]])
        copied = copy.deepcopy(net)
        assert copied.bag.tables == net.bag.tables
        with pytest.raises(ConfigError, match="EmbeddingBag of t has no servers yet"):
            copied(ids)
        net(ids).sum().backward()
        optimizer.step()
