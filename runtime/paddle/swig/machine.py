# SPDX-License-Identifier: Apache-2.0
"""`GradientMachine`, a configuration's network that is fed with `Arguments`; its parameters, and its `Trainer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paddle.swig.arguments import Arguments
from paddle.swig.arrays import Array, Vector
from paddle.trainer import pass_directory
from paddle.trainer.config_parser import TrainerConfig
from paddle.trainer.session import losses, typed
from paddle.v2 import settings
from paddle.v2.data_type import InputType
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.network import Network, NetworkMessage
from paddle.v2.optimizer import Momentum
from paddle.v2.parameter_format import ParameterConfig
from paddle.v2.parameters import Parameters
from paddle.v2.training import gradient_machine
from paddle.v2.training.feeder import DataFeeder, Feed
from paddle.v2.training.updater import LocalUpdater
from paddle_node.contract.classes import replace

PASS_TRAIN, PASS_TEST, PASS_GC = 0, 1, 2
PARAMETER_VALUE, PARAMETER_GRADIENT, PARAMETER_MOMENTUM = 0, 1, 2
_FIELDS = ("value", "id")


class Parameter:
    """The handle on one parameter of a gradient machine."""

    def __init__(self, machine: GradientMachine, number: int, config: ParameterConfig) -> None:
        self._machine, self._number, self._config = machine, number, config

    def getName(self) -> str:
        """Return the parameter's name."""
        return self._config.name

    def getID(self) -> int:
        """Return the parameter's index in the network."""
        return self._number

    def getSize(self) -> int:
        """Return the number of elements of the parameter."""
        return self._config.size

    def getConfig(self) -> ParameterConfig:
        """Return the configuration of the parameter."""
        return self._config

    def getBuf(self, parameterType: int) -> Vector:
        """Return the values of the parameter, which can be changed in place, or the gradient of the last batch."""
        if parameterType == PARAMETER_VALUE:
            return Vector(self._machine.parameters.array(self._config.name).reshape(-1))
        if parameterType == PARAMETER_GRADIENT:
            return Vector(self._machine.gradient(self._config))
        raise UsageError(
            f"parameter {self._config.name!r}: only PARAMETER_VALUE and PARAMETER_GRADIENT can be read"
        )

    def setValueUpdated(self) -> None:
        """Do nothing; the original needs this call after values changed."""


class GradientMachine:
    """A network with the values of its parameters, which computes outputs and gradients.

    Attributes:
        network: its data layers have open types, which are set by those of the arguments.
    """

    def __init__(self, network: Network, inputs: Sequence[str]) -> None:
        dense = {
            name: replace(config, sparse_update=False, sparse_remote_update=False)
            for name, config in network.parameters.items()
        }
        self.network = replace(network, parameters=dense)
        self.parameters = Parameters()
        for config in dense.values():
            self.parameters.add(config)
        self._inputs = list(inputs)
        self._machine: gradient_machine.GradientMachine | None = None
        self._types: tuple[InputType, ...] = ()

    @staticmethod
    def createFromConfigProto(
        protoObj: NetworkMessage, createMode: int = 0, paramTypes: Sequence[int] = ()
    ) -> GradientMachine:
        """Return the gradient machine of a configuration, `parse_config(...).model_config`."""
        if not isinstance(protoObj, NetworkMessage) or protoObj.network is None:
            raise UsageTypeError(
                f"createFromConfigProto takes parse_config(...).model_config, got {protoObj!r:.80}"
            )
        if protoObj != NetworkMessage(protoObj.network, protoObj.input_layer_names):
            raise UsageError(
                "changes of the network's message have no effect; change the configuration instead"
            )
        return GradientMachine(protoObj.network, protoObj.input_layer_names)

    def loadParameters(self, path: str) -> None:
        """Read all parameters from a directory in the format of `paddle train`."""
        pass_directory.load(self.parameters, Path(path))

    def saveParameters(self, path: str) -> None:
        """Write all parameters to a directory, in the format of `paddle train`."""
        pass_directory.save(self.parameters, Path(path))

    def getParameterSize(self) -> int:
        """Return the number of parameters."""
        return len(self.parameters)

    def getParameter(self, i: int) -> Parameter:
        """Return the handle on the parameter with index i."""
        return self.getParameters()[i]

    def getParameters(self) -> list[Parameter]:
        """Return a list of the handles on all parameters."""
        return [Parameter(self, at, config) for at, config in enumerate(self.network.parameters.values())]

    def randParameters(self) -> None:
        """Set all parameters to their initial values, which depend only on the seed and the parameter's name."""
        for config in self.network.parameters.values():
            fresh = Parameters()
            fresh.add(config)
            self.parameters.set(config.name, fresh.get(config.name))

    def start(self) -> None:
        """Do nothing; the original prepares for training in this call."""

    finish = start

    def forwardTest(self, inArgs: Arguments) -> list[dict[str, Array]]:
        """Compute the outputs of a batch in test mode.

        Return "value" and "id" of each output layer, where available.
        """
        machine, feed = self.prepared(inArgs)
        found = machine.outputs(feed, self.network.outputs, _FIELDS)
        return [found[name] for name in self.network.outputs]

    def forward(self, inArgs: Arguments, outArgs: Arguments, passType: int) -> None:
        """Compute the outputs of a batch into `outArgs`; PASS_TRAIN draws dropout masks, PASS_TEST uses none."""
        if passType == PASS_TRAIN and self.costs:
            self.forwardBackward(inArgs, outArgs, passType)
        else:
            outArgs.put(self.forwardTest(inArgs))

    def forwardBackward(
        self,
        inArgs: Arguments,
        outArgs: Arguments,
        passType: int,
        callback: Callable[[Parameter], Any] | None = None,
    ) -> None:
        """Compute the outputs of a batch into `outArgs`, and the gradients of the costs among them.

        Args:
            callback: called with each parameter afterwards.
        """
        machine, feed = self.prepared(inArgs)
        step = machine.train(feed, 0, self.network.outputs)
        outArgs.put([{"value": np.asarray(step.values[name])} for name in self.network.outputs])
        for parameter in self.getParameters() if callback is not None else []:
            callback(parameter)  # type: ignore[misc]

    @property
    def costs(self) -> list[str]:
        """Return the names of the outputs that are costs."""
        return losses(self.network)

    def gradient(self, config: ParameterConfig) -> Array:
        """Return a parameter's gradient in the last batch, flat; zeros if there is none."""
        found = None if self._machine is None else self._machine.gradient(config.name)
        return np.zeros(config.size, np.float32) if found is None else found.reshape(-1)

    def prepared(self, given: Arguments) -> tuple[gradient_machine.GradientMachine, Feed]:
        """Build the network for arguments of the given types; return it with the arguments as its feed.

        Raises:
            UsageError: there are fewer slots than inputs, or a slot does not match its data layer.
        """
        columns = given.columns()
        if len(columns) < len(self._inputs):
            raise UsageError(
                f"the network needs a slot for each of the inputs {self._inputs}, got {len(columns)} slots"
            )
        types = tuple(kind for kind, _ in columns)
        if self._machine is None or types != self._types:
            named = dict(zip(self._inputs, types, strict=False))
            self._machine = gradient_machine.GradientMachine(
                typed(self.network, named),
                self.parameters,
                self.costs,
                device=settings.current().device,
                seed=settings.current().seed,
            )
            self._types = types
        feeder = DataFeeder(self._machine.network.data_types, self._inputs)
        return self._machine, feeder(list(zip(*(column for _, column in columns), strict=True)))


class Trainer:
    """Trains a gradient machine with the optimizer that a configuration's `settings` select."""

    def __init__(self, config: TrainerConfig, machine: GradientMachine) -> None:
        self._machine = machine
        self._spec = (config.configuration.optimizer or Momentum()).spec
        self._updater: LocalUpdater | None = None
        self._of: gradient_machine.GradientMachine | None = None
        self._step = 0
        self._outputs = Arguments()
        self._cost = self._samples = 0.0

    @staticmethod
    def create(conf: TrainerConfig, gradientMachine: GradientMachine) -> Trainer:
        """Return a trainer for a machine, with the optimizer of a configuration.

        Raises:
            UsageError: the network has no cost.
        """
        if not gradientMachine.costs:
            raise UsageError(
                f"none of the outputs {list(gradientMachine.network.outputs)} is a cost: add a cost layer to "
                "outputs(...)"
            )
        return Trainer(conf, gradientMachine)

    def startTrain(self) -> None:
        """Do nothing; the original needs this call, but `create` has prepared everything."""

    startTrainPass = finishTrain = startTrain

    def finishTrainPass(self) -> None:
        """End a pass over the training data."""
        if self._updater is not None:
            self._updater.finish_pass()

    def trainOneDataBatch(self, size: int, args: Arguments) -> float:
        """Train on one batch and return its cost per sample.

        Args:
            size: the number of samples.
        """
        machine, feed = self._machine.prepared(args)
        if self._updater is None:
            self._updater = LocalUpdater(machine, self._spec)
        elif machine is not self._of:
            raise UsageError(
                "trainOneDataBatch: the types of the slots differ from those of the first batch; "
                "create a new GradientMachine for different types"
            )
        self._of = machine
        step = machine.train(feed, self._step, self._machine.network.outputs)
        self._step += 1
        self._updater.update(step.gradients, size)
        self._outputs.put([{"value": step.values[name]} for name in self._machine.network.outputs])
        return step.cost / max(size, 1)

    def getForwardOutput(self) -> Arguments:
        """Return the outputs of the last batch, as `Arguments`."""
        return self._outputs

    def startTestPeriod(self) -> None:
        """Begin a test period: reset its cost and its number of samples."""
        self._cost = self._samples = 0.0

    def testOneDataBatch(self, size: int, args: Arguments) -> None:
        """Test one batch, and add its cost to the test period's cost."""
        machine, feed = self._machine.prepared(args)
        self._cost += machine.test(feed).cost
        self._samples += size

    def finishTestPeriod(self) -> float:
        """End the test period and return its cost per sample."""
        return self._cost / max(self._samples, 1.0)
