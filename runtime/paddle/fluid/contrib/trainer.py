# SPDX-License-Identifier: Apache-2.0
"""Trainer: the training loop of Fluid 0.13 to 1.2, with events, for a single process or for the processes of a job."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from paddle.env import JobEnvironment
from paddle.fluid import io
from paddle.fluid.compiler import CompiledProgram
from paddle.fluid.contrib.step_checkpoint import CheckpointConfig
from paddle.fluid.data_feeder import DataFeeder
from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.executor import Executor
from paddle.fluid.optimizer import Optimizer
from paddle.fluid.program.program import Program, program_guard
from paddle.fluid.program.variable import Variable
from paddle.fluid.run.places import CPUPlace, CUDAPlace, Place, is_compiled_with_cuda
from paddle.fluid.run.scope import Scope, scope_guard
from paddle.fluid.transpiler import DistributeTranspiler, DistributeTranspilerConfig
from paddle.graph import unique_name

__all__ = [
    "BeginEpochEvent", "BeginStepEvent", "CheckpointConfig", "EndEpochEvent", "EndStepEvent", "Trainer",
]  # fmt: skip

_log = logging.getLogger(__name__)


class BeginEpochEvent:
    """Event at the beginning of an epoch; `epoch` counts from 0."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch = epoch_id


class EndEpochEvent:
    """Event at the end of an epoch; `epoch` counts from 0."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch = epoch_id


class BeginStepEvent:
    """Event at the beginning of a step; `step` counts from 0 in each epoch.

    Attributes:
        fetch_metrics: whether this step's `EndStepEvent` gets metrics; the handler may set it to False.
    """

    def __init__(self, epoch_id: int, step_id: int) -> None:
        self.epoch, self.step = epoch_id, step_id
        self.fetch_metrics = True


class EndStepEvent:
    """Event at the end of a step; `metrics` contains the values of `train_func`'s outputs, in order."""

    def __init__(self, epoch_id: int, step_id: int, metrics: list[Any]) -> None:
        self.epoch, self.step, self.metrics = epoch_id, step_id, metrics


class Trainer:
    """Builds a model's programs from functions of the script, and trains the model.

    In a job, PADDLE_TRAINING_ROLE sets the role of this process. A PSERVER serves its parameters in `train`. A TRAINER
    trains with the servers or, in a job without servers, sums gradients over all trainers.

    Attributes:
        scope: holds the values of the variables.
        startup_program: initializes the variables.
        train_program: the program of one training step; on a server, the serving loop.
        test_program: a copy of the training program without backward pass and updates.
        train_func_outputs: the variables that `train_func` returns.
    """

    def __init__(
        self,
        train_func: Callable[[], Variable | Sequence[Variable]],
        optimizer_func: Callable[[], Optimizer],
        param_path: str | None = None,
        place: Place | None = None,
        parallel: bool = False,
        checkpoint_config: CheckpointConfig | None = None,
    ) -> None:
        """Build the programs and initialize the parameters.

        Args:
            train_func: declares the layers; returns the loss, or a list that begins with it.
            optimizer_func: returns the optimizer.
            param_path: a directory that `save_params` wrote with the same optimizer, from which to continue; None:
                initial values. A missing directory causes a warning and initial values.
            place: the device; None means a GPU if there is one, else the CPU.
            parallel: run on CPU_NUM places, or on all selected GPUs; each batch needs a sample for each of them.
            checkpoint_config: where and when to save checkpoints; training continues after the last one. Only for a
                single trainer.

        Raises:
            FluidTypeError: a function returns a value of the wrong type, or an argument has the wrong type.
            FluidError: a variable of the job's environment is missing, or several trainers have a checkpoint_config.
        """
        if checkpoint_config is not None and not isinstance(checkpoint_config, CheckpointConfig):
            raise FluidTypeError(
                f"Trainer: checkpoint_config: expected a CheckpointConfig, got {checkpoint_config!r}"
            )
        self.place, self.parallel, self.checkpoint_cfg = place_or_default(place), parallel, checkpoint_config
        self.scope, self.startup_program, self.train_program = Scope(), Program(), Program()
        job = JobEnvironment.read()
        self._role = job.training_role
        self._trainer_id = (job.trainer_id or 0) if self._role else 0
        self._is_stopped = False
        with program_guard(self.train_program, self.startup_program), unique_name.guard():
            self.train_func_outputs = as_list(train_func())
            for each in self.train_func_outputs:
                if not isinstance(each, Variable):
                    raise FluidTypeError(f"Trainer: train_func must return variables, got {each!r}")
            self.test_program = self.train_program.clone(for_test=True)
            optimizer = optimizer_func()
            if not isinstance(optimizer, Optimizer):
                raise FluidTypeError(f"Trainer: optimizer_func must return an optimizer, got {optimizer!r}")
            optimizer.minimize(self.train_func_outputs[0])
        self.exe = Executor(self.place)
        with self._guards():
            if self._role:
                self._transpile(job)
            self.exe.run(self.startup_program)
            if self._role == "PSERVER":
                return  # its values come from trainer 0
            if param_path and os.path.isdir(param_path):
                io.load_persistables(self.exe, param_path, self.train_program)
            elif param_path:
                _log.warning(
                    "param_path %r is not a directory: training starts with initial values", param_path
                )
            if self.checkpoint_cfg is not None:
                self.checkpoint_cfg.restore(self.exe, self.train_program, self._trainer_id)

    def train(
        self,
        num_epochs: int,
        event_handler: Callable[[Any], object],
        reader: Callable[[], Iterable[Any]] | None = None,
        feed_order: Sequence[str] | Mapping[str, int] | None = None,
    ) -> None:
        """Train until all epochs are complete or a handler calls `stop`.

        A server process serves until all trainers have left, and then exits: only trainers run the rest of the script.

        Args:
            num_epochs: number of passes over the reader's minibatches.
            event_handler: called with each event.
            reader: a function that returns an iterator over minibatches.
            feed_order: names of the data variables in the order of a sample's fields, or name -> position; None means
                the order of declaration.

        Raises:
            FluidError: feed_order does not fit the program, or no reader is given.
        """
        if self._role == "PSERVER":
            with self._guards():
                self.exe.run(self.train_program)
            raise SystemExit(0)
        if reader is None:
            raise FluidError("Trainer.train: reader: expected a function that returns minibatches, got None")
        self._is_stopped = False
        with self._guards():
            feeder = DataFeeder(feed_variables(self.train_program, feed_order), self.place)
            program: Any = self.train_program
            if self.parallel:
                program = CompiledProgram(program).with_data_parallel(
                    self.train_func_outputs[0].name,
                    num_trainers=len(program._trainers_endpoints) or 1,
                    trainer_id=program._trainer_id,
                )
            for epoch in range(num_epochs):
                if self.checkpoint_cfg is not None and self.checkpoint_cfg.has_done(epoch):
                    continue
                event_handler(BeginEpochEvent(epoch))
                for step, samples in enumerate(reader()):
                    if self._is_stopped:
                        return
                    if self.checkpoint_cfg is not None and self.checkpoint_cfg.has_done(epoch, step):
                        continue
                    begin = BeginStepEvent(epoch, step)
                    event_handler(begin)
                    fetches = self.train_func_outputs if begin.fetch_metrics else []
                    metrics = self.exe.run(program, feed=feeder.feed(samples), fetch_list=fetches)
                    if self.checkpoint_cfg is not None:
                        self.checkpoint_cfg.save(self.exe, self.train_program, self._trainer_id, epoch, step)
                    event_handler(EndStepEvent(epoch, step, metrics))
                event_handler(EndEpochEvent(epoch))
                if self._is_stopped:
                    return
        if self.checkpoint_cfg is not None:
            self.checkpoint_cfg.end()

    def stop(self) -> None:
        """Make `train` return before its next step."""
        self._is_stopped = True

    def test(
        self,
        reader: Callable[[], Iterable[Any]],
        feed_order: Sequence[str] | Mapping[str, int] | None = None,
    ) -> list[float]:
        """Evaluate the model; return the mean over minibatches of the first element of each `train_func` output.

        Raises:
            FluidError: the reader has no minibatch, or feed_order does not fit the program.
        """
        with program_guard(self.test_program, self.startup_program), scope_guard(self.scope):
            feeder = DataFeeder(feed_variables(self.test_program, feed_order), self.place)
            names = [each.name for each in self.train_func_outputs]
            rows = [
                [float(np.ravel(value)[0]) for value in self.exe.run(self.test_program, feed, names)]
                for feed in map(feeder.feed, reader())
            ]
        if not rows:
            raise FluidError("Trainer.test: the reader returned no minibatches; at least one is needed")
        return [sum(column) / len(rows) for column in zip(*rows, strict=True)]

    def save_params(self, param_path: str) -> None:
        """Save all persistable variables in a directory, from which `Inferencer` or a new `Trainer` can load them."""
        with self._guards():
            io.save_persistables(self.exe, param_path, self.train_program)

    def save_inference_model(
        self, param_path: str, feeded_var_names: Sequence[str], target_var_indexes: Sequence[int]
    ) -> None:
        """Save the program and the parameters that the chosen outputs need; see `fluid.io.save_inference_model`.

        Args:
            param_path: the directory.
            feeded_var_names: names of the data variables to feed.
            target_var_indexes: indexes of the chosen outputs in the list that `train_func` returns.
        """
        with self._guards():
            targets = [
                self.test_program.global_block().var(self.train_func_outputs[at].name)
                for at in target_var_indexes
            ]
            io.save_inference_model(
                param_path, list(feeded_var_names), targets, self.exe, main_program=self.test_program
            )

    @contextmanager
    def _guards(self) -> Iterator[None]:
        with program_guard(self.train_program, self.startup_program), scope_guard(self.scope):
            yield

    def _transpile(self, job: JobEnvironment) -> None:
        """Change the programs into those of this process's role."""
        servers = ",".join(job.endpoints or (f"{each}:{job.pserver_port}" for each in job.pserver_ips))
        ranks = job.trainer_endpoints or [f"{each}:{job.pserver_port}" for each in job.trainer_ips]
        own = job.current_endpoint or f"{job.current_ip}:{job.pserver_port}"
        count = (str(job.num_trainers or "") or job.trainers) if servers else str(len(ranks))
        if not count.isdigit():
            raise FluidError(f"PADDLE_TRAINERS: expected the number of trainers, got {count!r}")
        if self.checkpoint_cfg is not None and int(count) > 1:
            raise FluidError(
                f"Trainer: checkpoint_config supports only one trainer, but this job has {count}; omit it, "
                "call save_params in trainer 0, and start again with param_path"
            )
        if not servers:
            if int(count) > 1:
                DistributeTranspiler(DistributeTranspilerConfig(mode="nccl2")).transpile(
                    self._trainer_id, trainers=",".join(ranks), current_endpoint=own
                )
            return
        transpiler = DistributeTranspiler()
        transpiler.transpile(self._trainer_id, pservers=servers, trainers=int(count))
        if self._role == "TRAINER":
            self.train_program = transpiler.get_trainer_program()
            return
        self.train_program = transpiler.get_pserver_program(own)
        self.startup_program = transpiler.get_startup_program(own, self.train_program)


def place_or_default(place: Place | None) -> Place:
    """Return the given place or, for None, the default place: a GPU if this machine has one, else the CPU.

    Raises:
        FluidTypeError: the argument is not a place.
    """
    if place is None:
        return CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()
    if not isinstance(place, (CPUPlace, CUDAPlace)):
        raise FluidTypeError(f"place: expected a CPUPlace or CUDAPlace, got {place!r}")
    return place


def feed_variables(program: Program, feed_order: Sequence[str] | Mapping[str, int] | None) -> list[Variable]:
    """Return a program's data variables in the order of a sample's fields; see `Trainer.train`.

    Raises:
        FluidError: the positions are not 0 to n - 1, or the program lacks a named variable.
    """
    known = {name: each for name, each in program.global_block().vars.items() if isinstance(each, Variable)}
    if feed_order is None:
        return [each for each in known.values() if each.is_data]
    names = list(feed_order)
    if isinstance(feed_order, Mapping):
        if sorted(feed_order.values()) != list(range(len(feed_order))):
            raise FluidError(
                f"feed_order: expected consecutive positions starting at 0, got {dict(feed_order)}"
            )
        names.sort(key=feed_order.__getitem__)
    for name in names:
        if name not in known:
            data = [each.name for each in known.values() if each.is_data]
            raise FluidError(
                f"feed_order: the program has no variable {name!r}; its data variables are {data}"
            )
    return [known[name] for name in names]


def as_list(variables: Any) -> list[Variable]:
    """Return a variable or a sequence of variables as a list."""
    return list(variables) if isinstance(variables, (list, tuple)) else [variables]
