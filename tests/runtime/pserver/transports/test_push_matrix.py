# SPDX-License-Identifier: Apache-2.0
"""Pushes of every size at which the wire changes its ways end with the right sums, over every way to a server."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.rules.table import RULES
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.store.gradient import Gradient
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import CHUNK, PART, WINDOW, Section
from tests.runtime.pserver.pserver_process import PserverProcess
from tests.runtime.pserver.push_ports import (
    BITS,
    TRANSPORTS,
    Ports,
    Way,
    asynchronous,
    bits_of,
    in_threads,
    parameters,
    start_values,
)

SIZES = {
    "nothing": 0,
    "one": 1,
    "a chunk": CHUNK,
    "a chunk and one": CHUNK + 1,
    "a window": WINDOW * CHUNK,
    "a window and one": WINDOW * CHUNK + 1,
    "two windows and one": 2 * WINDOW * CHUNK + 1,
}
LARGE_SIZES = {"a part": PART, "a part and one": PART + 1}
MODES = {"synchronous": BITS, "asynchronous": asynchronous()}
STEPS = 2
ROWS = np.array([3, 17, 44])


@pytest.fixture(scope="module")
def ports() -> Iterator[Ports]:
    with Ports(plain={1: 130 + 2 * len(RULES), 3: 75}, encrypted={1: 90, 3: 50}) as found:
        yield found


def push(client: TrainerSession, verb: str, size: int, bit: float, out: dict[str, np.ndarray]) -> None:
    """Push `bit` everywhere; with `rows`, into rows as well."""
    grads: dict[str, np.ndarray | RowGradient] = {"w": np.full(size, bit, np.float32)} if size else {}
    if verb == "rows" or not size:
        grads["rows"] = RowGradient(ROWS, np.full((3, 8), bit, np.float32))
    if verb == "push":
        client.push(grads, 1)
    else:
        client.push_pull(grads, 1, out)


def train(way: Way, optimizer: OptimizerSpec, size: int, trainers: int, verb: str) -> None:
    """Train with as many trainers; each looks at what comes back."""
    all_bits = (1 << trainers * STEPS) - 1

    def work(trainer: int) -> None:
        with way.client(trainer, trainers) as client:
            client.configure(parameters(size), optimizer, start_values(size))
            client.start_pass()
            out = {"w": np.zeros(size, np.float32)} if size else {}
            for step in range(STEPS):
                bit = 1 << step * trainers + trainer
                push(client, verb, size, bit, out)
                if size and verb != "push" and optimizer is BITS:
                    assert bits_of(out["w"]) == (1 << (step + 1) * trainers) - 1
                elif size and verb != "push":
                    seen = int(-out["w"][0])  # of which moment, every chunk says for itself
                    assert seen & bit, f"values after push {bit} are without it: {seen:b}"
            client.finish_pass()
            found = start_values(size)
            client.pull(found)
            if size:
                assert bits_of(found["w"]) == all_bits
            if verb == "rows" or not size:
                assert bits_of(found["rows"][ROWS]) == all_bits
                assert not found["rows"][0].any()

    in_threads(work, range(trainers))


@pytest.mark.parametrize("verb", ["push_pull", "push", "rows"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", SIZES)
def test_a_trainer_alone(ports: Ports, size: str, transport: str, mode: str, verb: str) -> None:
    with ports.way(transport, 1) as way:
        train(way, MODES[mode], SIZES[size], 1, verb)


@pytest.mark.parametrize("verb", ["push_pull", "push", "rows"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", ["one", "a chunk and one", "two windows and one"])
def test_three_trainers(ports: Ports, size: str, transport: str, mode: str, verb: str) -> None:
    with ports.way(transport, 3) as way:
        train(way, MODES[mode], SIZES[size], 3, verb)


@pytest.mark.parametrize(
    ("size", "transport", "mode"),
    [
        ("a part", "encrypted", "asynchronous"),
        ("a part and one", "stream", "asynchronous"),
        ("a part and one", "encrypted", "synchronous"),
    ],
)
def test_parts_of_whole_slabs(size: str, transport: str, mode: str) -> None:
    with Ports(plain={1: 1}, encrypted={1: 1}) as ports, ports.way(transport, 1) as way:
        train(way, MODES[mode], LARGE_SIZES[size], 1, "push_pull")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_more_than_a_gibibyte_over_two_ports() -> None:
    size = (1 << 28) + 1
    with PserverProcess("--port=0", "--ports_num=2", key=None) as server:
        client = TrainerSession.connect(
            server.endpoints,
            [],
            trainer_id=0,
            num_trainers=1,
            job_key=None,
            wire="plain",
            within_node=False,
            timeout_s=240.0,
        )
        with client:
            client.wait_at_most(240.0)
            values = np.zeros(size, np.float32)
            client.configure(parameters(size)[:1], asynchronous(), {"w": values})
            client.start_pass()
            client.push_pull({"w": np.ones(size, np.float32)}, 1, {"w": values})
            assert np.all(values == -1.0)


def test_more_than_a_message_can_carry_is_too_much_for_one_port(ports: Ports) -> None:
    size = (1 << 28) + 1
    with ports.way("stream", 1) as way, way.client(0, 1) as client:
        values = np.zeros(1, np.float32)  # nothing is looked at before where it would lie
        with pytest.raises(ConfigError, match="use more servers or a larger ports_num"):
            client.configure(parameters(size)[:1], asynchronous(), {"w": values})


@pytest.mark.parametrize("verb", ["push_pull", "push"])
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", ["one", "a chunk and one", "two windows and one"])
def test_a_gradient_that_is_too_old_is_dropped_whole_and_answered(
    ports: Ports, size: str, transport: str, verb: str
) -> None:
    elements = SIZES[size]
    with ports.way(transport, 3) as way:
        clients = [way.client(trainer, 3) for trainer in range(3)]
        out = {"w": np.zeros(elements, np.float32)}

        def begin(trainer: int) -> None:
            clients[trainer].configure(parameters(elements), asynchronous(1.01), start_values(elements))
            clients[trainer].start_pass()

        in_threads(begin, range(3))
        for number, trainer in enumerate((0, 1, 0, 1, 2, 2)):  # the slow one's first is four pushes old
            push(clients[trainer], verb, elements, 1 << number, out)
            if verb == "push_pull":
                assert bits_of(out["w"]) == (1 << number + 1) - 1 & ~(1 << 4 if number >= 4 else 0)
        clients[0].pull(out)
        assert bits_of(out["w"]) == 0b101111
        in_threads(lambda trainer: clients[trainer].close(), range(3))


@pytest.mark.parametrize("rule", sorted(name for name, rule in RULES.items() if not rule.row_keeps))
@pytest.mark.parametrize("mode", MODES)
def test_every_rule_gives_the_numbers_of_the_plain_engine(ports: Ports, mode: str, rule: str) -> None:
    size = WINDOW * CHUNK + 1
    optimizer = OptimizerSpec(rule, learning_rate=0.1, is_async=mode == "asynchronous")
    model = parameters(size)[:1]
    random = np.random.default_rng(5)
    values = random.standard_normal(size).astype(np.float32)
    gradients = [random.standard_normal(size).astype(np.float32) for _ in range(STEPS)]
    plain = Store(Configuration(tuple(model), optimizer, 1, 0, 0).share(), optimizer, cores=1)
    plain.set_dense(0, Section("", values))
    for gradient in gradients:
        whole = Gradient(Section("", gradient), {}, 1)
        plain.check(whole)
        plain.apply(whole)
    out = {"w": np.zeros(size, np.float32)}
    with ports.way("stream", 1) as way, way.client(0, 1) as client:
        client.configure(model, optimizer, {"w": values})
        client.start_pass()
        for gradient in gradients:
            client.push_pull({"w": gradient}, 1, out)
    assert np.array_equal(out["w"], plain.slab)
