# SPDX-License-Identifier: Apache-2.0
"""GradientMachine: runs a network's forward and backward passes, forward passes in test mode, and single layers.

The scope's arrays are the parameters: updates change or replace them, and ``Parameters`` reads and writes them here.
The loss is the sum of all costs over the batch, each times its ``coeff``; reported costs do not include ``coeff``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddle.backend import from_host, to_host
from paddle.graph import Executor, Scope, SelectedRows, Variable, append_backward
from paddle.graph.errors import BackwardError
from paddle.graph.scope import fetched
from paddle.ops.base.lod import lod_of, plain, with_lod
from paddle.optim.spec import RowGradient
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.emitter import FED, Emitter, frame_of
from paddle.v2.layer.lengths import check_lengths, meetings
from paddle.v2.model import GRADIENT
from paddle.v2.network import Network
from paddle.v2.parameters import Parameters
from paddle.v2.training.feeder import Feed
from paddle_node.contract.classes import dataclass

Value = NDArray[np.float32]
Gradient = Value | RowGradient


@dataclass(frozen=True)
class Step:
    """The result of one batch: summed cost, gradients by parameter (flat or by row), and requested layer values.

    Values of sequences are `LoDArray`s.
    """

    cost: float
    gradients: Mapping[str, Gradient]
    values: Mapping[str, Any]


class _Runnable:
    """One emitted program with its total cost."""

    def __init__(
        self, network: Network, costs: Sequence[str], *, is_test: bool, moves_statistics: bool
    ) -> None:
        self.emitter = Emitter(
            network.layers, network.parameters, is_test=is_test, moves_statistics=moves_statistics
        )
        self.program = self.emitter.program
        self.costs = [self._total(name) for name in costs]

    def _total(self, name: str) -> Variable:
        return self.emitter.op("reduce_sum", {"X": self.emitter.rows(name)}, {"reduce_all": True})

    def loss(self, names: Sequence[str], others: Sequence[str]) -> Variable:
        """Return the sum of the costs `names` and `others`, each times its coeff."""
        totals = [*self.costs, *map(self._total, others)]
        terms = []
        for name, total in zip([*names, *others], totals, strict=True):
            coeff = float(self.emitter.layers[name].attrs.get("coeff", 1.0))  # type: ignore[arg-type]
            terms.append(total if coeff == 1.0 else self.emitter.op("scale", {"X": total}, {"scale": coeff}))
        return self.emitter.add_all(terms)


class GradientMachine:
    """Runs a network with the values of its parameters, for training and inference. Not thread-safe.

    Args:
        parameters: the initial values, which training changes in place.
        costs: the names of the reported cost layers; may be empty for inference.
        also_trained: the names of other cost layers, which contribute gradients but are not reported.
        seed: the seed of dropout masks, which depend on the seed and the step number.
        held_elsewhere: sparse parameters whose rows ``set_rows`` sets; their complete values are never created.
    """

    def __init__(
        self,
        network: Network,
        parameters: Parameters,
        costs: Sequence[str],
        *,
        also_trained: Sequence[str] = (),
        device: str = "cpu",
        seed: int = 1,
        held_elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        self.network = network
        self.parameters = parameters
        self.scope = Scope()
        self._costs = list(costs)
        self._also_trained = list(also_trained)
        self._seed = seed
        self._rooms: dict[str, Value] = {}
        self._executor = Executor(device, rooms=self._rooms)
        self._runnables: dict[tuple[bool, bool], _Runnable] = {}
        self._gradients: list[tuple[str, str]] = []
        self._held_elsewhere = held_elsewhere
        self._observed: list[str] = []
        self._masks: dict[str, Value] = {}
        self._last: dict[str, Gradient] = {}
        self._meetings = meetings(network.layers)
        _check_layout(network, parameters)

    def train(self, feed: Feed, step: int, read: Sequence[str] = ()) -> Step:
        """Run a forward and a backward pass over a batch; return the costs, gradients and layer values.

        Args:
            step: the number of the batch since training began, which determines the dropout masks.
            read: names of layers whose values are returned, or ``<layer>@GRAD`` for gradients; missing gradients are
                omitted.
        """
        check_lengths(feed, self._meetings)
        runnable = self._runnable(is_test=False)
        wanted = {name: _wanted(runnable.emitter, name) for name in [*read, *self._observed]}
        names = [name for name, value in wanted.items() if value is not None]
        values = [value for value in wanted.values() if value is not None]
        gradients = [gradient for _, gradient in self._gradients]
        results = self._run(runnable, feed, [*runnable.costs, *gradients, *values], step)
        count = len(runnable.costs)
        found = {
            name: self._gradient(name, value)
            for (name, _), value in zip(self._gradients, results[count : count + len(gradients)], strict=True)
        }
        self._last = found
        read_values = {
            name: _host(value) for name, value in zip(names, results[count + len(gradients) :], strict=True)
        }
        return Step(_sum(results[:count]), found, read_values)

    def test(self, feed: Feed, read: Sequence[str] = ()) -> Step:
        """Run a forward pass in test mode; return the cost and the values of the names in `read`."""
        check_lengths(feed, self._meetings)
        runnable = self._runnable(is_test=True)
        read = [name for name in read if not name.endswith(GRADIENT)]
        values = [_readable(runnable.emitter, name) for name in read]
        results = self._run(runnable, feed, [*runnable.costs, *values], 0)
        count = len(runnable.costs)
        return Step(_sum(results[:count]), {}, dict(zip(read, map(_host, results[count:]), strict=True)))

    def outputs(
        self, feed: Feed, layers: Sequence[str], fields: Sequence[str]
    ) -> dict[str, dict[str, NDArray[Any]]]:
        """Return layer name -> field (value, id, prob) -> array, in test mode, with the trainer's newest values."""
        check_lengths(feed, self._meetings)
        runnable = self._runnable(is_test=True)
        emitter = runnable.emitter
        self._follow()
        wanted = [(name, field, _field(emitter, name, field)) for name in layers for field in fields]
        variables = [variable for _, _, variable in wanted if variable is not None]
        results = iter(self._run(runnable, feed, variables, 0))
        found: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in layers}
        for name, field, variable in wanted:
            if variable is not None:
                found[name][field] = _rows(next(results))
        return found

    def observe(self, feed: Feed, step: int, layers: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return values of layers in training mode, with that step's dropout masks; later steps also return them."""
        self._observed.extend(name for name in layers if name not in self._observed)
        runnable = self._runnable(is_test=False, moves_statistics=False)
        values = [_readable(runnable.emitter, name) for name in layers]
        results = self._run(runnable, feed, values, step)
        return dict(zip(layers, map(_rows, results), strict=True))

    def lookups(self, parameter: str) -> list[str]:
        """Return the names of the fed values whose ids select rows of a parameter."""
        block = self._runnable(is_test=False).program.global_block()
        found = [op for op in block.ops if op.type == "lookup_table" and parameter in op.inputs["W"]]
        others = [
            op.type for op in block.ops if parameter in op.reads and not op.type.startswith("lookup_table")
        ]
        if others:
            raise UsageError(
                f"parameter {parameter!r} is sparse_update, but operator {others[0]!r} needs the whole parameter"
            )
        return list(dict.fromkeys(op.inputs["Ids"][0].removesuffix(FED) for op in found))

    def set_rows(self, parameter: str, rows: NDArray[np.int64], values: Value) -> None:
        """Set the rows of a sparse parameter (unique, ascending) that the next runs use."""
        height = self.network.parameters[parameter].shape[0]
        self.scope.set(parameter, SelectedRows(rows, values, height))

    def flat(self, name: str) -> Value:
        """Return a parameter's value in the scope as a 1-D view, for in-place updates."""
        value: Value = self.scope.get(name)
        return value.reshape(-1)

    def show(self, name: str, value: Value) -> None:
        """Use an array as a parameter's value from now on, without a copy.

        It has the parameter's size and can be read-only.
        """
        self.scope.set(name, value.reshape(self.scope.get(name).shape))

    def put_gradient(self, name: str, room: Value) -> None:
        """Make the machine write a parameter's gradients to the caller's array, if its operators support this.

        Args:
            room: float32 array (size,), which contains the last gradient until the next ``train``.
        """
        for parameter, gradient in self._gradients:
            if parameter == name:
                self._rooms[gradient] = room.reshape(self.scope.get(name).shape)

    def newest(self, name: str) -> Value:
        """Return a parameter's current value as a numpy array in host memory."""
        value: Value = to_host(self.flat(name))
        return value

    def replace(self, name: str, value: Value) -> None:
        """Overwrite the value of a parameter in place."""
        flat = self.flat(name)
        flat[...] = from_host(value.reshape(-1), flat)

    def gradient(self, name: str) -> Value | None:
        """Return a parameter's gradient in the last batch, dense and on the host, or None."""
        found = self._last.get(name)
        if found is None:
            return None
        if not isinstance(found, RowGradient):
            flat: Value = to_host(found)
            return flat
        dense = np.zeros(self.network.parameters[name].shape, np.float32)
        dense[found.rows] = found.values
        return dense

    def build(self) -> None:
        """Emit the training program and its gradients, so that errors are detected before training starts."""
        self._runnable(is_test=False)

    def _run(self, runnable: _Runnable, feed: Feed, wanted: Sequence[Variable | str], step: int) -> list[Any]:
        frames = {frame_of(name): np.array([-1, *frame]) for name, frame in runnable.emitter.frames.items()}
        twice = self.network.parameters.keys() & feed.keys()
        fed = {f"{name}{FED}" if name in twice else name: value for name, value in {**frames, **feed}.items()}
        return self._executor.run(runnable.program, fed, wanted, self.scope, step)

    def _runnable(self, *, is_test: bool, moves_statistics: bool = True) -> _Runnable:
        if (found := self._runnables.get((is_test, moves_statistics))) is None:
            found = self._runnables[is_test, moves_statistics] = self._make(is_test, moves_statistics)
        return found

    def _make(self, is_test: bool, moves_statistics: bool) -> _Runnable:
        made = _Runnable(self.network, self._costs, is_test=is_test, moves_statistics=moves_statistics)
        # Layers that may be read later must be in the program before its first run; unread ones are never computed.
        for name, config in self.network.layers.items():
            if not config.group:
                made.emitter.readable(name)
        made.program.random_seed = self._seed
        if self._costs and not is_test and moves_statistics:
            self._gradients = self._derive(made.loss(self._costs, self._also_trained))
        for parameter in made.program.global_block().all_parameters():
            if parameter.name not in self._held_elsewhere and not self.scope.has(parameter.name):
                value = self.parameters.current(parameter.name).reshape(parameter.shape)
                if not (is_test or value.flags.writeable):  # an earlier trainer's, in memory of a server
                    value = value.copy()
                self.scope.set(parameter.name, value)
                self._prune(parameter.name)
        return made

    def _derive(self, loss: Variable) -> list[tuple[str, str]]:
        """Append the gradients of trainable parameters; return the names of both. Static networks only compute."""
        static = [name for name, config in self.network.parameters.items() if config.is_static]
        if len(static) == len(self.network.parameters):
            warnings.warn(f"training changes nothing: all parameters are static: {static}", stacklevel=2)
            return []
        try:
            return [(parameter.name, gradient.name) for parameter, gradient in append_backward(loss)]
        except BackwardError as error:
            why = f"; {static} are static, because their first declarations are" if static else ""
            raise UsageError(
                f"training changes nothing: no trainable parameter has an effect on the cost {self._costs}{why}"
            ) from error

    def _follow(self) -> None:
        """Update references to the arrays that hold the values; arrays shared with a server on this node have moved."""
        for name, config in self.network.parameters.items():
            if config.sparse_update or not self.scope.has(name):
                continue
            mine, newest = self.scope.get(name), self.parameters.current(name)
            if isinstance(mine, np.ndarray) and not np.may_share_memory(mine, newest):
                self.show(name, newest)

    def _gradient(self, name: str, value: Any) -> Gradient:
        if isinstance(value, SelectedRows):
            merged = value.merged()
            return RowGradient(merged.rows, merged.values)
        flat: Value = value.reshape(-1)
        if name in self._masks:
            flat *= from_host(self._masks[name], flat)
        return flat

    def _prune(self, name: str) -> None:
        for hook in self.network.parameters[name].update_hooks:
            value = self.flat(name)
            kept = int((1.0 - hook.sparsity_ratio) * value.size)
            mask = np.zeros(value.size, np.float32)
            mask[np.argsort(-np.abs(value), kind="stable")[:kept]] = 1.0
            value *= mask
            self._masks[name] = mask


class LayerOutputs:
    """The ``gm`` attribute of events: a batch's layer values in training mode.

    A layer that is requested for the first time is recomputed with the batch's dropout masks. This is exact in
    EndForwardBackward, but in EndIteration it uses the new weights. In later batches, the step itself returns the
    layer.
    """

    def __init__(self, machine: GradientMachine, feed: Feed, step: int, known: Mapping[str, Any]) -> None:
        self._machine = machine
        self._feed = feed
        self._step = step
        self._known: dict[str, NDArray[Any]] = {name: plain(value) for name, value in known.items()}

    def getLayerOutputs(self, layerNames: str | Sequence[str]) -> dict[str, dict[str, NDArray[Any] | None]]:  # noqa: N802
        """Return a mapping from layer names to {"value", "id", "prob"}; the ids of an integer layer are under "id"."""
        names = [layerNames] if isinstance(layerNames, str) else list(layerNames)
        unknown = [name for name in names if name not in self._known]
        if unknown:
            self._known.update(self._machine.observe(self._feed, self._step, unknown))
        found: dict[str, dict[str, NDArray[Any] | None]] = {}
        for name in names:
            value = self._known[name]
            is_id = value.dtype.kind == "i"
            found[name] = {
                "value": None if is_id else fetched(value),
                "id": value.reshape(-1) if is_id else None,
                "prob": None,
            }
        return found


def _wanted(emitter: Emitter, name: str) -> Variable | str | None:
    """Return a layer's value, or for ``<layer>@GRAD`` its gradient, None if none is computed."""
    if not name.endswith(GRADIENT):
        return _readable(emitter, name)
    forms = (f"{each.name}{GRADIENT}" for each in emitter.forms(name.removesuffix(GRADIENT)))
    return next((each for each in forms if emitter.block.has_var(each)), None)


def _readable(emitter: Emitter, name: str) -> Variable:
    found = emitter.readable(name) if name in emitter.layers else None
    if found is None:
        raise UsageError(f"layer {name!r} has no value to read; the layers are {list(emitter.layers)}")
    return found


def _host(value: Any) -> Any:
    """Return a fetched value on the host, with its sequences if it has any."""
    return with_lod(_rows(value), lod_of(value))


def _rows(value: Any) -> NDArray[Any]:
    """Return a fetched value on the host; for sequences, all rows."""
    return to_host(plain(value))  # type: ignore[no-any-return]


def _sum(costs: Sequence[Any]) -> float:
    return float(sum(float(_rows(cost).sum()) for cost in costs))


def _field(emitter: Emitter, name: str, field: str) -> Variable | None:
    if field == "value":
        return emitter.readable(name)
    if field == "id":
        return emitter.ids.get(name)
    if field == "prob":
        return emitter.readable(name) if emitter.layers[name].type in ("max_id", "beam_search") else None
    raise UsageError(f"field must be value, id or prob, got {field!r}")


def _check_layout(network: Network, parameters: Parameters) -> None:
    """Check that parameters belong to this network; dimensions of size 1 are ignored."""
    if not isinstance(parameters, Parameters):
        raise UsageTypeError(
            "parameters must be the result of paddle.parameters.create or "
            f"Parameters.from_tar, got {parameters!r:.80}"
        )
    for name, wanted in network.parameters.items():
        if name not in parameters:
            raise UsageError(
                f"the network needs the parameter {name!r}, which the given parameters do not contain; create them "
                f"from the same layers: layers declared again have new names. They contain {parameters.names()}"
            )
        given = parameters.config(name)
        if not given.has_layout_of(wanted):
            raise UsageError(
                f"parameter {name!r} has shape {given.shape} in the given parameters, but {wanted.shape} in this "
                "network: they were created from, or saved by, a different network. Declare the same layers as in "
                "that network, or give this layer's parameter a different name"
            )
