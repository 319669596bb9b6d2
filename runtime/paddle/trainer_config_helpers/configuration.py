# SPDX-License-Identifier: Apache-2.0
"""The parts of a configuration file other than its layers: inputs, outputs, settings and data sources.

Functions that a configuration file calls change the `current` configuration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddle.graph.operator import warn_script
from paddle.v2 import model
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from paddle.v2.optimizer import Optimizer
from paddle_node.contract.classes import dataclass, field


@dataclass(frozen=True)
class DataSource:
    """A data source of a configuration: a data provider and its files.

    Attributes:
        files: a list file with one path per line, or the paths.
        module: module with the provider.
        provider: name of the provider in the module.
        arguments: arguments of its `init_hook`.
    """

    files: str | Sequence[str]
    module: str
    provider: str
    arguments: Mapping[str, Any]


@dataclass
class Configuration:
    """The contents of one configuration file: layers, inputs, settings and data sources.

    Attributes:
        arguments: values for `get_config_arg`.
        space: the declarations of its layers.
        inputs: names of data layers in the order of a provider's columns. If empty: depth-first from the outputs, and
            then those that only evaluators read.
        settings: the arguments of `settings`.
        is_warned: whether the script was warned that nothing reads this configuration.
    """

    arguments: Mapping[str, str] = field(default_factory=dict)
    space: model.Model | None = None
    inputs: list[str] = field(default_factory=list)
    outputs: list[LayerOutput] = field(default_factory=list)
    batch_size: int = 0
    optimizer: Optimizer | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    train: DataSource | None = None
    test: DataSource | None = None
    is_warned: bool = False

    @property
    def input_order(self) -> list[str]:
        """The names of the data layers in the order of a provider's columns."""
        if self.inputs:
            return self.inputs
        found: dict[str, None] = {}
        for output in self.outputs:
            _add_inputs(output, found, set())
        return list(found | dict.fromkeys(self._evaluated_inputs()))

    def _evaluated_inputs(self) -> Iterator[str]:
        """Yield the names of the data layers that evaluators read directly."""
        assert self.space is not None
        for evaluator in self.space.evaluators:
            for name in evaluator.inputs:
                source = self.space.layers[name]
                while source.type == "ids":  # of the layer that an evaluator was given
                    source = self.space.layers[source.inputs[0].layer]
                if source.type == "data":
                    yield source.name

    def add_outputs(self, layers: Sequence[LayerOutput]) -> None:
        """Append layers to the outputs, each once."""
        known = {layer.name for layer in self.outputs}
        self.outputs += [layer for layer in layers if layer.name not in known]

    def check(self) -> None:
        """Check that the configuration has outputs.

        Raises:
            UsageError: the configuration has no outputs.
        """
        if not self.outputs:
            raise UsageError(
                "the configuration never calls outputs(...): there is nothing to train or predict"
            )


_stack: list[Configuration] = [Configuration()]


def current() -> Configuration:
    """Return the configuration that is being read; warn if a script declares one that nothing reads."""
    if len(_stack) == 1 and not _stack[0].is_warned:
        _stack[0].is_warned = True
        warn_script(
            "settings, outputs and data sources have an effect only in a configuration that `paddle train "
            "--config=FILE` reads; paddle.v2 takes an optimizer in paddle.trainer.SGD(cost, parameters, "
            "update_equation), a batch size in paddle.batch, and a reader in train"
        )
    return _stack[-1]


def argument(name: str) -> str | None:
    """Return the text of an argument of the configuration that is being read; None if it is not given."""
    return _stack[-1].arguments.get(name)


@contextlib.contextmanager
def reading(configuration: Configuration) -> Iterator[None]:
    """Return a context in which a configuration is the current one, and layers are declared in its namespace."""
    configuration.space = configuration.space or model.Model()
    _stack.append(configuration)
    try:
        with model.entered(configuration.space):
            yield
    finally:
        _stack.pop()


def _add_inputs(layer: LayerOutput, found: dict[str, None], seen: set[str]) -> None:
    waiting = [layer]
    while waiting:  # depth first, parents in their order
        at = waiting.pop()
        if at.name in seen:
            continue
        seen.add(at.name)
        if at.layer_type == "data":
            found[at.name] = None
        waiting.extend(reversed(at.parents))
