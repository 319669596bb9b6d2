# SPDX-License-Identifier: Apache-2.0
"""What steps of a group begin with and hand on: rows, sequences, ids; what they are given; costs and groups in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, data_type, layer
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput

Rows = list[list[float]]
Array = npt.NDArray[Any]
_RNG = np.random.default_rng(11)
_COUNTS = (2, 4, 1)
# (rows of a sequence, a second sequence of another length)
_SAMPLES: list[tuple[Rows, Rows]] = [
    (_RNG.standard_normal((count, 3)).tolist(), _RNG.standard_normal((5 - count, 3)).tolist())
    for count in _COUNTS
]


def _rows(name: str = "rows") -> LayerOutput:
    return layer.data(name, data_type.dense_vector_sequence(3))


def _found(out: LayerOutput, parameters: Any = None) -> Array:
    """Rows of all samples."""
    if parameters is None:
        parameters = paddle.parameters.create(out)
    found: Array = paddle.infer(
        output_layer=out, parameters=parameters, input=_SAMPLES, feeding={"rows": 0, "others": 1}
    )
    return found


def _expected(
    one: Callable[[Array, Array], Any],
) -> Array:
    return np.concatenate([np.array(one(np.array(rows), np.array(others))) for rows, others in _SAMPLES])


def test_what_is_no_layer_reaches_the_step_unchanged() -> None:
    given: list[Any] = []

    def step(size: int, row: LayerOutput, flag: bool, text: str, nothing: None) -> LayerOutput:
        given.extend([size, flag, text, nothing])
        return layer.addto([row])

    layer.recurrent_group(step, [3, _rows(), True, "words", None])
    assert given == [3, True, "words", None]


def test_a_memory_begins_with_a_learnt_row() -> None:
    def step(row: LayerOutput) -> LayerOutput:
        bias = paddle.attr.Param(name="first", initial_std=1.0)
        before = layer.memory(
            name="total", size=3, boot_bias=bias, boot_bias_active_type=activation.Sigmoid()
        )
        return layer.addto([row, before], name="total")

    total = layer.recurrent_group(step, _rows())
    assert isinstance(total, LayerOutput)
    parameters = paddle.parameters.create(total)
    first = 1 / (1 + np.exp(-parameters["first"][0]))
    np.testing.assert_allclose(
        _found(total, parameters), _expected(lambda rows, _: first + rows.cumsum(axis=0)), rtol=1e-5
    )


def test_a_memory_of_ids_begins_with_a_constant_one() -> None:
    def step(row: LayerOutput) -> LayerOutput:
        before = layer.memory(name="chosen", size=3, boot_with_const_id=2)
        layer.max_id(row, name="chosen")
        return layer.embedding(before, 2, param_attr=paddle.attr.Param(name="table"))

    out = layer.recurrent_group(step, _rows())
    assert isinstance(out, LayerOutput)
    parameters = paddle.parameters.create(out)

    def one(rows: Array, _: Any) -> Any:
        return parameters["table"][[2, *rows.argmax(axis=1)[:-1]]]

    np.testing.assert_allclose(_found(out, parameters), _expected(one))


def test_a_memory_without_a_name_follows_the_layer_that_is_set() -> None:
    def step(row: LayerOutput) -> LayerOutput:
        before = layer.memory(name=None, size=3)
        total = layer.addto([row, before])
        before.set_input(total)
        return total

    total = layer.recurrent_group(step, _rows())
    assert isinstance(total, LayerOutput)
    np.testing.assert_allclose(_found(total), _expected(lambda rows, _: rows.cumsum(axis=0)), rtol=1e-5)
    with pytest.raises(UsageError, match="set_input needs a memory"):
        total.set_input(total)


def _slots(row: LayerOutput) -> LayerOutput:
    """A step that adds its row, scaled, to each row of a sequence, and puts out the sum of all these."""
    slots = layer.memory(name="slots", size=3, is_seq=True, boot_layer=_boots[-1])
    spread = layer.expand(layer.fc(row, 3, activation.Tanh(), name="f", bias_attr=False), slots)
    layer.mixed(3, [layer.identity_projection(slots), layer.identity_projection(spread)], name="slots")
    return layer.pooling(slots, paddle.pooling.Sum())


_boots: list[LayerOutput] = []


def test_a_memory_of_sequences_keeps_their_lengths() -> None:
    _boots.append(_rows("others"))
    out = layer.recurrent_group(_slots, _rows(), name="g")
    assert isinstance(out, LayerOutput)
    parameters = paddle.parameters.create(out)
    w = parameters["_f@g.w0"]

    def one(rows: Array, others: Array) -> Any:
        moved = np.tanh(rows @ w).cumsum(axis=0)
        before = np.concatenate([np.zeros((1, 3)), moved[:-1]])
        return others.sum(axis=0) + len(others) * before

    np.testing.assert_allclose(_found(out, parameters), _expected(one), rtol=1e-4, atol=1e-5)


def test_gradients_go_back_through_memories_of_sequences() -> None:
    boot = layer.fc(_rows("others"), 3, name="boot", bias_attr=False)
    _boots.append(boot)
    out: Any = layer.recurrent_group(_slots, _rows(), name="g")
    cost = layer.sum_cost(layer.mixed(1, layer.full_matrix_projection(out), act=activation.Square()))
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(momentum=0, learning_rate=0.0))
    seen: dict[str, Any] = {}

    def handler(event: object) -> None:
        if isinstance(event, paddle.event.EndForwardBackward):
            seen.update({name: parameters.get_grad(name) for name in parameters})

    batch, feeding = [_SAMPLES], {"rows": 0, "others": 1}
    trainer.train(lambda: iter(batch), event_handler=handler, feeding=feeding)
    for name in ("_boot.w0", "_f@g.w0"):
        value = parameters[name]
        for place in [(0, 0), (2, 1)]:
            moved = []
            for delta in (1e-2, -1e-2):
                other = value.copy()
                other[place] += delta
                parameters[name] = other
                moved.append(trainer.test(lambda: iter(batch), feeding=feeding).cost * len(_SAMPLES))
            parameters[name] = value
            assert seen[name][place] == pytest.approx((moved[0] - moved[1]) / 2e-2, rel=2e-2)


def test_a_group_within_a_step_goes_through_a_whole_sequence_at_each_step() -> None:
    def inner(other: LayerOutput, row: LayerOutput) -> LayerOutput:
        before = layer.memory(name="sum", size=3, boot_layer=_boots[-1])
        return layer.addto([other, before, row], name="sum")

    def outer(row: LayerOutput, others: LayerOutput) -> LayerOutput:
        before = layer.memory(name="last", size=3)
        _boots.append(before)
        sums = layer.recurrent_group(inner, [others, layer.StaticInput(row)], name="inner")
        assert isinstance(sums, LayerOutput)
        assert sums.full_name == "sum@outer"
        return layer.last_seq(sums, name="last")

    out = layer.recurrent_group(outer, [_rows(), layer.StaticInput(_rows("others"))], name="outer")
    assert isinstance(out, LayerOutput)

    def one(rows: Array, others: Array) -> Any:
        return (others.sum(axis=0) + len(others) * rows).cumsum(axis=0)

    np.testing.assert_allclose(_found(out), _expected(one), rtol=1e-4, atol=1e-5)


def test_parameters_within_two_groups_are_trained() -> None:
    def outer(row: LayerOutput, others: LayerOutput) -> LayerOutput:
        def inner(other: LayerOutput, row: LayerOutput) -> LayerOutput:
            return layer.fc([other, row], 2, name="f")

        rows: Any = layer.recurrent_group(inner, [others, layer.StaticInput(row)], name="inner")
        return layer.pooling(rows)

    out: Any = layer.recurrent_group(outer, [_rows(), layer.StaticInput(_rows("others"))], name="outer")
    cost = layer.sum_cost(out)
    parameters = paddle.parameters.create(cost)
    assert set(parameters) == {f"_f@inner@outer.{part}" for part in ("w0", "w1", "wbias")}
    before = {name: parameters[name] for name in parameters}
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(momentum=0, learning_rate=0.1))
    costs: list[float] = []

    def handler(event: object) -> None:
        if isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)

    trainer.train(lambda: iter([_SAMPLES] * 5), event_handler=handler, feeding={"rows": 0, "others": 1})
    assert all((before[name] != parameters[name]).any() for name in before)
    assert sorted(costs, reverse=True) == costs


def test_a_cost_in_a_step_is_that_of_all_steps_and_its_evaluator_counts_them() -> None:
    """The same network with its cost in the step and around it, on the same parameters."""

    def scores(row: LayerOutput) -> LayerOutput:
        return layer.fc(row, 3, activation.Softmax(), param_attr=weight, bias_attr=False)

    weight = paddle.attr.Param(name="w")
    rows, labels = _rows(), layer.data("labels", data_type.integer_value_sequence(3))
    around = layer.classification_cost(scores(rows), labels)

    def step(row: LayerOutput, label: LayerOutput) -> LayerOutput:
        return layer.classification_cost(scores(row), label, name="inside")

    inside = layer.recurrent_group(step, [rows, labels], name="g")
    batch = [(rows, [int(np.argmax(row)) for row in rows]) for rows, _ in _SAMPLES]
    found = []
    for cost in (around, inside):
        parameters = paddle.parameters.create(cost)
        trainer = paddle.trainer.SGD(
            cost, parameters, paddle.optimizer.Momentum(momentum=0, learning_rate=0.1)
        )
        trainer.train(lambda: iter([batch]), num_passes=3)
        tested = trainer.test(lambda: iter([batch]))
        found.append((parameters["w"], tested.cost, list(tested.metrics.items())))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-5)
    (name, error), (inner, inner_error) = found[0][2][0], found[1][2][0]
    assert (inner, inner_error) == (f"{name}@g", error)


def test_chunks_of_tags_that_a_step_chooses_are_counted_over_all_steps() -> None:
    rows, labels = _rows(), layer.data("labels", data_type.integer_value_sequence(3))

    def step(row: LayerOutput, label: LayerOutput) -> list[LayerOutput]:
        scores = layer.fc(row, 3, activation.Softmax(), name="scores")
        best = layer.max_id(scores)
        paddle.evaluator.chunk(best, label, "IOB", 1, name="chunks")
        return [layer.cross_entropy_cost(scores, label), best]

    outs: Any = layer.recurrent_group(step, [rows, labels], name="g")
    cost, best = outs
    parameters = paddle.parameters.create(cost)
    parameters["_scores@g.w0"] = np.eye(3, dtype=np.float32)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(momentum=0), extra_layers=best)
    tags = [[0, 1, 2], [2, 0]]
    batch = [(np.eye(3)[each].tolist(), each) for each in tags]
    assert trainer.test(lambda: iter([batch])).metrics["chunks@g.F1-score"] == 1.0


def test_a_search_knows_the_number_of_samples_by_a_boot_layer() -> None:
    boot = layer.fc(layer.last_seq(_rows()), 4)

    def step(word: LayerOutput, depth: int) -> LayerOutput:
        assert depth == 2
        before = layer.memory(name="state", size=4, boot_layer=boot)
        state = layer.fc([word, before], 4, name="state")
        return layer.fc(state, 5, activation.Softmax())

    found = layer.beam_search(
        step, [layer.GeneratedInput(5, "table", 3), 2], bos_id=0, eos_id=1, beam_size=2, max_length=4
    )
    parameters = paddle.parameters.create(found)
    prob, _ = paddle.infer(
        output_layer=found,
        parameters=parameters,
        input=[(rows,) for rows, _ in _SAMPLES],
        field=["prob", "id"],
    )
    assert prob.shape == (len(_SAMPLES), 2)


def test_a_search_hands_sequences_from_step_to_step() -> None:
    """The chances of a word fall each time that it was made, and each path has its own slots."""
    others = _rows("others")

    def step(word: LayerOutput) -> LayerOutput:
        slots = layer.memory(name="slots", size=3, boot_layer=others)
        spread = layer.expand(word, slots)
        layer.mixed(
            3,
            [layer.identity_projection(slots), layer.dotmul_operator(spread, spread, scale=-9.0)],
            name="slots",
        )
        return layer.mixed(
            3, layer.identity_projection(layer.pooling(slots, paddle.pooling.Avg())), act=activation.Softmax()
        )

    search = layer.beam_search(
        step, layer.GeneratedInput(3, "table", 3), bos_id=2, eos_id=99, beam_size=1, max_length=3
    )
    parameters = paddle.parameters.create(search)
    parameters["table"] = np.eye(3, dtype=np.float32)
    ids = paddle.infer(
        output_layer=search, parameters=parameters, input=[(others,) for _, others in _SAMPLES], field="id"
    )
    words = []
    for _, rows in _SAMPLES:
        scores, last = np.array(rows).mean(axis=0), 2
        for _ in range(3):
            words.append(int(scores.argmax()))
            scores[last] -= 9  # what the step made of the word before
            last = words[-1]
    assert ids.tolist() == words


@pytest.mark.parametrize("size", [3, 5])
def test_a_memory_of_another_size_than_its_layer_is_refused_at_its_line(size: int) -> None:
    def step(row: LayerOutput) -> LayerOutput:
        return layer.fc([row, layer.memory(name="state", size=size)], 3, name="state")

    if size == 3:
        layer.recurrent_group(step, _rows())
        return
    with pytest.raises(UsageError, match=r"layer 'state' has size 5, but the layer has size 3.*created at /"):
        layer.recurrent_group(step, _rows())
