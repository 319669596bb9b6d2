# SPDX-License-Identifier: Apache-2.0
"""`Trainer`: trains a `GradientMachine` one batch per call, in a script's own loop."""

from __future__ import annotations

from paddle.swig.arguments import Arguments
from paddle.swig.machine import GradientMachine
from paddle.trainer.config_parser import TrainerConfig
from paddle.v2.errors import UsageError
from paddle.v2.optimizer import Momentum
from paddle.v2.training import gradient_machine
from paddle.v2.training.updater import LocalUpdater


class Trainer:
    """Trains a machine with the optimizer of a configuration's `settings`."""

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
        """Start training: set up the optimizer."""

    startTrainPass = finishTrain = startTrain

    def finishTrainPass(self) -> None:
        """End the pass over the data."""
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
            raise UsageError("the arguments must have the same types as in the first batch")
        self._of = machine
        step = machine.train(feed, self._step, self._machine.network.outputs)
        self._step += 1
        self._updater.update(step.gradients, size)
        self._outputs.put([{"value": step.values[name]} for name in self._machine.network.outputs])
        return step.cost / max(size, 1)

    def getForwardOutput(self) -> Arguments:
        """Return the outputs of the last batch."""
        return self._outputs

    def startTestPeriod(self) -> None:
        """Begin a test period: reset its cost and its number of samples."""
        self._cost = self._samples = 0.0

    def testOneDataBatch(self, size: int, args: Arguments) -> None:
        """Test a batch and add its cost to the running test."""
        machine, feed = self._machine.prepared(args)
        self._cost += machine.test(feed).cost
        self._samples += size

    def finishTestPeriod(self) -> float:
        """End the test and return its cost per sample."""
        return self._cost / max(self._samples, 1.0)
