# SPDX-License-Identifier: Apache-2.0
"""Emitter: translates declared layers to the operators of a Program.

A layer's value is stored as rows (N, size), or as an image (N, C, H, W) until another layer needs rows; both are views
of the same memory. LAYERS maps each type of layer to a function that appends operators through an Emitter.

A softmax operator is emitted only if its result is read. A cross-entropy that follows directly uses the logits instead,
which is faster, and exact where a probability would round to 0.

A batch of sparse vectors is fed as its distinct columns (K, 1) and a dense matrix (N, K) of these columns, so that x W
is matrix @ W[columns]. The cost depends on the number of columns in use, not on the width of the vector, and the
gradient of a ``sparse_update`` weight has one row per column in use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from paddle.graph import Block, Parameter, Program, Variable
from paddle.v2.activation import OPERATORS
from paddle.v2.data_type import NO_WORD
from paddle.v2.errors import UsageError
from paddle.v2.model import Extras, InputConfig, LayerConfig
from paddle.v2.parameter_format import ParameterConfig
from paddle_node.contract.classes import NamedTuple, replace

Emit: TypeAlias = "Callable[[Emitter, LayerConfig], Variable | None]"


class Layer(NamedTuple):
    """The definition of a type of layer.

    Attributes:
        emit: function that appends operators and returns the value before activation and dropout, or None if it has set
            the layer's value or ids itself.
        called: the name that scripts use for the type.
        together: the number of inputs whose rows must correspond; None means all.
        sequences: the inputs that must be sequences. If samples are sequences of sequences, such an input is seen as
            one sequence per sample, and an output with the same rows has both levels again.
        one_a_sample: whether the output has one row per sequence.
        by_levels: whether it handles sequences of sequences itself.
        nested: whether its first input must be sequences of sequences.
    """

    emit: Emit
    called: str
    together: int | None = 0
    sequences: tuple[int, ...] = ()
    one_a_sample: bool = False
    by_levels: bool = False
    nested: bool = False


ONE_LEVEL = (
    "layer {layer!r} operates on sub-sequences, but its input {input!r} has only one level of sequences: declare the "
    "underlying data layer with two levels, such as integer_value_sub_sequence, or use the level TO_NO_SEQUENCE"
)
FED = "@fed"
LAYERS: dict[str, Layer] = {}
"""Type of a layer -> its entry, from the module with its declaration."""


def emits(
    kind: str,
    *,
    called: str = "",
    together: int | None = 0,
    sequences: tuple[int, ...] = (),
    one_a_sample: bool = False,
    by_levels: bool = False,
    nested: bool = False,
) -> Callable[[Emit], Emit]:
    """Return a decorator that registers a function as the emitter of layers of type `kind`; see `Layer`."""

    def register(function: Emit) -> Emit:
        LAYERS[kind] = Layer(function, called or kind, together, sequences, one_a_sample, by_levels, nested)
        return function

    return register


def frame_of(name: str) -> str:
    """Return the name of the (4,) variable that contains the shape (-1, C, H, W) of a data layer's images."""
    return f"{name}.frame"


class Emitter:
    """Builds the Program of some layers, for training or for testing.

    Args:
        layers: name -> configuration, in creation order.
        parameters: name -> configuration.
        is_test: whether dropout scales by (1 - rate), and batch normalization uses its moving statistics.
        moves_statistics: whether batch normalization updates its moving statistics; only if not is_test.

    Attributes:
        frames: data layers whose samples determine the height and width of images -> the default size.
    """

    def __init__(
        self,
        layers: Mapping[str, LayerConfig],
        parameters: Mapping[str, ParameterConfig],
        *,
        is_test: bool,
        moves_statistics: bool = True,
    ) -> None:
        self.layers = layers
        self.parameters = parameters
        self.is_test = is_test
        self.moves_statistics = moves_statistics and not is_test
        self.program = Program()
        self.block: Block = self.program.global_block()
        self.ids: dict[str, Variable] = {}
        self.groups: dict[str, dict[str, Variable]] = {}
        self.sparse: dict[str, tuple[Variable, Variable]] = {}
        self.frames: dict[str, tuple[int, int, int]] = {}
        self.further: dict[tuple[str, str], Variable] = {}
        self._rows: dict[str, Variable] = {}
        self._images: dict[str, Variable] = {}
        self._logits: dict[str, Variable] = {}
        self._probabilities: dict[str, Variable] = {}
        self._before_sigmoid: dict[str, Variable] = {}
        self._parameters: dict[str, Parameter] = {}
        self._count = 0
        self._layer = ""
        for config in (each for each in layers.values() if not each.group):
            self.emit(config)

    def emit(self, config: LayerConfig) -> None:
        """Append the operators of one layer to the current block."""
        self._layer, outer_layer, entry = config.name, self._layer, LAYERS[config.type]
        nested = [] if entry.by_levels or not entry.sequences else self._join(config, entry)
        value = entry.emit(self, config)
        for room, name, whole in nested:
            room[name] = whole
        if nested and entry.together != 0 and not entry.one_a_sample:
            like = nested[0][2]
            value = None if value is None else self.levelled(value, like)
            if config.name in self.ids:
                self.ids[config.name] = self.levelled(self.ids[config.name], like)
        if value is not None:
            self.finish(config, value)
        self._layer = outer_layer

    def _join(self, config: LayerConfig, entry: Layer) -> list[tuple[dict[str, Variable], str, Variable]]:
        """View inputs with two levels as one sequence per sample.

        Return where they are stored and their old values.
        """
        nested = []
        names = [link.layer for place, link in enumerate(config.inputs) if place in entry.sequences]
        for name in dict.fromkeys(names):
            room = self.ids if name in self.ids else self._rows
            value = room.get(name, self._logits.get(name))
            if value is not None and value.lod_level > 1:
                whole = value if room is self.ids else self.rows(name)
                nested.append((room, name, whole))
                room[name] = self.joined(whole)
        return nested

    def rows(self, name: str) -> Variable:
        """Return the value of a layer as (N, size), for computations."""
        if name in self._logits and name not in self._rows:
            self._rows[name] = self.activated(self._logits[name], "softmax")
        if name not in self._rows:
            config = self.layers[name]
            if name not in self._images:
                reader, kind = self.layers.get(self._layer, config), config.input_type
                what = (kind.described("coeff" in reader.attrs) if kind else config.type) + reader.created
                raise UsageError(f"layer {self._layer!r} needs numbers, but its input {name!r} is {what}")
            # If samples determine the height and width of an image, its rows may have a different size from the layer.
            batch = 0 if -1 in self._images[name].shape[1:] else -1
            self._rows[name] = self.reshape(self._images[name], [batch, config.size])
        return self._rows[name]

    def first(self, config: LayerConfig) -> Variable:
        """Return the value of a layer's first input as rows (N, size)."""
        return self.rows(config.inputs[0].layer)

    def inputs(self, config: LayerConfig) -> list[Variable]:
        """Return the values of a layer's inputs as rows, (N, size) each."""
        return [self.rows(link.layer) for link in config.inputs]

    def sequence(self, name: str) -> Variable:
        """Return a variable with the sequence lengths of a layer; the contents of its rows are arbitrary."""
        if name in self.sparse:
            return self.sparse[name][1]
        return self.ids[name] if name in self.ids and name not in self._rows else self.rows(name)

    def readable(self, name: str) -> Variable | None:
        """Return a layer's value for reading only; None for sparse inputs."""
        if name not in self._rows and name in self._probabilities:
            return self._probabilities[name]
        if name in self.ids and name not in self._rows:
            return self.ids[name]
        return None if name in self.sparse else self.rows(name)

    def forms(self, name: str) -> list[Variable]:
        """Return the variables that contain a layer's value as rows, as an image, and before its softmax."""
        held = (self._rows, self._images, self._logits)
        return [variables[name] for variables in held if name in variables]

    def image(self, name: str, channels: int, height: int, width: int) -> Variable:
        """Return the value of a layer as (N, channels, height, width)."""
        if name not in self._images and name in self.frames:
            self.frames[name] = (channels, height, width)
            rows = self._rows[name]
            rows.shape = (-1, -1)
            inputs = {"X": rows, "Shape": self.block.var(frame_of(name))}
            attrs = {"shape": [-1, channels, -1, -1]}
            self._images[name] = self.ops("reshape2", inputs, attrs, ["Out", "XShape"])[0]
        elif name not in self._images:
            self._images[name] = self.reshape(self.rows(name), [-1, channels, height, width])
        return self._images[name]

    def label(self, name: str) -> Variable:
        """Return the value of an integer data layer, (N, 1) int64."""
        if name not in self.ids:
            raise UsageError(
                f"layer {self._layer!r} needs integers from {name!r}: use data_type.integer_value"
            )
        return self.ids[name]

    def numbers(self, name: str) -> Variable:
        """Return a layer's value as (N, size), even for an integer data layer."""
        if name not in self.ids or name in self._rows:
            return self.rows(name)
        return self.op("cast", {"X": self.ids[name]}, {"in_dtype": "int64", "out_dtype": "float32"})

    def logits(self, name: str) -> Variable | None:
        """Return the input of a layer's softmax, if no softmax operator has been emitted yet."""
        return self._logits.get(name) if name not in self._rows else None

    def before_sigmoid(self, name: str) -> Variable | None:
        """Return the input of a layer's sigmoid, if the sigmoid is its last operator."""
        return self._before_sigmoid.get(name)

    def joined(self, value: Variable) -> Variable:
        """Convert nested sequences to one sequence per sample; return other values unchanged."""
        return self.op("sequence_join", {"X": value}) if value.lod_level > 1 else value

    def levelled(self, value: Variable, like: Variable) -> Variable:
        """Return the rows of `joined` sequences with their original sequence levels."""
        return self.op("lod_reset", {"X": value, "Y": like}) if like.lod_level > 1 else value

    def set_rows(self, name: str, value: Variable) -> None:
        """Set the value of a layer that other code computes: a step's view of an outer layer, or a layer's ids."""
        (self.ids if value.dtype.kind == "i" else self._rows)[name] = value

    def see(self, name: str, value: Variable, source: str) -> None:
        """Set a layer's value to a step's view of a layer outside of the group, which may be sparse."""
        if source in self.sparse:
            self.sparse[name] = (self.sparse[source][0], value)
        else:
            self.set_rows(name, value)

    def set_probabilities(self, name: str, value: Variable) -> None:
        """Record a layer's softmax, which a different operator has computed as a by-product."""
        self._probabilities[name] = value

    def parameter(self, name: str, shape: Sequence[int] | None = None) -> Parameter:
        """Return the Program's parameter of this name in the shape ``shape``, or in the shape of its first use."""
        if name not in self._parameters:
            config = self.parameters[name]
            self._parameters[name] = self.program.global_block().create_parameter(
                name=name, shape=list(shape or config.shape), dtype="float32", trainable=not config.is_static
            )
        return self._parameters[name]

    def shaped_parameter(self, name: str, shape: Sequence[int]) -> Variable:
        """Return a parameter in the given shape, even if a different layer uses it in a different shape."""
        found: Variable = self.parameter(name, shape)
        return found if tuple(found.shape) == tuple(shape) else self.reshape(found, shape)

    def factors(self, link: InputConfig) -> tuple[Variable, Variable]:
        """Return the two matrices whose product is x W: (N, K) and (K, width)."""
        if link.layer in self.sparse:
            columns, matrix = self.sparse[link.layer]
            return matrix, self.lookup(columns, link.parameter)
        return self.rows(link.layer), self.parameter(link.parameter)

    def product(self, link: InputConfig) -> Variable:
        """Append the product X W of one input, and return it, (N, width of W)."""
        return self.binary("mul", *self.factors(link), x_num_col_dims=1, y_num_col_dims=1)

    def dense(self, name: str) -> Variable:
        """Return the value of a layer as (N, size); sparse inputs and ids become dense rows with zeros."""
        if name in self.ids:
            return self.unary("one_hot", self.ids[name], depth=self.layers[name].size)
        if name not in self.sparse:
            return self.rows(name)
        columns, matrix = self.sparse[name]
        places = self.unary("one_hot", columns, depth=self.layers[name].size)
        return self.binary("mul", matrix, places, x_num_col_dims=1, y_num_col_dims=1)

    def lookup(self, ids: Variable, parameter: str) -> Variable:
        """Append an embedding lookup; return the rows of a parameter for some ids, (number of ids, width)."""
        sparse = self.parameters[parameter].sparse_update
        attrs = {"is_sparse": True} if sparse else {"is_sparse": False, "padding_idx": NO_WORD}
        return self.op("lookup_table", {"W": self.parameter(parameter), "Ids": ids}, attrs)

    def input(self, name: str, shape: Sequence[int], dtype: str, levels: int = 0) -> Variable:
        """Return a variable that is fed, with `levels` of sequences; a parameter can have the same name."""
        name = f"{name}{FED}" if name in self.parameters else name
        return self.block.create_var(
            name=name, shape=list(shape), dtype=dtype, stop_gradient=True, lod_level=levels
        )

    def temp(self, shape: Sequence[int] = (), dtype: str = "float32") -> Variable:
        """Create a temporary variable for an operator's output in the current layer."""
        self._count += 1
        return self.block.create_var(name=f"{self._layer}.tmp_{self._count}", shape=list(shape), dtype=dtype)

    def activated(self, value: Variable, activation: str) -> Variable:
        """Append the operator of an activation class and return its output."""
        if not activation:
            return value
        kind, attrs = OPERATORS[activation]
        if kind == "sequence_softmax":
            return self.levelled(self.op(kind, {"X": self.joined(value)}, attrs), value)
        return self.op(kind, {"X": value}, attrs)

    def unary(self, kind: str, value: Variable, **attrs: Any) -> Variable:
        """Append an operator of one input and return its output."""
        return self.op(kind, {"X": value}, attrs)

    def binary(self, kind: str, x: Variable, y: Variable, **attrs: Any) -> Variable:
        """Append an operator of two inputs and return its output."""
        return self.op(kind, {"X": x, "Y": y}, attrs)

    def row_sum(self, value: Variable) -> Variable:
        """Append a sum over each row, and return it, (N, 1)."""
        return self.unary("reduce_sum", value, dim=[1], keep_dim=True)

    def columns(self, value: Variable, start: int, end: int, axis: int = 1) -> Variable:
        """Append a slice of `value` and return it: positions [start, end) of one axis, by default the columns."""
        return self.op("slice", {"Input": value}, {"axes": [axis], "starts": [start], "ends": [end]})

    def op(
        self, kind: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any] | None = None, out: str = "Out"
    ) -> Variable:
        """Append an operator with one output, in slot ``out``, and return it."""
        return self.ops(kind, inputs, attrs, [out])[0]

    def ops(
        self,
        kind: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None,
        outs: Sequence[str],
        existing: Mapping[str, Variable] | None = None,
    ) -> list[Variable]:
        """Append an operator and return its outputs in the slots ``outs``; some may be ``existing`` variables."""
        results = [(existing or {}).get(slot) or self.temp() for slot in outs]
        slots = {slot: value if isinstance(value, list) else [value] for slot, value in inputs.items()}
        outputs = {slot: [value] for slot, value in zip(outs, results, strict=True)}
        made = self.block.append_op(type=kind, inputs=slots, outputs=outputs, attrs=dict(attrs or {}))
        origin = self.layers[self._layer].origin if self._layer else ""
        self.block.ops[-1] = replace(made, origin=f"by layer {self._layer!r} {origin}".rstrip())
        return results

    def reshape(self, value: Variable, shape: Sequence[int]) -> Variable:
        """Append a reshape to the given shape, with -1 for the batch size, and return the result."""
        if tuple(value.shape) == tuple(shape):
            return value
        return self.ops("reshape2", {"X": value}, {"shape": list(shape)}, ["Out", "XShape"])[0]

    def add_all(self, terms: Sequence[Variable]) -> Variable:
        """Append a sum of values of equal shape, and return it."""
        return terms[0] if len(terms) == 1 else self.op("sum", {"X": list(terms)})

    def add_bias(self, value: Variable, bias: str) -> Variable:
        """Append the addition of a bias [1, size] to every row, unless its name is empty; return the result."""
        if not bias:
            return value
        vector = self.shaped_parameter(bias, [self.parameters[bias].size])
        return self.op("elementwise_add", {"X": value, "Y": vector}, {"axis": 1})

    def finish(self, config: LayerConfig, value: Variable) -> None:
        """Apply activation, dropout and error clipping, and store the result as the layer's value."""
        extras = config.extras
        if config.activation == "softmax" and not extras.error_clipping_threshold:
            self._logits[config.name] = self.reshape(value, [-1, config.size])
            return
        if config.activation == "sigmoid" and extras == Extras():
            self._before_sigmoid[config.name] = self.reshape(value, [-1, config.size])
        value = self.activated(value, config.activation)
        if extras.drop_rate:
            value = self._dropout(value, extras.drop_rate)
        if extras.error_clipping_threshold:
            value = self.op("error_clip", {"X": value}, {"threshold": extras.error_clipping_threshold})
        (self._images if len(value.shape) == 4 else self._rows)[config.name] = value

    def _dropout(self, value: Variable, rate: float) -> Variable:
        if self.is_test:
            return self.op("scale", {"X": value}, {"scale": 1.0 - rate})
        attrs = {"dropout_prob": rate, "dropout_implementation": "downgrade_in_infer"}
        return self.ops("dropout", {"X": value}, attrs, ["Out", "Mask"])[0]
