# SPDX-License-Identifier: Apache-2.0
"""What PyTorch users do with embeddings beside plain lookups: padding, jagged tensors, saving, AMP, forks, clipping."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError
from paddle.pserver import SGD, Client, GrowingTable, Initial
from tests.runtime.pserver.neutral_job import client, server

torch = pytest.importorskip(
    "torch", reason="torch is not installed here: it is gigabytes; run this file by a Python that has it"
)

DIM, HEIGHT = 4, 12
START = Initial("normal", spread=0.5)
EMPTY = torch.zeros(0, dtype=torch.int64)


def module() -> Any:
    from paddle.pserver import torch as found

    return found


def weight() -> Any:
    return torch.from_numpy(START.rows(np.arange(HEIGHT), DIM))


def table() -> GrowingTable:
    return GrowingTable(DIM, START)


@contextmanager
def trained(*modules: Any, **options: Any) -> Iterator[tuple[Any, Client]]:
    """Modules with servers, and SGD of rate 1: a row minus its gradient is what comes back."""
    with server(1) as process, client(process, 0, 1) as each:
        yield (
            module().ServerOptimizer(torch.nn.ModuleList(modules), SGD(lr=1.0), client=each, **options),
            each,
        )


def gradient_of(each: Client, name: str = "t") -> Any:
    """What steps of rate 1 took from the table's first rows."""
    return weight() - torch.from_numpy(each.pull_rows(name, np.arange(HEIGHT)))


class Jagged:
    """What torchrec's JaggedTensor shows of itself."""

    def __init__(self, values: Any, lengths: list[int], weights: Any = None) -> None:
        self._values, self._weights = values, weights
        self._offsets = torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0))

    def values(self) -> Any:
        return self._values

    def offsets(self) -> Any:
        return self._offsets

    def weights_or_none(self) -> Any:
        return self._weights


class Keyed:
    """What torchrec's KeyedJaggedTensor shows of itself."""

    def __init__(self, **jagged: Jagged) -> None:
        self._jagged = jagged

    def to_dict(self) -> dict[str, Jagged]:
        return self._jagged


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_padding_and_empty_bags_give_what_those_of_torch_do() -> None:
    ids = torch.tensor([[3, 0, 3, 5], [0, 0, 0, 0], [7, 1, 0, 3]])
    scale = torch.arange(3 * 4 * DIM, dtype=torch.float32).reshape(3, 4, DIM)
    ours = [
        module().EmbeddingBag("t", DIM, mode=mode, initial=START, padding_idx=0)
        for mode in ("sum", "mean", "max")
    ]
    rows = module().Embedding("t", DIM, initial=START, padding_idx=0)
    with trained(*ours, rows) as (optimizer, each):
        expected = weight().requires_grad_()
        costs = []
        for bag in ours:
            found = bag(ids)
            theirs = torch.nn.functional.embedding_bag(ids, expected, mode=bag.mode, padding_idx=0)
            torch.testing.assert_close(found, theirs)
            costs.append((found * scale[:, 0]).sum())
            (theirs * scale[:, 0]).sum().backward()
            assert bag(EMPTY.reshape(3, 0)).tolist() == [[0.0] * DIM] * 3
            assert bag(EMPTY, EMPTY).shape == (0, DIM)
        hidden = torch.where(
            (ids == 0)[..., None], 0.0, torch.nn.functional.embedding(ids, expected, padding_idx=0)
        )
        found = rows(ids)
        torch.testing.assert_close(found, hidden)
        assert rows(EMPTY.reshape(3, 0)).shape == (3, 0, DIM)
        (hidden * scale).sum().backward()
        sum([*costs, (found * scale).sum()]).backward()
        optimizer.step()
        torch.testing.assert_close(gradient_of(each), expected.grad)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_weights_of_a_bag_get_the_gradient_that_torch_gives_them_in_every_form_of_ids() -> None:
    values, lengths = torch.tensor([3, 9, 3, 2, 1]), [2, 0, 3]
    offsets = torch.tensor([0, 2, 2, 5])
    given = torch.tensor([0.5, -1.0, 2.0, 3.0, 0.25])
    bag = module().EmbeddingBag({"t": table(), "u": table()}, mode="sum", padding_idx=9)
    one = module().EmbeddingBag("t", DIM, mode="sum", initial=START, padding_idx=9, include_last_offset=True)
    expected = given.clone().requires_grad_()
    whole = torch.nn.functional.embedding_bag(
        values,
        weight(),
        offsets,
        mode="sum",
        per_sample_weights=expected,
        include_last_offset=True,
        padding_idx=9,
    )
    whole.square().sum().backward()
    with trained(bag, one):
        weights = [given.clone().requires_grad_() for _ in range(3)]
        nested = torch.nested.nested_tensor_from_jagged(values, offsets)
        jagged = Jagged(values, lengths, weights[0])
        found = [
            bag(Keyed(t=jagged, u=jagged, others=jagged))["t"],
            one(values, offsets, per_sample_weights=weights[1]),
            one(nested, per_sample_weights=torch.nested.nested_tensor_from_jagged(weights[2], offsets)),
        ]
        for out in found:
            torch.testing.assert_close(out, whole)
            out.square().sum().backward()
        for each in weights:
            torch.testing.assert_close(each.grad, expected.grad)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = one(values, offsets, per_sample_weights=given.to(torch.bfloat16))
            assert out.dtype == torch.float32
            assert torch.nn.functional.linear(out, torch.ones(1, DIM)).dtype == torch.bfloat16
        with pytest.raises(ConfigError, match="none of the keys of the jagged tensor is a table: t, u"):
            bag(Keyed(x=jagged))
        with pytest.raises(ConfigError, match="per_sample_weights: expected one for each of 5 ids, got 2"):
            one(values, offsets, per_sample_weights=given[:2])
        with pytest.raises(
            ConfigError, match=r"expected shape \(bags, length\), or offsets as well, got \(5,\)"
        ):
            one(values)


def test_gradients_of_several_passes_and_modules_are_added_and_discarded_as_those_of_torch() -> None:
    first, second = (module().Embedding("t", DIM, initial=START) for _ in range(2))
    with trained(first, second) as (optimizer, each):
        first(torch.tensor([1, 2])).sum().backward()
        optimizer.zero_grad()  # of a step that is skipped
        first(torch.tensor([3]))  # no backward
        loss = first(torch.tensor([1, 1, 5])).sum() + second(torch.tensor([1])).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        second(torch.tensor([1, 4])).sum().backward()
        assert len(optimizer.param_groups[0]["params"]) == 3
        optimizer.step()
        counts = torch.zeros(HEIGHT)
        counts[[1, 4, 5]] = torch.tensor([7.0, 1.0, 2.0])
        torch.testing.assert_close(gradient_of(each), counts[:, None].expand(HEIGHT, DIM))
        (second(torch.tensor([2, 3])).sum() * 100).backward()
        parameters = optimizer.param_groups[0]["params"]
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        assert norm == pytest.approx(100 * (2 * DIM) ** 0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        optimizer.zero_grad()
        scaler.scale(second(torch.tensor([2])).sum()).backward()
        scaler.step(optimizer)
        torch.testing.assert_close(gradient_of(each)[2], torch.ones(DIM))


def test_prefetching_deep_and_for_several_passes_a_step_changes_no_bit_and_asks_for_nothing_again() -> None:
    batches = [torch.from_numpy(np.random.default_rng(i).integers(0, HEIGHT, 9)) for i in range(11)]

    def train(depth: int, each_step: int) -> tuple[Any, list[bool]]:
        rows = module().Embedding("t", DIM, std=0.5, padding_idx=1)
        with trained(rows) as (optimizer, each):
            came: list[bool] = []
            prefetch, handles = optimizer.prefetch, []
            optimizer.prefetch = lambda ids, steps: handles.append(prefetch(ids, steps))
            loader = module().Prefetching(
                batches, optimizer, lambda batch: batch, depth=depth, batches_per_step=each_step
            )
            for number, ids in enumerate(loader):
                came.append(depth > 0 and number >= each_step and handles[number - each_step].is_here)
                rows(ids).square().sum().backward()
                rows(ids[:3]).sum().backward()  # rows that another lookup has
                if number % each_step == each_step - 1:
                    optimizer.step()
            optimizer.zero_grad()
            return each.pull_rows("t", np.arange(HEIGHT)), came

    for each_step in (1, 3):
        plain, _ = train(0, each_step)
        for depth in (1, 3):
            found, came = train(depth, each_step)
            np.testing.assert_array_equal(found.view(np.uint32), plain.view(np.uint32))
            assert came == [False] * each_step + [True] * (len(batches) - each_step)


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, dim: int = DIM) -> None:
        super().__init__()
        self.rows, self.top = module().Embedding("t", dim), torch.nn.Linear(dim, 1)


def test_a_state_dict_names_the_table_and_loses_nothing_silently() -> None:
    net = Net()
    state = net.state_dict()
    assert sorted(state) == ["rows._extra_state", "top.bias", "top.weight"]
    assert state["rows._extra_state"]["tables"] == {"t": DIM}
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    other = Net()
    other.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(other.top.weight, net.top.weight)
    with pytest.raises(ConfigError, match=r"expected the tables {'t': 5}, got {'t': 4}"):
        Net(5).load_state_dict(state)
    plain = {**state, "rows.weight": weight()}
    with pytest.raises(
        RuntimeError, match=r"rows\.weight: rows of t are on the parameter servers: import them"
    ):
        other.load_state_dict(plain)
    assert [name for name, _ in net.named_parameters()] == ["top.weight", "top.bias"]
    net.to(torch.float32).train().eval()
    with trained(net) as (optimizer, _):
        file = io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        assert torch.load(file, weights_only=False).rows.tables == net.rows.tables
        with pytest.raises(ConfigError, match="ServerOptimizer has connections and cannot be copied"):
            pickle.dumps(optimizer)
        with pytest.raises(ConfigError, match="load_state_dict: the servers hold"):
            net.load_state_dict(state)
    with trained(net, dense=False):
        net.load_state_dict(state)


class OfWorker(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """Its workers say which samples they made, and whether the trainer's model works there."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[int, str]:
        try:
            self.model(torch.tensor([index]))
        except (ConfigError, PserverError) as error:
            return index, str(error)
        return index, ""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_workers_of_a_loader_leave_the_trainers_connections_alone() -> None:
    rows = module().Embedding("t", DIM, initial=START)
    with trained(rows) as (optimizer, each):
        loader = torch.utils.data.DataLoader(
            OfWorker(rows), num_workers=1, batch_size=2, multiprocessing_context="fork"
        )
        said = []
        for ids, texts in module().Prefetching(loader, optimizer, lambda batch: batch[0]):
            rows(ids).sum().backward()
            optimizer.step()
            said += texts
        assert [text for text in said if "create a new client" not in text] == []
        _, spawned = pickle.loads(pickle.dumps(OfWorker(rows)))[0]
        assert "Embedding of t has no servers yet" in spawned
        pid = os.fork()
        if not pid:  # a child that ends leaves the job to its parent
            each.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        torch.testing.assert_close(gradient_of(each)[:4], torch.ones(4, DIM))


def test_a_forgotten_step_is_told() -> None:
    rows = module().Embedding("t", DIM)
    with trained(rows) as (optimizer, _):
        with (
            pytest.warns(RuntimeWarning, match=r"gradients of 1 lookups .*close"),
            optimizer,
        ):
            rows(torch.tensor([1])).sum().backward()
        optimizer.step()


def test_a_compiled_model_pushes_the_gradient_of_an_uncompiled_one() -> None:
    found, ids, theirs = module(), torch.tensor([[1, 2, 2], [0, 7, 0]]), weight().requires_grad_()
    bag = found.EmbeddingBag({"t": table()}, mode="sum", padding_idx=0)
    with trained(bag) as (optimizer, each):
        compiled = torch.compile(bag, backend="eager")
        for _ in range(2):
            optimizer.zero_grad()
            compiled({"t": ids})["t"].square().sum().backward()
            optimizer.step()
            value = torch.nn.functional.embedding_bag(ids, theirs, mode="sum", padding_idx=0)
            (change,) = torch.autograd.grad(value.square().sum(), theirs)
            theirs = (theirs - change).detach().requires_grad_()
        torch.testing.assert_close(gradient_of(each), weight() - theirs.detach())
