# SPDX-License-Identifier: Apache-2.0
"""pnpair counts pairs within queries; printers print what a batch gives; evaluators have the original's types too."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.layers.layer_cases import ROWS, act, data_type, dense, layer

evaluator = paddle.evaluator


def trained(cost: LayerOutput, batches: list[Any], extra: LayerOutput | None = None) -> dict[str, float]:
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(learning_rate=0.0), extra)
    found: dict[str, float] = {}

    def handler(event: object) -> None:
        if isinstance(event, paddle.event.EndPass):
            found.update(event.metrics)

    trainer.train(lambda: iter(batches), event_handler=handler)
    return found


def test_pairs_of_a_query_count_also_across_batches() -> None:
    score = dense("score", 1)
    label, query = (layer.data(name, data_type.integer_value(9)) for name in ("label", "query"))
    weight = dense("weight", 1)
    evaluator.pnpair(score, label, query, name="plain")
    evaluator.pnpair(score, label, query, weight, name="weighed")
    cost = layer.sum_cost(layer.fc(score, 1))
    rng = np.random.default_rng(0)
    rows = [
        ([float(rng.integers(5))], int(rng.integers(3)), int(rng.integers(2)), [float(rng.integers(1, 4))])
        for _ in range(12)
    ]
    expected = {}
    for name, weighed in (("plain", False), ("weighed", True)):
        sums = {1.0: 0.0, -1.0: 0.0, 0.0: 0.0}
        for a, b in combinations(rows, 2):
            if a[2] == b[2] and a[1] != b[1]:
                side = float(np.sign((a[0][0] - b[0][0]) * (a[1] - b[1])))
                sums[side] += (a[3][0] + b[3][0]) / 2 if weighed else 1.0
        expected[name] = sums[1.0] / sums[-1.0]
    ids = [layer.embedding(each, 1) for each in (label, query)]
    found = trained(cost, [rows[:5], rows[5:]], layer.concat([weight, *ids]))
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_printers_print_each_batch(capfd: pytest.CaptureFixture[str]) -> None:
    x = dense("x", 4)
    hidden = layer.addto(layer.fc(x, 4, act.Linear(), name="h"), name="s")
    label = layer.data("label", data_type.integer_value(4))
    evaluator.value_printer([x, label], name="values")
    evaluator.gradient_printer([hidden, x], name="grads")
    evaluator.maxid_printer(x, num_results=2, name="largest")
    evaluator.classification_error_printer(x, label, name="errors")
    found = trained(layer.sum_cost(hidden), [[(ROWS[0], 2), (ROWS[1], 0)]], layer.embedding(label, 1))
    printed = capfd.readouterr().err
    assert not found
    assert "values: layer=x value matrix:\n[[ 0.5  -1.    2.    0.25]\n [ 1.5 " in printed
    assert "values: layer=label value matrix:\n[[2]\n [0]]" in printed
    assert "grads: layer=s grad matrix:\n[[1. 1. 1. 1.]\n [1. 1. 1. 1.]]" in printed
    assert "grads: layer=x grad matrix:\nnone is computed" in printed
    assert "largest: layer=x row max id vector:\n2 : 2, 0 : 0.5\n3 : 3, 0 : 1.5" in printed
    assert "errors: Classification Error: 0 1" in printed


def test_the_largest_rows_of_sequences_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    frames = layer.data("frames", data_type.dense_vector_sequence(1))
    evaluator.maxframe_printer(frames, num_results=2, name="frames of")
    trained(layer.sum_cost(layer.fc(frames, 1)), [[([[1.0], [3.0], [2.0]],), ([[5.0]],)]])
    printed = capfd.readouterr().err
    assert "sequence max frames:\n1 : 3, 2 : 2 total 3 frames\n0 : 5 total 1 frames" in printed


def test_sequences_of_ids_are_written_as_words(tmp_path: Path) -> None:
    words, result = tmp_path / "words.txt", tmp_path / "said.txt"
    words.write_text("the\ncat\nsat\n")
    result.write_text("from another run")
    ids = layer.data("ids", data_type.integer_value_sequence(3))
    number = layer.data("number", data_type.integer_value(99))
    evaluator.seqtext_printer(ids, str(result), number, str(words))
    evaluator.seqtext_printer(ids, str(tmp_path / "plain.txt"), delimited=False)
    cost = layer.sum_cost(layer.fc(layer.embedding(ids, 2), 1))
    trained(cost, [[([0, 1, 2], 7), ([1], 8)], [([2, 2], 9)]], layer.concat([layer.embedding(number, 1)]))
    assert result.read_text() == "7\tthe cat sat\n8\tcat\n9\tsat sat\n"
    assert (tmp_path / "plain.txt").read_text() == "012\n1\n22\n"
    with pytest.raises(UsageError, match=r"cannot open .*lost/said.txt: No such file"):
        evaluator.seqtext_printer(ids, str(tmp_path / "lost" / "said.txt"))


@pytest.mark.parametrize("results", [1, 2])
def test_generated_sentences_are_written_by_rank(tmp_path: Path, results: int) -> None:
    start = dense("start", 3)

    def step(first: LayerOutput, word: LayerOutput) -> LayerOutput:
        return layer.fc([first, word], 3, act.Softmax(), bias_attr=False, name="next")

    said = layer.beam_search(
        step,
        [layer.StaticInput(start), layer.GeneratedInput(3, "table", 2)],
        0,
        2,
        beam_size=2,
        max_length=3,
        num_results_per_sample=results,
    )
    evaluator.seqtext_printer(said, str(tmp_path / "said.txt"), name="words")
    cost = layer.sum_cost(layer.fc(start, 1))
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(), said)
    trainer.test(lambda: iter([[([1.0, 0.0, 0.5],), ([0.0, 2.0, 1.0],)]]))
    lines = (tmp_path / "said.txt").read_text().splitlines()
    assert [line for line in lines if "\t" not in line] == ["0", "1"]
    told = [line.split("\t") for line in lines if "\t" in line]
    assert [each[0] for each in told] == [str(rank) for rank in range(results)] * 2
    for _, chance, text in told:
        assert float(chance) < 0
        assert 1 <= len(text.split()) <= 3
        assert set(text.split()) <= {"0", "1", "2"}


def test_evaluators_are_declared_by_the_types_of_configurations() -> None:
    score, label = dense("score", 1), layer.data("label", data_type.integer_value(2))
    query = layer.data("query", data_type.integer_value(9))
    evaluator.evaluator_base(score, "last-column-auc", label, name="auc")
    evaluator.evaluator_base([score, label, query], "pnpair", name="pairs")
    evaluator.evaluator_base(score, "classification_error", label, classification_threshold=2.5, name="error")
    extra = layer.concat([layer.embedding(each, 1) for each in (label, query)])
    rows = [([1.0], 0, 0), ([2.0], 1, 0), ([3.0], 0, 0)]
    found = trained(layer.sum_cost(layer.fc(score, 1)), [rows], extra)
    assert found == pytest.approx({"auc": 0.5, "pairs": 1.0, "error": 2 / 3})
    with pytest.raises(
        UsageError, match="unknown type 'auc'; expected one of classification_error, last-column-auc"
    ):
        evaluator.evaluator_base(score, "auc", label)
    with pytest.raises(UsageError, match="'sum' has no argument num_results"):
        evaluator.evaluator_base(score, "sum", num_results=3)
