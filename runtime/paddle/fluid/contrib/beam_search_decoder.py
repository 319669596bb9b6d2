# SPDX-License-Identifier: Apache-2.0
"""TrainingDecoder and BeamSearchDecoder: run a StateCell over target sequences, or over hypotheses of a beam search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from paddle.fluid import layers
from paddle.fluid.contrib.state_cell import InitState, Keep, StateCell
from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.program import bodies
from paddle.fluid.program.block import Block
from paddle.fluid.program.program import default_main_program
from paddle.fluid.program.variable import Variable

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]


class _Decoder:
    """Base of both decoders: a StateCell, and a block that can be defined only once."""

    def __init__(self, state_cell: StateCell) -> None:
        self._cell, self._is_open, self._is_filled = state_cell, False, False
        state_cell.enter(self)

    @property
    def state_cell(self) -> StateCell:
        """The StateCell; only valid inside the block."""
        self._inside("state_cell")
        return self._cell

    @contextmanager
    def _filling(self) -> Iterator[None]:
        if self._is_open or self._is_filled:
            raise FluidError(f"{type(self).__name__}: block() can be used only once; create another decoder")
        self._is_open = True
        yield
        self._is_open, self._is_filled = False, True
        self._cell.leave()

    def keep_state(self, init: InitState) -> tuple[Variable, Keep]:
        """Return a state's variable in the current step, and a function that sets the state for the next step."""
        raise NotImplementedError

    def _inside(self, what: str) -> None:
        if not self._is_open:
            raise FluidError(f"{type(self).__name__}.{what} must be called inside its block")

    def _outside(self) -> None:
        if not self._is_filled:
            raise FluidError(f"{type(self).__name__}: define its block before you read its results")


class TrainingDecoder(_Decoder):
    """Runs a state cell over target sequences (teacher forcing), for training."""

    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        self.dynamic_rnn = layers.DynamicRNN(name)
        super().__init__(state_cell)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Collect the operators of one step in a `with` statement."""
        with self._filling(), self.dynamic_rnn.block():
            yield

    def step_input(self, x: Variable) -> Variable:
        """Return the rows of the given sequences that belong to the current step; see `layers.DynamicRNN`."""
        self._inside("step_input")
        return self.dynamic_rnn.step_input(x)

    def static_input(self, x: Variable) -> Variable:
        """Return the rows of a static input that belong to the current step's sequences; see `layers.DynamicRNN`."""
        self._inside("static_input")
        return self.dynamic_rnn.static_input(x)

    def output(self, *outputs: Variable) -> None:
        """Declare variables as the outputs of each step."""
        self._inside("output")
        self.dynamic_rnn.output(*outputs)

    def __call__(self) -> Variable | list[Variable]:
        """Return the outputs of all steps: one variable, or a list."""
        self._outside()
        return self.dynamic_rnn()

    def keep_state(self, init: InitState) -> tuple[Variable, Keep]:
        """Return a state's variable in the current step, and a function that sets the state for the next step."""
        memory = self.dynamic_rnn.memory(init=init.value)
        return memory, lambda value: self.dynamic_rnn.update_memory(memory, value)


class BeamSearchDecoder(_Decoder):
    """Generates sequences by beam search: a state cell extends the best hypotheses of each source word by word.

    Call `decode()`, or define the step in `block()`.
    """

    def __init__(
        self,
        state_cell: StateCell,
        init_ids: Variable,
        init_scores: Variable,
        target_dict_dim: int,
        word_dim: int,
        input_var_dict: Mapping[str, Variable] = {},
        topk_size: int = 50,
        sparse_emb: bool = True,
        max_len: int = 100,
        beam_size: int = 1,
        end_id: int = 1,
        name: str | None = None,
    ) -> None:
        """Create the decoder; words are generated step by step for all sentences of a batch.

        Args:
            state_cell: the states.
            init_ids: (n, 1) int64 with two levels of LoD: the first word of each sentence.
            init_scores: (n, 1) float32, with the same two levels.
            target_dict_dim: size of the dictionary.
            word_dim: width of a word's embedding.
            input_var_dict: inputs of the cell that are a row or sequence for each source, by name; every other input is
                the embedding of the word before.
            topk_size: number of candidate words per beam.
            sparse_emb: whether the embedding's gradient is sparse.
            max_len: maximum number of words.
            beam_size: number of beams per source sentence.
            end_id: the word that ends a sentence.
            name: ignored.
        """
        self._counter = layers.zeros([1], "int64")
        self._counter.stop_gradient = True
        self._zero = layers.fill_constant([1], "int64", 0)
        self._most = layers.fill_constant([1], "int64", max_len)
        self._continues = layers.less_than(self._counter, self._most)
        self._while = layers.While(self._continues)
        self._body: Block | None = None
        self._arrays: dict[str, Variable] = {}
        self._written: list[tuple[Variable, Variable]] = []
        self._ids: Variable | None = None
        self._scores: Variable | None = None
        self._first = init_ids, init_scores
        self._words, self._width, self._sparse = target_dict_dim, word_dim, sparse_emb
        self._inputs, self._topk, self._beams, self._end = dict(input_var_dict), topk_size, beam_size, end_id
        super().__init__(state_cell)

    @contextmanager
    def block(self) -> Iterator[None]:
        """Collect the operators of one step; `update_array` and `update_states` take effect when the block ends."""
        with self._filling(), self._while.block():
            self._body = default_main_program().current_block()
            yield
            with layers.Switch() as switch, switch.case(self._continues):
                layers.increment(self._counter)
                for value, array in self._written:
                    layers.array_write(value, self._counter, array)
                layers.less_than(self._counter, self._most, cond=self._continues)

    def early_stop(self) -> None:
        """Stop the search at this step, and discard the step's results."""
        layers.fill_constant([1], "bool", 0, out=self._continues)

    def decode(self) -> None:
        """Define the standard step: embedding, cell, projection, softmax, and beam search.

        Raises:
            FluidError: input_var_dict has a key that is not an input of the cell.
        """
        cell = self._cell
        unknown = self._inputs.keys() - cell.inputs.keys()
        if unknown:
            raise FluidError(
                f"BeamSearchDecoder: {min(unknown)!r} is not an input of the decoder's StateCell: "
                f"{', '.join(cell.inputs)}"
            )
        with self.block():
            ids = self.read_array(self._first[0], is_ids=True)
            scores = self.read_array(self._first[1], is_scores=True)
            word = layers.embedding(ids, [self._words, self._width], self._sparse, dtype="float32")
            kept = {each: self.read_array(value) for each, value in self._inputs.items()}
            given = {each: layers.sequence_expand(value, scores) for each, value in kept.items()}
            for each in cell.state_names:
                cell.set_state(each, layers.sequence_expand(cell.get_state(each), scores))
            cell.compute_state({each: given.get(each, word) for each in cell.inputs})
            state = layers.lod_reset(cell.out_state(), scores)
            best, words = layers.topk(layers.fc(state, self._words, act="softmax"), self._topk)
            total = layers.elementwise_add(layers.log(best), layers.reshape(scores, [-1]), axis=0)
            chosen, chosen_scores = layers.beam_search(
                ids, scores, words, total, self._beams, self._end, level=0
            )
            cell.update_states()
            self.update_array(ids, chosen)
            self.update_array(scores, chosen_scores)
            for each, value in kept.items():
                self.update_array(value, given[each])
            with layers.Switch() as switch, switch.case(layers.is_empty(chosen)):
                self.early_stop()

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Variable:
        """Return the value that the previous step passed to `update_array`; in the first step, `init`.

        Args:
            init: the first value.
            is_ids: whether the array holds the ids of the words that the decoder returns.
            is_scores: whether the array holds their scores.

        Raises:
            FluidError: is_ids and is_scores are both set.
            FluidTypeError: init is not a variable.
        """
        self._inside("read_array")
        if is_ids and is_scores:
            raise FluidError("read_array: set is_ids or is_scores, not both")
        _check("read_array", init)
        array, value = self._kept(init)
        if is_ids:
            self._ids = array
        if is_scores:
            self._scores = array
        self._arrays[value.name] = array
        return value

    def update_array(self, array: Variable, value: Variable) -> None:
        """Set the next step's value of an array, which replaces the value that `read_array` returned.

        Raises:
            FluidError: `read_array` did not return this array.
            FluidTypeError: an argument is not a variable.
        """
        self._inside("update_array")
        _check("update_array", array)
        _check("update_array", value)
        if array.name not in self._arrays:
            raise FluidError(
                f"update_array: {array.name!r} was not returned by read_array; pass an array that read_array returned"
            )
        self._written.append((value, self._arrays[array.name]))

    def __call__(self) -> tuple[Variable, Variable]:
        """Return the sentences and their scores; see `layers.beam_search_decode`.

        Raises:
            FluidError: the block is not defined, or `read_array` was not called for ids and for scores.
        """
        self._outside()
        if self._ids is None or self._scores is None:
            raise FluidError(
                "BeamSearchDecoder: call read_array twice first: once with is_ids=True and once with is_scores=True"
            )
        ids, scores = layers.beam_search_decode(self._ids, self._scores, self._beams, self._end)
        return ids, scores

    def keep_state(self, init: InitState) -> tuple[Variable, Keep]:
        """Return a state's variable in the current step, and a function that sets the state for the next step."""
        array, value = self._kept(init.value)
        return value, lambda after: self._written.append((after, array))

    def _kept(self, init: Variable) -> tuple[Variable, Variable]:
        """Return an array with the given first element, and the variable that a step reads from it."""
        assert self._body is not None
        with bodies.around(self._body):
            array = layers.array_write(init, self._zero)
        return array, layers.array_read(array, self._counter)


def _check(what: str, variable: object) -> None:
    if not isinstance(variable, Variable):
        raise FluidTypeError(f"{what}: expected a Variable, got {variable!r}")
