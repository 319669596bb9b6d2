# SPDX-License-Identifier: Apache-2.0
"""How samples become arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from paddle.v2 import data_type, event, layer
from paddle.v2.inference import infer
from paddle.v2.parameters import create
from paddle.v2.topology import Topology
from paddle.v2.training.feeder import DataFeeder
from paddle.v2.training.training_log import why_not_finite

TYPES = [("x", data_type.dense_vector(2)), ("y", data_type.integer_value(5))]


def test_columns_follow_the_order_of_declaration() -> None:
    feed = DataFeeder(TYPES)([([1, 2], 3), ([4, 5], 0)])
    assert feed["x"].tolist() == [[1, 2], [4, 5]]
    assert [str(feed[name].dtype) for name in "xy"] == ["float32", "int64"]
    assert feed["y"].tolist() == [[3], [0]]


@pytest.mark.parametrize("feeding", [{"y": 0, "x": 2}, ["y", "unused", "x"], ("y", "unused", "x")])
def test_feeding_names_columns(feeding: object) -> None:
    feed = DataFeeder(TYPES, feeding)([(3, "text", [1, 2], "more")])  # type: ignore[arg-type]
    assert feed["x"].tolist() == [[1, 2]]
    assert feed["y"].tolist() == [[3]]


WORDS = [("w", data_type.integer_value_sequence(30)), ("bag", data_type.sparse_binary_vector(30))]


@pytest.mark.parametrize(
    ("ids", "count", "warned"), [([29], 64, ["w", "bag"]), ([29], 9, []), ([29, 3], 64, [])]
)
def test_a_first_batch_of_one_id_gets_a_warning(
    ids: list[int], count: int, warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    feeder = DataFeeder(WORDS, checks_ids=True)
    for _ in range(2):
        feeder([(ids, ids)] * count)
    named = [line.split("'")[1] for line in caplog.messages if "ids of the first batch are 29" in line]
    assert named == warned


def test_one_sentence_may_repeat_a_word(caplog: pytest.LogCaptureFixture) -> None:
    DataFeeder(WORDS[:1], checks_ids=True)([([29] * 64,)])
    assert not caplog.messages


def test_inference_explains_rows_that_are_not_tuples() -> None:
    x = layer.data("x", data_type.dense_vector(2))
    network = layer.fc(x, 1)
    with pytest.raises(TypeError, match=r"got ndarray; write each sample as a tuple, as in input=.\(row,\)"):
        infer(output_layer=network, parameters=create(network), input=[np.zeros(2, "f")])


def test_inference_of_a_cost_without_labels_names_the_cost() -> None:
    x = layer.data("x", data_type.dense_vector(2))
    cost = layer.square_error_cost(layer.fc(x, 1), layer.data("y", data_type.dense_vector(1)), name="cost")
    with pytest.raises(ValueError, match=r"'cost' is a cost, which needs labels: .*output_layer="):
        infer(output_layer=cost, parameters=create(cost), input=[(np.zeros(2, "f"),)])


def test_feeding_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="dict, list or tuple"):
        DataFeeder(TYPES, "xy")
    with pytest.raises(ValueError, match="'y'"):
        DataFeeder(TYPES, {"x": 0})
    with pytest.raises(ValueError, match=r"correct \['Y'\]"):
        DataFeeder(TYPES, {"x": 0, "Y": 1})


def test_a_reader_without_batch_is_answered_with_batch() -> None:
    with pytest.raises(TypeError, match=r"wrap it in paddle\.batch"):
        DataFeeder(TYPES)((np.ones(2), 1))  # type: ignore[arg-type]


def test_a_type_that_is_not_called_is_answered_with_the_call() -> None:
    with pytest.raises(TypeError, match=r"of a call, such as paddle\.data_type\.dense_vector\(10\)"):
        layer.data(name="x", type=data_type.dense_vector)  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["0", -5, 1.0, None])
def test_a_column_that_is_no_whole_number_from_zero_is_refused(column: object) -> None:
    with pytest.raises(ValueError, match="column of data layer 'x' must be a non-negative integer, got"):
        DataFeeder(TYPES, {"x": column, "y": 1})  # type: ignore[dict-item]


def test_images_may_keep_their_shape() -> None:
    feed = DataFeeder([("image", data_type.dense_vector(12))])([(np.arange(12).reshape(3, 2, 2),)])
    assert feed["image"].tolist() == [list(range(12))]


@pytest.mark.parametrize(
    ("shape", "channels", "warned"),
    [
        ((4, 5, 3), 3, "paddle.image.to_chw"),
        ((3, 4, 5), 3, ""),
        ((60,), 3, ""),
        ((12, 5), 3, ""),
        ((5, 4, 3), 3, "resize them"),
        ((6, 10), 3, "resize them"),
        ((4, 5, 1), 1, ""),
    ],
)
def test_images_in_another_order_or_size_get_a_warning(
    shape: tuple[int, ...], channels: int, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    size = int(np.prod(shape))
    image = layer.data(f"image{shape}", data_type.dense_vector(size), height=4, width=5)
    network = Topology(layer.img_conv(image, filter_size=3, num_filters=2, num_channels=channels)).network
    feeder = DataFeeder(network.data_types, checks_ids=True, images=network.images())
    for _ in range(2):
        feeder([(np.zeros(shape),)])
    assert [warned in line for line in caplog.messages] == [True] * bool(warned)


def test_sparse_vectors_become_their_columns_and_a_matrix_over_them() -> None:
    feeder = DataFeeder(
        [("b", data_type.sparse_binary_vector(100)), ("f", data_type.sparse_float_vector(100))]
    )
    feed = feeder([([7, 3], [(50, 2.0)]), ([3], []), ([], [(50, 1.0), (2, 0.5)])])
    assert feed["b.columns"].tolist() == [[3], [7]]
    assert feed["b.matrix"].tolist() == [[1, 1], [1, 0], [0, 0]]
    assert feed["f.columns"].tolist() == [[2], [50]]
    assert feed["f.matrix"].tolist() == [[0, 2], [0, 0], [0.5, 1]]


@pytest.mark.parametrize("wrong", [7, (3,), (4, "a")])
def test_what_is_not_a_column_and_a_value_is_shown(wrong: object) -> None:
    feeder = DataFeeder([("f", data_type.sparse_float_vector(100))])
    with pytest.raises(ValueError, match=rf"'f'.*{re.escape(repr(wrong))}"):
        feeder([([(1, 0.5), wrong],)])


def test_a_batch_without_any_active_column_is_a_zero_matrix() -> None:
    feed = DataFeeder([("b", data_type.sparse_binary_vector(100))])([([],), ([],)])
    assert feed["b.matrix"].shape[0] == 2
    assert not feed["b.matrix"].any()


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        (([1, 2, 3], 0), "expected 2 numbers.* got 3: .*feeding"),
        (([1, 2], 5), r"5 is not in \[0, 5\)"),
        (([1, 2], -1), "-1 is not in"),
        (([1, 2], 0.5), "expected one integer"),
        (
            ([1, 2], [1]),
            r"'y', sample 0 of the batch: expected one integer in \[0, 5\), got \[1\]; give the number itself",
        ),
        (
            ([1, 2], "cat"),
            r"got 'cat'; look up words in a dictionary, such as word_dict\[word\]",
        ),
        (([1, 2], [1, 2]), "declare a list of numbers as integer_value_sequence"),
        ((["a", "b"], 1), "sample 0"),
        (([1, 2],), "no column 1"),
        ((7, [1, 2], 0), r"2 data layers: drop the others, or give feeding={'x': 1, 'y': 2}"),
    ],
)
def test_a_sample_that_does_not_fit_is_named(sample: tuple[object, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DataFeeder(TYPES)([sample])


def test_ragged_samples_are_found() -> None:
    with pytest.raises(ValueError, match="'x', sample 1"):
        DataFeeder(TYPES)([([1, 2], 0), ([1], 0)])


def test_a_sample_of_uneven_rows_is_found() -> None:
    with pytest.raises(
        ValueError,
        match=r"'x', sample 1 of the batch: expected a vector of 2 numbers, got \[\[1\], \[2, 3\]\]",
    ):
        DataFeeder(TYPES)([([1, 2], 0), ([[1], [2, 3]], 0)])


def test_a_list_among_integers_is_found() -> None:
    with pytest.raises(
        ValueError, match=r"'y', sample 1 of the batch: expected one integer .*, got \[2, 3\]"
    ):
        DataFeeder(TYPES)([([1, 2], 0), ([1, 2], [2, 3])])


@pytest.mark.parametrize(
    ("kind", "samples", "place"),
    [
        (data_type.integer_value_sequence(5), [[1, 2], [3, 4, 9]], "sample 1 of the batch, item 2: 9"),
        (
            data_type.integer_value_sub_sequence(5),
            [[[1], [2]], [[3], [], [4, -2]]],
            "sample 1 of the batch, sub-sequence 2, item 1: -2",
        ),
        (data_type.sparse_binary_vector(5), [[1, 2], [], [4, 5]], "sample 2 of the batch: 5"),
        (
            data_type.sparse_float_vector_sequence(5),
            [[[], [(0, 1.0)]], [[(1, 1.0), (7, 2.0)]]],
            "sample 1 of the batch, item 0: 7",
        ),
    ],
    ids=["ids", "nested", "columns", "columns of sequences"],
)
def test_a_number_out_of_range_is_named_with_its_place(
    kind: data_type.InputType, samples: list[object], place: str
) -> None:
    with pytest.raises(ValueError, match=rf"'s', {place} is not in \[0, 5\)"):
        DataFeeder([("s", kind)])([(each,) for each in samples])


@pytest.mark.parametrize(
    "kind", [data_type.integer_value_sequence(9), data_type.dense_vector_sequence(1)], ids=["ids", "vectors"]
)
def test_a_number_for_a_sequence_is_named(kind: data_type.InputType) -> None:
    with pytest.raises(ValueError, match=r"'s': expected a list .*, got 7 in sample 1; give \[7\], or"):
        DataFeeder([("s", kind)])([([[3]],), (7,)])


def test_samples_without_a_batch_around_them_are_recognised() -> None:
    with pytest.raises(TypeError, match=r"paddle\.batch"):
        DataFeeder(TYPES)([3, 4])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"got NoneType; .* as a tuple"):
        DataFeeder(TYPES)([None, None])  # type: ignore[list-item]
    for batch in (np.ones((4, 2)), None, (sample for sample in [([1, 2], 0)])):
        with pytest.raises(TypeError, match=r"a batch must be a list or tuple .*paddle\.batch"):
            DataFeeder(TYPES)(batch)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one"):
        DataFeeder(TYPES)([])


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (data_type.dense_vector(2), [1.0, 2.0]),
        (data_type.dense_vector(2), (1, 2)),
        (data_type.integer_value_sequence(5), [1, 4, 2]),
        (data_type.sparse_binary_vector(5), [1, 3]),
        (data_type.dense_vector_sequence(2), [[1.0, 2.0], [3.0, 4.0]]),
    ],
)
def test_rows_that_are_not_in_tuples_are_recognised(kind: data_type.InputType, row: Sequence[object]) -> None:
    feeder = DataFeeder([("s", kind)], advice="write (row,)")
    with pytest.raises(
        TypeError, match=r"got (list|tuple), itself a value of data layer 's'; write \(row,\)$"
    ):
        feeder([row, row])
    assert feeder([(row,), (row,)])


def test_a_column_without_its_sub_sequences_is_still_a_column() -> None:
    feeder = DataFeeder([("s", data_type.integer_value_sub_sequence(5))])
    with pytest.raises(ValueError, match=r"give \[1\], or declare the layer without _sub_sequence"):
        feeder([([1, 2],), ([3],)])


@pytest.mark.parametrize("sample", [([1, 2], 3), [[1, 2], 3]])
def test_a_sample_in_place_of_a_batch_is_recognised(sample: Sequence[object]) -> None:
    with pytest.raises(TypeError, match=r"got int; .* wrap it in paddle\.batch\(reader, 32\)"):
        DataFeeder([("w", data_type.integer_value_sequence(5)), *TYPES[1:]])(sample)  # type: ignore[arg-type]


@pytest.mark.parametrize("second", [5, {"x": 1}, None])
def test_a_sample_of_another_kind_than_the_first_is_named(second: object) -> None:
    with pytest.raises(ValueError, match="sample 1 has no column 0 for data layer 'x'"):
        DataFeeder(TYPES)([([1, 2], 0), second])  # type: ignore[list-item]


@pytest.mark.parametrize("sample", [[5, 100], [-1], [1.5]])
def test_columns_out_of_range_are_refused(sample: list[int]) -> None:
    with pytest.raises(ValueError, match="'b'"):
        DataFeeder([("b", data_type.sparse_binary_vector(100))])([(sample,)])


def test_a_column_of_an_unknown_data_layer_is_named() -> None:
    with pytest.raises(ValueError, match=r"\['s'\].*\['words'\], which are not"):
        DataFeeder([("s", data_type.dense_vector(1))], {"words": 0})


def test_an_event_without_results_names_the_one_that_has_them() -> None:
    with pytest.raises(AttributeError, match=r"BeginPass .*metrics.*EndIteration"):
        event.BeginPass(0).metrics  # noqa: B018
    with pytest.raises(AttributeError, match=r"BeginIteration has no cots; it has pass_id, batch_id$"):
        event.BeginIteration(0, 0).cots  # noqa: B018
    with pytest.raises(AttributeError, match=r"EndPass has no cost; .*EndIteration has the cost of a batch"):
        event.EndPass(0, dict, None).cost  # type: ignore[arg-type]  # noqa: B018
    with pytest.raises(AttributeError, match=r"TestResult has no loss; it has cost, metrics: use cost"):
        event.TestResult(dict, 0.5).loss  # noqa: B018


def test_a_result_of_a_test_formats_as_its_cost() -> None:
    result = event.TestResult(dict, 0.25)
    assert f"%f {result:.2f}" % result == "0.250000 0.25"
    assert "cost=0.25" in f"{result}"


def test_a_vector_of_zeros_and_ones_for_a_sparse_layer_is_refused() -> None:
    feeder = DataFeeder([("x", data_type.sparse_binary_vector(10))])
    with pytest.raises(
        ValueError, match=r"'x': expected the indices of the columns that are 1.*dense_vector\(10\)"
    ):
        feeder([([0, 1] + [0] * 8,), ([0, 0, 1, 0] + [0] * 6,)])
    feeder([(list(range(10)),), ([1, 1],)])
    feeder([([2, 3],), ([0] * 10,)])  # a sentence of ten unknown words
    DataFeeder([("x", data_type.sparse_binary_vector(3))])([([0, 1, 0],)])  # words that are repeated


def test_a_value_that_is_not_finite_is_named_and_otherwise_the_training() -> None:
    feed = DataFeeder([("x", data_type.dense_vector(2))])([([1.0, 2.0],), ([1.0, None],)])
    assert why_not_finite(feed).startswith(
        "data layer 'x', row 1 of the batch: item 1 is NaN, infinite or None"
    )
    feed["x"][:] = 0
    assert "smaller learning_rate" in why_not_finite(feed)


def test_an_unknown_event_and_metric_list_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no event 'EndBatch'; its events are .*EndIteration"):
        event.EndBatch  # noqa: B018
    result = event.EndPass(0, lambda: {"auc": 0.5}, None)  # type: ignore[arg-type]
    assert (str(result.metrics), result.metrics.get("error")) == ("{'auc': 0.5}", None)
    with pytest.raises(KeyError, match="no metric error; the metrics are 'auc'"):
        result.metrics["error"]
