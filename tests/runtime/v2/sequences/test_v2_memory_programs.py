# SPDX-License-Identifier: Apache-2.0
"""Translation with memories that are sequences, and with words of the model's own in place of some true ones."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import paddle.v2 as paddle
from paddle.v2 import activation, attr, data_type, layer, model, networks
from paddle.v2.layer.output import LayerOutput
from paddle.v2.topology import Topology
from tests.runtime.v2.sequences.nested_cases import check_gradients

BEGIN, END, WORDS, EMBEDDING, HIDDEN, SLOTS = 0, 1, 8, 12, 24, 3
TABLE = "_target_language_embedding"
_RNG = np.random.default_rng(2)
SENTENCES = [_RNG.integers(2, WORDS, _RNG.integers(2, 5)).tolist() for _ in range(12)]


class ExternalMemory:
    """A sequence of rows that a decoder finds by content, reads and writes; it keeps its length through the steps."""

    def __init__(self, name: str, boot: LayerOutput, nowhere: LayerOutput, readonly: bool = False) -> None:
        self.name, self.size, self.readonly = name, boot.size, readonly
        self.rows = layer.memory(name=name, size=boot.size, boot_layer=boot)
        self.before = layer.memory(name=f"{name}_address", size=1, boot_layer=nowhere)

    def read(self, key: LayerOutput) -> LayerOutput:
        """What the key finds, beside what was found at the step before."""
        asked = layer.expand(self._projected(key, self.size, "key"), self.rows)
        met = layer.addto([self._projected(self.rows, self.size, "row"), asked], act=activation.Tanh())
        found = self._projected(met, 1, "score", activation.SequenceSoftmax())
        gate = layer.expand(self._projected(key, 1, "gate", activation.Sigmoid()), self.rows)
        self.address = layer.interpolation([found, self.before], weight=gate, name=f"{self.name}_address")
        return layer.pooling(layer.scaling(self.rows, self.address), paddle.pooling.Sum())

    def write(self, key: LayerOutput) -> None:
        """Erase and add where `read` has been; a memory that is only read is handed on."""
        if self.readonly:
            layer.mixed(self.size, [layer.identity_projection(self.rows)], name=self.name)
            return
        erase = layer.expand(self._projected(key, self.size, "erase", activation.Sigmoid()), self.rows)
        add = layer.expand(self._projected(key, self.size, "add", activation.Tanh()), self.rows)
        erased = layer.scaling(erase, self.address)
        gone = layer.mixed(self.size, input=layer.dotmul_operator(a=self.rows, b=erased, scale=-1.0))
        layer.addto([self.rows, gone, layer.scaling(add, self.address)], name=self.name)

    def _projected(self, x: LayerOutput, size: int, what: str, act: Any = None) -> LayerOutput:
        named = attr.Param(name=f"_{self.name}_{what}.w")
        return layer.fc(x, size, act or activation.Linear(), param_attr=named, bias_attr=False)


def _encoded() -> tuple[LayerOutput, LayerOutput]:
    source = layer.data("source", data_type.integer_value_sequence(WORDS))
    rows = layer.embedding(source, EMBEDDING, param_attr=attr.Param(name="_source_embedding"))
    encoded = layer.concat(
        [networks.simple_gru(rows, HIDDEN // 2, reverse=reverse) for reverse in (False, True)]
    )
    return encoded, layer.fc(layer.first_seq(encoded), HIDDEN, activation.Tanh(), bias_attr=False)


def _chances(words: LayerOutput) -> LayerOutput:
    return layer.fc(words, WORDS, activation.Softmax(), name="chances", bias_attr=True)


def with_external_memory(is_generating: bool) -> LayerOutput:
    """The cost of a translator with two memories outside of its state, or its beam search."""
    encoded, boot = _encoded()
    noise = layer.data("bounded_memory_perturbation", data_type.dense_vector_sequence(HIDDEN))
    slots = layer.addto([layer.expand(boot, noise), noise])
    nowhere = [
        layer.slope_intercept(
            layer.fc(rows, 1, param_attr=attr.Param(is_static=True)), slope=0.0, intercept=0.0
        )
        for rows in (slots, encoded)
    ]

    def step(word: LayerOutput) -> LayerOutput:
        state = layer.memory(name="gru_decoder", size=HIDDEN, boot_layer=boot)
        bounded = ExternalMemory("bounded", slots, nowhere[0])
        unbounded = ExternalMemory("unbounded", encoded, nowhere[1], readonly=True)
        seen = [bounded.read(state), unbounded.read(state)]
        inputs = layer.fc([word, *seen], 3 * HIDDEN, activation.Linear(), bias_attr=False)
        after = layer.gru_step(inputs, state, HIDDEN, name="gru_decoder")
        for memory in (bounded, unbounded):
            memory.write(after)
        return _chances(layer.concat([after, *seen]))

    return _decoded(step, is_generating)


def with_scheduled_sampling(is_generating: bool) -> LayerOutput:
    """The cost of a translator that sees words of its own where a flag says so, or its beam search."""
    encoded, boot = _encoded()
    projected = layer.fc(encoded, HIDDEN, activation.Linear(), bias_attr=False)

    def step(
        encoded: LayerOutput, projected: LayerOutput, word: LayerOutput, flag: Any = None
    ) -> LayerOutput:
        state = layer.memory(name="gru_decoder", size=HIDDEN, boot_layer=boot)
        seen = networks.simple_attention(encoded, projected, state)
        if flag is not None:
            made = layer.max_id(layer.memory(name="chances", size=WORDS))
            own = layer.embedding(made, EMBEDDING, param_attr=attr.Param(name=TABLE))
            word = layer.multiplex([flag, word, own])
        inputs = layer.fc([seen, word], 3 * HIDDEN, activation.Linear(), bias_attr=False)
        return _chances(layer.gru_step(inputs, state, HIDDEN, name="gru_decoder"))

    statics = [layer.StaticInput(encoded, is_seq=True), layer.StaticInput(projected, is_seq=True)]
    return _decoded(step, is_generating, statics, flags=True)


def _decoded(step: Any, is_generating: bool, statics: Sequence[Any] = (), flags: bool = False) -> LayerOutput:
    if is_generating:
        word = layer.GeneratedInput(size=WORDS, embedding_name=TABLE, embedding_size=EMBEDDING)
        return layer.beam_search(
            step, [*statics, word], bos_id=BEGIN, eos_id=END, beam_size=2, max_length=6, name="decoder_group"
        )
    target = layer.data("target", data_type.integer_value_sequence(WORDS))
    rows = layer.embedding(target, EMBEDDING, param_attr=attr.Param(name=TABLE))
    flag = [layer.data("true_token_flag", data_type.integer_value_sequence(2))] if flags else []
    out = layer.recurrent_group(step, [*statics, rows, *flag], name="decoder_group")
    assert isinstance(out, LayerOutput)
    return layer.classification_cost(out, layer.data("next", data_type.integer_value_sequence(WORDS)))


def _trained(cost: LayerOutput, samples: list[Any], passes: int, **options: Any) -> tuple[list[float], bytes]:
    """Costs of the passes, and the parameters as a file."""
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(
        learning_rate=0.02,
        gradient_clipping_threshold=5,
        regularization=paddle.optimizer.L2Regularization(8e-4),
    )
    trainer = paddle.trainer.SGD(cost, parameters, optimizer)
    costs: list[float] = []

    def seen(event: Any) -> None:
        if isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)

    def reader() -> Iterator[Any]:
        yield from samples

    trainer.train(paddle.batch(reader, 12), num_passes=passes, event_handler=seen, **options)
    saved = io.BytesIO()
    trainer.save_parameter_to_tar(saved)
    return costs, saved.getvalue()


def _generated(ids: npt.NDArray[Any], count: int, beam: int) -> list[list[int]]:
    """The best path of each sample: of each path there are its length, its words, and -1."""
    paths, flat = [], ids.ravel().tolist()
    while flat:
        end = flat.index(-1)
        paths.append(flat[1:end])
        flat = flat[end + 1 :]
    assert len(paths) == count * beam
    return paths[::beam]


def test_a_translator_with_external_memory_learns_is_saved_and_generates() -> None:
    noise = (0.1 * _RNG.standard_normal((SLOTS, HIDDEN))).tolist()
    samples = [(words, [BEGIN, *words], [*words, END], noise) for words in SENTENCES]
    feeding = {"source": 0, "target": 1, "next": 2, "bounded_memory_perturbation": 3}
    costs, saved = _trained(with_external_memory(False), samples, 25, feeding=feeding)
    assert costs[-1] < 0.2 * costs[0]
    inputs = [(words, noise) for words in SENTENCES]
    assert _right(with_external_memory, saved, inputs) >= 10


def test_a_translator_trained_on_words_of_its_own_generates() -> None:
    flags = [[0, *_RNG.integers(0, 2, len(words)).tolist()] for words in SENTENCES]
    samples = [
        (words, [BEGIN, *words], flag, [*words, END]) for words, flag in zip(SENTENCES, flags, strict=True)
    ]
    feeding = {"source": 0, "target": 1, "true_token_flag": 2, "next": 3}
    costs, saved = _trained(with_scheduled_sampling(False), samples, 30, feeding=feeding)
    assert costs[-1] < 0.2 * costs[0]
    assert _right(with_scheduled_sampling, saved, [(words,) for words in SENTENCES]) >= 10


def test_gradients_through_memories_that_are_sequences_agree_with_differences_of_the_cost() -> None:
    noise = _RNG.standard_normal((SLOTS, HIDDEN)).tolist()
    cost = with_external_memory(False)
    order = ["source", "bounded_memory_perturbation", "target", "next"]
    assert list(Topology(cost).data_layers()) == order
    check_gradients(cost, [(words, noise, [BEGIN, *words], [*words, END]) for words in ([2, 3], [4])])


def _right(build: Callable[[bool], LayerOutput], saved: bytes, inputs: list[Any]) -> int:
    """How many sentences come out as they went in, when another process builds the generator."""
    with model.fresh():
        parameters = paddle.parameters.Parameters.from_tar(io.BytesIO(saved))
        prob, ids = paddle.infer(build(True), parameters, inputs, field=["prob", "id"])
    assert prob.shape == (len(inputs), 2)
    found = _generated(ids, len(inputs), 2)
    return sum(path == [*words, END] for path, (words, *_) in zip(found, inputs, strict=True))
