# SPDX-License-Identifier: Apache-2.0
"""A transpiled job inside the test process: servers and trainers in threads, messages over loopback."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zmq

import paddle.fluid as fluid
from tests.ports import free_endpoints

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)

DEADLINE_S = 60.0
Feed = dict[str, Any]


def halves(feed: Feed, trainer: int, trainers: int) -> Feed:
    """Return a trainer's part of a batch."""
    return {name: _part(value, trainer, trainers) for name, value in feed.items()}


def _part(value: Any, trainer: int, trainers: int) -> Any:
    if not isinstance(value, fluid.LoDTensor):
        size = len(value) // trainers
        return value[trainer * size : (trainer + 1) * size]
    (lengths,) = value.recursive_sequence_lengths()
    size = len(lengths) // trainers
    mine = lengths[trainer * size : (trainer + 1) * size]
    start = sum(lengths[: trainer * size])
    rows = np.array(value)[start : start + sum(mine)]
    return fluid.create_lod_tensor(rows, [mine], fluid.CPUPlace())


def built(net: Callable[[], Any], seed: int = 3) -> tuple[fluid.Program, fluid.Program, str]:
    """Return main program, startup program and the loss's name of a net."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        main.random_seed = startup.random_seed = seed
        loss = net()
    return main, startup, loss.name


def one_process(
    net: Callable[[], Any], batches: Sequence[Feed], seed: int = 3
) -> tuple[list[float], dict[str, Any]]:
    """Train on one machine; return the losses, and the first values of what is kept."""
    main, startup, loss = built(net, seed)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    first = {name: np.array(scope.get(name)) for name in scope.names()}
    return [float(exe.run(main, feed, [loss], scope=scope)[0][0]) for feed in batches], first


@dataclass
class TranspiledJob:
    """Servers and trainers of a net.

    Attributes:
        first: values that servers begin with, by the names of one machine; None: what their startup programs give.
        on_trainer: called at the end of each trainer, inside its thread.
    """

    net: Callable[[], Any]
    trainers: int = 2
    servers: int = 2
    sync: bool = True
    config: fluid.DistributeTranspilerConfig | None = None
    first: dict[str, Any] | None = None
    endpoints: list[str] = field(default_factory=list)
    scopes: dict[str, fluid.Scope] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.endpoints = self.endpoints or free_endpoints(self.servers)

    def transpiled(
        self, trainer: int
    ) -> tuple[fluid.DistributeTranspiler, fluid.Program, fluid.Program, str]:
        """Return a trainer's transpiler, programs and loss."""
        main, startup, loss = built(self.net)
        t = fluid.DistributeTranspiler(self.config)
        t.transpile(
            trainer,
            program=main,
            startup_program=startup,
            pservers=",".join(self.endpoints),
            trainers=self.trainers,
            sync_mode=self.sync,
        )
        return t, t.get_trainer_program(wait_port=False), startup, loss

    def serve(self, endpoint: str) -> None:
        """Be a server until all trainers are done."""
        t = self.transpiled(0)[0]
        main, startup = t.get_pserver_programs(endpoint)
        scope = self.scopes.setdefault(endpoint, fluid.Scope())
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        for name in self.first or {}:
            for part in t.vars_overview.get_distributed_vars_by_ep(endpoint):
                if part.origin.name == name:
                    held = scope.get(part.slice.name)
                    held[...] = self.first[name].reshape(-1)[part.offset :][: held.size].reshape(held.shape)  # type: ignore[index]
        exe.run(main, scope=scope)

    def save_after(self, batches: Sequence[Feed], folder: Path) -> None:
        """Train on batches; trainer 0 then saves its program."""

        def train_and_save(rank: int) -> None:
            _, main, startup, _ = self.transpiled(rank)
            exe = fluid.Executor(fluid.CPUPlace())
            with fluid.scope_guard(fluid.Scope()):
                exe.run(startup)
                for feed in batches:
                    exe.run(main, halves(feed, rank, self.trainers))
                if rank == 0:
                    fluid.io.save_persistables(exe, folder, main)
            exe.close()

        self.run(train_and_save)

    def train(
        self,
        trainer: int,
        batches: Sequence[Feed],
        places: int | None = 0,
        *,
        by_itself: bool = False,
        strategy: fluid.BuildStrategy | None = None,
    ) -> list[float]:
        """Be a trainer: return the losses.

        Args:
            trainer: its rank.
            batches: a feed for each step.
            places: over how many of them; 0: without places; None: as the environment says.
            by_itself: with a ParallelExecutor, whose places are those of the environment.
            strategy: how to combine the gradients of the places.
        """
        _, main, startup, loss = self.transpiled(trainer)
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        self.scopes[f"trainer {trainer}"] = scope
        exe.run(startup, scope=scope)
        target: Any = main
        if places != 0:
            target = fluid.CompiledProgram(main).with_data_parallel(
                loss, strategy, places=fluid.cpu_places(places)
            )
        run: Callable[..., list[Any]] = partial(exe.run, target, scope=scope)
        if by_itself:
            run = fluid.ParallelExecutor(False, loss, main, scope=scope).run
        losses = [float(np.mean(run(feed=feed, fetch_list=[loss])[0])) for feed in batches]
        exe.close()
        return losses

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """Run all servers, and `work(trainer)` in a thread for each trainer; return results or raise an error."""
        results: dict[str, Any] = {}

        def start(name: str, job: Callable[[], Any]) -> threading.Thread:
            def body() -> None:
                try:
                    results[name] = job()
                except BaseException as error:  # noqa: BLE001 - raised again below, in the test's thread
                    self.errors[name] = error

            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(body,), name=name, daemon=True)
            thread.start()
            return thread

        threads = [start(each, lambda each=each: self.serve(each)) for each in self.endpoints]  # type: ignore[misc]
        names = [f"trainer {at}" for at in range(self.trainers)]
        threads += [start(name, lambda at=at: work(at)) for at, name in enumerate(names)]  # type: ignore[misc]
        for thread in threads:
            thread.join(DEADLINE_S)
        hanging = [thread.name for thread in threads if thread.is_alive()]
        assert not hanging, f"still there after {DEADLINE_S} s: {hanging}; errors: {self.errors}"
        if self.errors:
            raise next(iter(self.errors.values()))
        return [results[name] for name in names]
