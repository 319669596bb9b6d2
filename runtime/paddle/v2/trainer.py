# SPDX-License-Identifier: Apache-2.0
"""``trainer.SGD``: trains a network in this process, or as one trainer of a cluster.

N synchronous trainers on N parts of the data compute the same values as one process on the joined batches, up to
float32 rounding. Dropout masks depend on (seed, trainer id, step).
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Set
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from paddle.graph.operator import script_line, warn_script
from paddle.optim.learning_rate import unusual
from paddle.reader.channel import may_be_read_ahead
from paddle.report import Reporter
from paddle.signatures import explained
from paddle.v2 import event as events
from paddle.v2 import model
from paddle.v2 import settings as init_settings
from paddle.v2.data_type import whole_number
from paddle.v2.errors import NotAvailableError, TrainingError, UsageError, UsageTypeError
from paddle.v2.network import Network, NetworkMessage, parameters_of
from paddle.v2.optimizer import Optimizer
from paddle.v2.parameters import Parameters
from paddle.v2.topology import Layers, Topology
from paddle.v2.training.feeder import Batches, DataFeeder, Feed, Feeding, ids_in
from paddle.v2.training.gradient_machine import GradientMachine, LayerOutputs
from paddle.v2.training.metric import Metrics
from paddle.v2.training.training_log import (
    NO_BATCH,
    TrainingLog,
    checked_handler,
    trainer_logger,
    warn_of_late_evaluators,
    why_not_finite,
)
from paddle.v2.training.updater import Averager, LocalUpdater, Updater
from paddle_node.contract.facts import Progress

Reader = Callable[[], Iterable[Any]]
EventHandler = Callable[[Any], object]

_log = logging.getLogger(__name__)


@explained
class SGD:
    """Trains a network: runs passes over data, and updates ``parameters`` by gradient descent on ``cost``.

    Args:
        cost: a cost layer, or several.
        parameters: the result of ``paddle.parameters.create``; trained in place.
        update_equation: an optimizer.
        extra_layers: further layers, for evaluators. Cost layers among them, or that they depend on, are also trained,
            and their parameters are added to `parameters`; `event.cost` does not include them.
        is_local: whether to train without parameter servers; False means use those that ``paddle.init`` names.
        pserver_spec: not supported (the fault-tolerant servers of the original).
        use_etcd: has no effect.

    Attributes:
        first_pass: number of the first pass of `train`, if an earlier process trained the passes before it.
    """

    def __init__(
        self,
        cost: Layers,
        parameters: Parameters,
        update_equation: Optimizer,
        extra_layers: Layers | None = None,
        is_local: bool = True,
        pserver_spec: str | None = None,
        use_etcd: bool = True,
    ) -> None:
        if not isinstance(parameters, Parameters):
            raise UsageTypeError(
                "parameters must be the result of paddle.parameters.create or Parameters.from_tar, got "
                f"{parameters!r:.60}; the arguments are SGD(cost, parameters, update_equation)"
            )
        if not isinstance(update_equation, Optimizer):
            raise UsageTypeError(
                "update_equation must be an optimizer, such as paddle.optimizer.Adam(learning_rate=1e-3), got "
                f"{update_equation!r}"
            )
        if pserver_spec is not None:
            raise NotAvailableError(
                "pserver_spec is not supported; name the servers in paddle.init(pservers=...)"
            )
        self._topology = Topology(cost, extra_layers)
        self._topology.update_from_default()
        update_equation.report_inherited()
        self._parameters = parameters
        self._optimizer = update_equation
        self._is_local = bool(is_local)
        self._settings = init_settings.current()
        if self._settings.use_gpu:
            self._topology.make_dense()
        network = self._topology.network
        main = network.behind(network.outputs)
        _warn_of_wide_costs(network)
        _add_missing(network, main, parameters)
        self._remote_tables = _remote_tables(network, self._is_local)
        if update_equation.model_average is not None and self._topology.use_sparse_updater() and not is_local:
            raise NotAvailableError(
                "model_average does not support sparse_update parameters on servers; omit one of them"
            )
        self._machine = GradientMachine(
            network,
            parameters,
            network.outputs,
            also_trained=[name for name in network.costs() if name not in main],
            device=self._settings.device,
            seed=_mask_seed(self._settings),
            held_elsewhere=self._remote_tables,
        )
        self._machine.build()
        parameters.attach(self, network.parameters)
        self._reporter = Reporter.from_environment(self._settings.environment)
        self._evaluated = list(dict.fromkeys(name for item in network.evaluators for name in item.reads))
        self._log = TrainingLog(
            trainer_logger(self._settings.environment), self._settings.log_period, network.evaluators
        )
        self._updater: Updater | None = None
        self._averager: Averager | None = None
        self._step = 0
        self._closed = False
        self.first_pass = 0

    def get_topology_proto(self) -> NetworkMessage:
        """Return the network as the original's message `ModelConfig`."""
        return self._topology.proto()

    def train(
        self,
        reader: Reader,
        num_passes: int = 1,
        event_handler: EventHandler | None = None,
        feeding: Feeding = None,
    ) -> None:
        """Train for ``num_passes`` passes over the batches of samples that ``reader`` yields.

        A second call starts with fresh optimizer state in local training; parameter servers keep theirs.

        Raises:
            TrainingError: the cost is not finite, or the only trainer's reader is empty, in its very first pass or
                after the first pass of this call.
        """
        _check_reader(reader)
        handler = checked_handler(event_handler)
        warn_of_late_evaluators(self._topology.network)
        passes = whole_number(num_passes, "num_passes")
        if passes < 0:
            raise UsageError(f"num_passes must be at least 1, got {passes}")
        if not passes:
            warn_script("num_passes=0: train does nothing; pass at least 1 to train")
        if passes and (what := unusual(self._optimizer.spec.learning_rate)):
            _log.warning("train %s: %s", script_line(), what)
        network = self._topology.network
        feeder = DataFeeder(
            network.data_types, feeding, checks_ids=True, images=network.images(), layers=network.layers
        )
        updater = self._start_updater()
        try:
            for pass_id in range(self.first_pass, self.first_pass + passes):
                if updater.passes_over:
                    updater.passes_over -= 1
                    next(iter(reader()), None)  # a reader may count its passes
                    continue
                self._train_pass(pass_id, reader, feeder, updater, handler)
        finally:
            self._reporter.flush()

    def test(self, reader: Reader, feeding: Feeding = None) -> events.TestResult:
        """Evaluate the network on a reader's samples, in test mode.

        Return the cost per sample (NaN if none) and metrics.
        """
        _require_function(reader)
        network = self._topology.network
        feeder = DataFeeder(network.data_types, feeding, layers=network.layers)
        metrics = Metrics(network.evaluators)
        cost, samples = 0.0, 0
        for batch in reader():
            feed = feeder(batch)
            self._prepare(feed)
            step = self._machine.test(feed, self._evaluated)
            cost += step.cost
            samples += len(batch)
            metrics.add(metrics.measure(step.values))
        result = events.TestResult(metrics.report, cost / samples if samples else math.nan)
        self._log.test(result.cost, samples, result.metrics)
        return result

    def save_parameter_to_tar(self, f: IO[Any]) -> None:
        """Save all parameters: complete tables, with pending decay applied, and averages if the optimizer averages."""
        with self.to_save() as parameters:
            parameters.to_tar(f)

    @contextlib.contextmanager
    def to_save(self) -> Iterator[Parameters]:
        """Return a context that provides the parameters as `save_parameter_to_tar` saves them."""
        shown: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._averager is not None:  # an average has no pending decay
            shown = self._averager.applied()
        elif self._updater is not None:
            shown = self._updater.caught_up()
        with shown:
            yield self._parameters

    def close(self) -> None:
        """Disconnect from the job's parameter servers; this happens automatically when the process exits."""
        if self._updater is not None:
            self._updater.close()
            self._updater = None
            self._closed = True

    def newest(self, name: str) -> NDArray[np.float32]:
        """Return a parameter's current value; a table on parameter servers is fetched as a whole."""
        if name not in self._remote_tables:
            return self._machine.newest(name)
        if self._closed:
            raise UsageError(
                f"parameter {name!r} is on parameter servers, from which this trainer has disconnected: read it "
                "before the trainer is closed"
            )
        return self._parameters.array(name) if self._updater is None else self._updater.table(name)

    def replace(self, name: str, value: NDArray[np.float32]) -> None:
        """Set a parameter to a new value."""
        if not self._is_local and self._updater is not None:
            raise UsageError(f"parameter {name!r} is on parameter servers now; set it before train()")
        if name in self._remote_tables:
            self._parameters.array(name)[...] = value
        else:
            self._machine.replace(name, value)

    def gradient(self, name: str) -> NDArray[np.float32] | None:
        """Return the gradient of a parameter in the last batch, or None."""
        return self._machine.gradient(name)

    def _train_pass(
        self, pass_id: int, reader: Reader, feeder: DataFeeder, updater: Updater, handler: EventHandler
    ) -> None:
        evaluators = self._topology.network.evaluators
        outputs: LayerOutputs | None = None
        started, samples = time.monotonic(), 0
        handler(events.BeginPass(pass_id))
        self._log.start_pass(pass_id)
        updater.start_pass()
        self._step, updater.first_step = self._step + updater.first_step, 0
        reads_ahead = updater.looks_ahead and may_be_read_ahead(reader)
        batches = Batches(reader(), feeder)
        for batch_id, batch in enumerate(batches):
            if updater.skip_batch():
                self._step += 1
                continue
            handler(events.BeginIteration(pass_id, batch_id))
            feed = batches.feed()
            updater.prepare(feed)
            step = self._machine.train(feed, self._step, self._evaluated)
            if not math.isfinite(step.cost):
                raise TrainingError(
                    f"the cost is {step.cost} in pass {pass_id}, batch {batch_id}: {why_not_finite(feed)}"
                )
            outputs = LayerOutputs(self._machine, feed, self._step, step.values)
            self._step += 1
            handler(events.EndForwardBackward(pass_id, batch_id, outputs))
            updater.update(step.gradients, len(batch), batches.look_ahead() if reads_ahead else None)
            if self._averager is not None:
                if self._is_local:
                    updater.catch_up()  # the mean includes the decay of rows that the batch did not touch
                self._averager.add()
            metrics = Metrics(evaluators)
            parts = metrics.measure(step.values)
            metrics.add(parts)
            self._log.batch(step.cost, len(batch), parts)
            samples += len(batch)
            cost = step.cost / len(batch)
            speed = samples / max(time.monotonic() - started, 1e-9)
            told = Progress(batch_id, pass_id, cost, speed, self._step, samples)
            self._reporter.progress(told, None if self._settings.trainer_id else self._log.mean_cost)
            handler(events.EndIteration(pass_id, batch_id, cost, metrics.report, outputs))
        is_only = self._is_local or self._settings.num_trainers == 1
        may_be_empty = self._step and not pass_id  # a later call may find no new data
        if not batches.count and is_only and not may_be_empty:
            raise TrainingError(f"pass {pass_id}: {NO_BATCH}")
        if not batches.count and not pass_id:
            self._reporter.progress(Progress(0, samples_per_s=0.0, step=self._step))
        self._log.finish_pass(batches.count)
        if self._averager is not None:
            while updater.follow():
                self._averager.add()
            self._averager.finish_pass()
        updater.finish_pass()
        self._reporter.flush()
        handler(
            events.EndPass(
                pass_id, self._log.metrics.report, outputs or LayerOutputs(self._machine, {}, 0, {})
            )
        )

    def _start_updater(self) -> Updater:
        spec = self._optimizer.spec.after_passes(self.first_pass)
        if not self._is_local and self._updater is not None:
            return self._updater
        updater: Updater
        if self._updater is not None:
            self._updater.catch_up()  # an error may have ended the last pass early
        if self._is_local:
            servers = self._settings.environment.endpoints
            if servers:
                _log.warning(
                    "SGD(is_local=True) in a job with %d servers: this trainer trains by itself and "
                    "shares nothing with the other trainers; use is_local=False to train together",
                    len(servers),
                )
            updater = LocalUpdater(self._machine, spec)
        else:
            # zmq loads here, so that local training works without it.
            from paddle.v2.training.update_remote import RemoteUpdater

            updater = RemoteUpdater(self._machine, spec, self._settings)
        self._updater, self._closed = updater, False
        average = self._optimizer.model_average
        if average is not None:
            if updater.continues:
                _log.warning(
                    "model_average: the mean does not include the batches before this process started"
                )
            parameters = self._topology.network.parameters
            trained = [name for name, config in parameters.items() if not config.is_static]
            self._averager = Averager(average, trained, self._machine.flat, self._machine.show)
        return updater

    def _prepare(self, feed: Feed) -> None:
        if self._updater is not None:
            self._updater.prepare(feed)
            return
        for name in self._remote_tables:
            table = self._parameters.array(name)
            ids = ids_in(feed, self._machine.lookups(name))
            self._machine.set_rows(name, ids, table[ids])


def _add_missing(network: Network, main: Set[str], parameters: Parameters) -> None:
    """Add the parameters that only extra layers have."""
    known = {name for layer in main for name in parameters_of(network.layers[layer])}
    initializers = model.current().initializers
    for name, config in network.parameters.items():
        if name not in known and name not in parameters:
            parameters.add(config, initializers.get(name))


def _remote_tables(network: Network, is_local: bool) -> frozenset[str]:
    if is_local:
        return frozenset()
    return frozenset(name for name, config in network.parameters.items() if config.sparse_remote_update)


def _mask_seed(settings: init_settings.Settings) -> int:
    # crc32 never gives 0 for these texts in practice, and a seed of 0 would mean: none.
    return zlib.crc32(f"{settings.seed}:{settings.trainer_id}".encode()) or 1


def _require_function(reader: object) -> None:
    if not callable(reader):
        raise UsageTypeError(
            f"reader must be a function that returns an iterator, got {type(reader).__name__}: pass the function "
            "itself, without (), such as paddle.batch(reader, 32)"
        )


def _check_reader(reader: Reader) -> None:
    _require_function(reader)
    if not isinstance(reader(), Iterator):
        raise UsageTypeError("reader() must return an iterator, for example by being a generator function")


def _warn_of_wide_costs(network: Network) -> None:
    """Warn if the cost is a layer such as a prediction, whose values would be minimized without a label."""
    costs = network.costs()
    for layer in (network.layers[name] for name in network.outputs if name not in costs):
        if layer.size > 1:
            _log.warning(
                "SGD: the cost is layer %r (%s, size %d), which is not a cost layer: training minimizes the sum of "
                "its values; use a cost such as paddle.layer.classification_cost(input, label)",
                *(layer.name, layer.type, layer.size),
            )
