# SPDX-License-Identifier: Apache-2.0
"""Session: a run of `paddle train`, with its configuration, its data, and the trainer created from both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from logging import Logger
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paddle.ops.base.lod import plain
from paddle.trainer import pass_directory
from paddle.trainer.config_parser import TrainerConfig, extra_outputs
from paddle.trainer.sample_pool import Batches, SampleSource
from paddle.trainer_config_helpers.configuration import DataSource
from paddle.v2 import model, parameters, settings
from paddle.v2.data_type import DataType, InputType, SequenceType
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from paddle.v2.model import LayerConfig
from paddle.v2.network import Network
from paddle.v2.optimizer import Momentum
from paddle.v2.topology import Topology
from paddle.v2.trainer import SGD
from paddle.v2.training.feeder import DataFeeder, Feed
from paddle.v2.training.gradient_machine import GradientMachine
from paddle.v2.training.metric import Metrics
from paddle.v2.training.training_log import TrainingLog
from paddle_node.contract.classes import replace
from paddle_node.contract.flags import Value


class Session:
    """A run's configuration, data sources, and parameters with the initial values that the flags select.

    Attributes:
        columns: the data layers, in the order of a sample's columns.
        parameters: values, from a directory if flags name one.
    """

    def __init__(self, config: TrainerConfig, flags: Mapping[str, Value], log: Logger) -> None:
        configuration = config.configuration
        configuration.check()
        assert configuration.space is not None
        self.config, self.flags, self._log = config, flags, log
        self._space = configuration.space
        self._seed = settings.current().seed + int(flags["trainer_id"])
        order = configuration.input_order
        self._train = self._open(configuration.train, order, is_train=True)
        self._test = self._open(configuration.test, order, is_train=False)
        known = self._train or self._test
        if known is None:
            raise UsageError("the configuration declares no data: call define_py_data_sources2(...)")
        self.columns = list(known.types)
        self._space.layers = _typed(self._space.layers, known.types)
        check_types(self._topology(), known)
        with self.entered():
            self.parameters = parameters.create([*self.outputs, *self._extra()])

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Return a context in which the configuration's layers are visible to v2."""
        with model.entered(self._space):
            yield

    @property
    def outputs(self) -> list[LayerOutput]:
        """The layers that the configuration declares as outputs."""
        return self.config.configuration.outputs

    @property
    def has_tests(self) -> bool:
        """Return whether the configuration has a data source for tests."""
        return self._test is not None

    def trainer(self, *, is_local: bool) -> SGD:
        """Return a trainer of the outputs; evaluators may also read layers that no output needs."""
        with self.entered():
            optimizer = self.config.configuration.optimizer or Momentum()
            if optimizer.model_average is not None:
                self._make_dense()
            trainer = SGD(self._trained(), self.parameters, optimizer, self._extra(), is_local=is_local)
        trainer.first_pass = int(self.flags["start_pass"])
        return trainer

    def evaluate(self) -> None:
        """Compute the evaluators on the test data without a cost, as for generation, and log their metrics."""
        network = self._topology().network
        machine, feeder = (
            GradientMachine(network, self.parameters, []),
            DataFeeder(network.data_types, self.columns),
        )
        read = list(dict.fromkeys(name for item in network.evaluators for name in item.reads))
        metrics, samples = Metrics(network.evaluators), 0
        for batch in self.test_batches():
            metrics.add(metrics.measure(machine.test(feeder(batch), read).values))
            samples += len(batch)
        TrainingLog(self._log, 0, network.evaluators).test(0.0, samples, metrics.report())

    @property
    def has_cost(self) -> bool:
        """Return whether an output is a cost."""
        return bool(losses(self.config.network))

    def train_batches(self) -> Batches:
        """Return the batches of a pass over the training data."""
        return self._batches(self._train, "training")

    def test_batches(self) -> Batches:
        """Return the batches of a pass over the test data."""
        return self._batches(self._test, "tests")

    def load(self, directory: Path) -> None:
        """Load all parameters from a directory; see `pass_directory.load`."""
        self._log.info("Loading parameters from %s", directory)
        pass_directory.load(self.parameters, directory, str(self.flags["load_missing_parameter_strategy"]))

    def feed(self) -> Feed:
        """Read the first batch of training data, and return it as a network's feed.

        Raises:
            UsageError: the data provider has no samples.
        """
        batch = next(self.train_batches(), None)
        if batch is None:
            raise UsageError("the data provider has no samples, and --job=checkgrad needs one batch")
        return DataFeeder(self._topology().data_type(), self.columns)(batch)

    def machine(self) -> GradientMachine:
        """Return the network of the outputs, with dense gradients, for use without a trainer."""
        topology = self._topology()
        topology.make_dense()
        return GradientMachine(topology.network, self.parameters, topology.network.outputs)

    @staticmethod
    def loss(machine: GradientMachine, feed: Feed) -> tuple[float, dict[str, NDArray[np.float32]]]:
        """Compute and return the training cost and its gradients; repeated calls draw the same dropout masks."""
        costs = machine.network.outputs
        step = machine.train(feed, 0, costs)
        coeffs = {name: float(machine.network.layers[name].attrs.get("coeff", 1.0)) for name in costs}  # type: ignore[arg-type]
        total = sum(
            coeffs[name] * float(np.sum(plain(step.values[name]), dtype=np.float64)) for name in costs
        )
        return total, {name: np.asarray(gradient) for name, gradient in step.gradients.items()}

    def _make_dense(self) -> None:
        """Make sparse updates dense, because averages are computed for whole parameters."""
        for name, config in self._space.parameters.items():
            if config.sparse_update:
                self._log.info("%s is updated as a dense parameter, because model_average is set", name)
                self._space.parameters[name] = replace(
                    config, sparse_update=False, sparse_remote_update=False
                )

    def _topology(self) -> Topology:
        with self.entered():
            return Topology(self._trained() if self.has_cost else self.outputs, self._extra())

    def _trained(self) -> list[LayerOutput]:
        """Return the outputs whose sum is minimized by training.

        Raises:
            UsageError: no output is a cost.
        """
        names = losses(self.config.network)
        if not names:
            raise UsageError(
                f"none of the outputs {[layer.name for layer in self.outputs]} is a cost: add a cost layer to "
                "outputs(...)"
            )
        return [layer for layer in self.outputs if layer.name in names]

    def _extra(self) -> list[LayerOutput]:
        """Return the layers that evaluators read, and the outputs that are not costs."""
        names = set(losses(self.config.network))
        extra = [layer for layer in self.outputs if layer.name not in names]
        measured = extra_outputs(self.config.configuration)
        return [*extra, *(LayerOutput(self._space.layers[name]) for name in measured)]

    def _batches(self, source: SampleSource | None, what: str) -> Batches:
        if source is None:
            raise UsageError(f"the configuration declares no data for {what}: see define_py_data_sources2")
        return source.batches(self.config.configuration.batch_size or 1)

    def _open(
        self, source: DataSource | None, order: Sequence[str], *, is_train: bool
    ) -> SampleSource | None:
        if source is None:
            return None
        return SampleSource(source, order, is_train=is_train, seed=self._seed)


def losses(network: Network) -> list[str]:
    """Return the names of the outputs that are costs, or sums and multiples of costs."""
    costs = set(network.costs())
    return [name for name in network.outputs if costs & network.behind([name])]


def typed(network: Network, types: Mapping[str, InputType]) -> Network:
    """Return a network whose data layers have types: layers without one get the type that the data provider declares.

    Raises:
        UsageError: the width of a data layer differs from that of its data.
    """
    return replace(network, layers=_typed(network.layers, types))


def _typed(layers: Mapping[str, LayerConfig], types: Mapping[str, InputType]) -> dict[str, LayerConfig]:
    found = dict(layers)
    for name, layer in layers.items():
        kind = types.get(name)
        if layer.type != "data" or layer.input_type is not None or kind is None:
            continue
        if kind.type == DataType.Index:
            kind = replace(kind, dim=layer.size if kind.dim > 1 else 1)
        elif kind.dim != layer.size:
            raise UsageError(
                f"data layer {name!r} has size {layer.size}, but the provider's type for it is {_written(kind)}; "
                "give both the same size"
            )
        found[name] = replace(layer, input_type=kind)
    return found


def check_types(topology: Topology, source: SampleSource) -> None:
    """Check that the provider has a type for each data layer of a network."""
    for name, layer in topology.network.layers.items():
        if layer.type == "data" and layer.input_type is None:
            raise UsageError(
                f"the data provider {source.name} has no input type for data layer {name!r}, only for "
                f"{source.declared}; add it to input_types"
            )


_KINDS = {
    DataType.Dense: "dense_vector",
    DataType.Index: "integer_value",
    DataType.SparseNonValue: "sparse_binary_vector",
    DataType.SparseValue: "sparse_float_vector",
}
_LEVELS = {
    SequenceType.NO_SEQUENCE: "",
    SequenceType.SEQUENCE: "_sequence",
    SequenceType.SUB_SEQUENCE: "_sub_sequence",
}


def _written(kind: InputType) -> str:
    """Format a type as a provider declares it, such as ``dense_vector_sequence(9)``."""
    return f"{_KINDS[kind.type]}{_LEVELS[kind.seq_type]}({kind.dim})"
