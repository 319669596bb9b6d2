# SPDX-License-Identifier: Apache-2.0
"""Mistakes in feeds, startup programs and saved names: messages have the cause, the script's line, the correction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.env import JobEnvironment
from paddle.errors import PaddleError

_LINE = r"at .*test_fluid_corrections\.py:\d+"
_SWAPPED = "'x' and 'y' were fed with each other's values: feed_list has the order"
_Feed = dict[str, Any]


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


def regression(shape: list[int], batch: bool = True) -> fluid.framework.Variable:
    x = fluid.layers.data("x", shape, append_batch_size=batch)
    y = fluid.layers.data("y", [1])
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))


def image() -> fluid.framework.Variable:
    return fluid.layers.conv2d(fluid.layers.data("x", [1, 8, 8]), 2, 3)


def classes() -> fluid.framework.Variable:
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1], dtype="int64")
    return fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(x, 3, act="softmax"), y))


def words(pooled: bool = True) -> fluid.framework.Variable:
    ids = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    rows = fluid.layers.embedding(ids, [9, 6])
    return fluid.layers.fc(fluid.layers.sequence_pool(rows, "sum") if pooled else rows, 2)


def lstm() -> fluid.framework.Variable:
    ids = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    return fluid.layers.dynamic_lstm(fluid.layers.fc(fluid.layers.embedding(ids, [9, 6]), 8), 8)[0]


_LOD = f"declared .* {_LINE} with lod_level=1: feed fluid.create_lod_tensor"


def run(out: fluid.framework.Variable, feed: _Feed) -> list[Any]:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe.run(feed=feed, fetch_list=[out], return_numpy=False)


@pytest.mark.parametrize(
    ("build", "feed", "says"),
    [
        (
            lambda: regression([32, 13]),
            {"x": zeros(32, 13), "y": zeros(32, 1)},
            rf"declared \(-1, 32, 13\) {_LINE}: layers.data adds the batch size, .* declare shape=\[13\], or pass",
        ),
        (image, {"x": zeros(1, 8, 8)}, r"feed one sample as a batch \(1, 1, 8, 8\)"),
        (
            lambda: regression([13]),
            {"x": zeros(13), "y": zeros(1, 1)},
            rf"{_LINE}: feed a batch, as in .reshape\(1, 13\)",
        ),
        (
            lambda: regression([13]),
            {"x": zeros(4, 13), "y": zeros(4)},
            rf"'y' .* declared \(-1, 1\) {_LINE}: reshape it, as in .reshape\(-1, 1\)",
        ),
        (lambda: regression([13]), {"x": zeros(4, 1), "y": zeros(4, 13)}, _SWAPPED),
        (classes, {"x": zeros(4, 1, dtype="int64"), "y": zeros(4, 4)}, _SWAPPED),
        (words, {"words": zeros(3, 4, 1, dtype="int64")}, rf"fed with shape \(3, 4, 1\), but is {_LOD}"),
        (words, {"words": zeros(12, 1, dtype="int64")}, f"fed with an array without LoD, but is {_LOD}"),
        (lstm, {"words": zeros(3, 4, 1, dtype="int64")}, _LOD),
    ],
)
def test_wrong_feeds_are_corrected(
    build: Callable[[], fluid.framework.Variable], feed: _Feed, says: str
) -> None:
    with pytest.raises(PaddleError, match=says):
        run(build(), feed)


@pytest.mark.parametrize(
    ("build", "feed"),
    [
        (lambda: regression([-1, 13], batch=False), {"x": zeros(4, 12), "y": zeros(4, 1)}),
        (lambda: regression([13]), {"x": zeros(4, 12), "y": zeros(4, 1)}),
        (lambda: regression([13]), {"x": zeros(4, 1), "y": zeros(4, 12)}),
    ],
)
def test_other_shapes_get_no_wrong_correction(
    build: Callable[[], fluid.framework.Variable], feed: _Feed
) -> None:
    with pytest.raises(PaddleError, match="but is declared") as caught:
        run(build(), feed)
    assert not any(
        each in str(caught.value) for each in ("reshape", "layers.data adds", "each other's", "LoD")
    )


def test_words_without_lod_are_accepted_where_no_operator_needs_it() -> None:
    assert run(words(pooled=False), {"words": zeros(12, 1, dtype="int64")})[0].shape() == [12, 2]


def network() -> fluid.framework.Variable:
    return fluid.layers.fc(fluid.layers.fc(fluid.layers.data("x", [4]), 3), 1)


def test_minimize_outside_the_program_guard_is_corrected() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        loss = fluid.layers.mean(network())
    fluid.optimizer.Adam(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    says = rf"default_startup_program\(\) initializes it {_LINE}, but .*within its program_guard, .*startup_program="
    with pytest.raises(PaddleError, match=says):
        exe.run(main, feed={"x": zeros(2, 4)}, fetch_list=[loss])
    exe.run(fluid.default_startup_program())
    exe.run(main, feed={"x": zeros(2, 4)}, fetch_list=[loss])


def test_a_scope_without_values_can_also_be_loaded() -> None:
    out = network()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with (
        fluid.scope_guard(fluid.Scope()),
        pytest.raises(PaddleError, match="or load saved values into this scope"),
    ):
        exe.run(feed={"x": zeros(2, 4)}, fetch_list=[out])


@pytest.mark.parametrize("load", [fluid.io.load_persistables, fluid.io.load_params])
def test_other_generated_names_are_explained(load: Callable[..., None], tmp_path: Path) -> None:
    network()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_persistables(exe, str(tmp_path))
    again = fluid.Program()
    with fluid.program_guard(again, fluid.Program()):
        network()
    says = rf"it has 'fc_0.w_0', because the network was built again {_LINE}, .*unique_name.guard"
    with pytest.raises(PaddleError, match=says):
        load(exe, str(tmp_path), main_program=again)


def test_a_larger_network_was_not_built_again(tmp_path: Path) -> None:
    out = network()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_persistables(exe, str(tmp_path))
    fluid.layers.fc(out, 2)
    with pytest.raises(PaddleError, match="load it into the program that saved the directory"):
        fluid.io.load_persistables(exe, str(tmp_path))


def scores(size: int = 3, level: int = 0) -> fluid.framework.Variable:
    return fluid.layers.fc(fluid.layers.data("x", [4], lod_level=level), size, act="softmax")


def label(level: int = 0, dtype: str = "int64") -> fluid.framework.Variable:
    return fluid.layers.data("label", [1], dtype=dtype, lod_level=level)


_L = fluid.layers
_EXCHANGED = "input is the prediction, and label the data layer: exchange"


@pytest.mark.parametrize(
    "build",
    [
        lambda: _L.cross_entropy(input=label(), label=scores()),
        lambda: _L.cross_entropy(input=label(dtype="float32"), label=scores()),
        lambda: _L.softmax_with_cross_entropy(logits=label(), label=scores()),
        lambda: _L.bpr_loss(input=label(), label=scores()),
        lambda: _L.accuracy(input=label(), label=scores()),
        lambda: _L.auc(input=label(), label=scores(2)),
        lambda: _L.hsigmoid(input=label(), label=scores(), num_classes=3),
        lambda: _L.nce(input=label(), label=scores(), num_total_classes=3),
        lambda: _L.linear_chain_crf(input=label(1), label=scores(3, 1)),
        lambda: _L.warpctc(input=label(1), label=scores(3, 1)),
    ],
)
def test_exchanged_predictions_and_labels_are_named(build: Callable[[], Any]) -> None:
    with pytest.raises(PaddleError, match=_EXCHANGED):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: _L.cross_entropy(scores(), label()),
        lambda: _L.cross_entropy(scores(), _L.cast(label(dtype="float32"), "int64")),
        lambda: _L.cross_entropy(_L.data("p", [3]), _L.reshape(_L.argmax(scores(), 1), [-1, 1])),
        lambda: _L.cross_entropy(_L.data("p", [3]), _L.one_hot(label(), 3), soft_label=True),
        lambda: _L.accuracy(_L.data("p", [3]), label()),
        lambda: _L.sigmoid_cross_entropy_with_logits(_L.data("p", [1]), _L.cast(label(), "float32")),
    ],
)
def test_computed_labels_are_accepted(build: Callable[[], Any]) -> None:
    assert build().shape[-1] == 1


def test_a_cost_of_numbers_with_exchanged_arguments_has_no_gradient() -> None:
    cost = _L.sigmoid_cross_entropy_with_logits(label(dtype="float32"), _L.fc(_L.data("x", [4]), 1))
    with pytest.raises(PaddleError, match="input and label of the cost are not exchanged"):
        fluid.optimizer.SGD(0.1).minimize(_L.mean(cost))


def gates(width: int) -> fluid.framework.Variable:
    return _L.fc(_L.data("s", [6], lod_level=1), width)


_NCHW = r"'img' \(-1, 28, 28, 1\) as \(batch, channels, height, width\): declare it as \[1, 28, 28\]"


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (
            lambda: _L.dynamic_lstm(gates(64), 16),
            r"4 times the number of units: give the LSTM size=64 \(16 units\)",
        ),
        (lambda: _L.dynamic_lstmp(gates(64), 16, 8), r"give the LSTM size=64 \(16 units\)"),
        (
            lambda: _L.dynamic_lstm(gates(18), 16),
            r"number of units: give the fc before it size=16 \(4 units\)",
        ),
        (
            lambda: _L.dynamic_lstm(gates(18), 18),
            "4 times the number of units, got 18: for 18 units, pass 72",
        ),
        (
            lambda: _L.dynamic_gru(gates(48), 48),
            "needs width 144: pass size=16, or give the fc before it size=144",
        ),
        (lambda: _L.dynamic_gru(gates(16), 16), "needs width 48: give the fc before it size=48"),
        (lambda: _L.gru_unit(gates(48), gates(16), 16), "3 times the number of units, got 16: .* pass 48"),
        (lambda: _L.conv2d(_L.data("img", [28, 28, 1]), 20, 5), _NCHW),
        (lambda: _L.pool2d(_L.data("img", [28, 28, 1]), 5), _NCHW),
        (
            lambda: fluid.nets.simple_img_conv_pool(_L.data("img", [28, 28, 1]), 20, 5, 2, 2),
            "feed images.transpose",
        ),
    ],
)
def test_sizes_of_layers_are_corrected(build: Callable[[], Any], says: str) -> None:
    with pytest.raises(PaddleError, match=says):
        build()


@pytest.mark.parametrize("named", [False, True])
def test_a_parallel_executor_takes_no_program_in_run(named: bool) -> None:
    loss = _L.mean(network())
    exe = fluid.ParallelExecutor(use_cuda=False)
    program = fluid.default_main_program()
    args, more = ((), {"program": program}) if named else ((program,), {})
    with pytest.raises(TypeError, match=r"its first argument is fetch_list, as in run\(fetch_list=\[loss\]"):
        exe.run(*args, **more, fetch_list=[loss], feed={"x": zeros(2, 4)})  # type: ignore[misc, arg-type]


def test_an_accuracy_asks_for_its_weight() -> None:
    with pytest.raises(TypeError, match=r"weight is missing: .* update\(value, weight=len\(batch\)\)"):
        fluid.metrics.Accuracy().update(0.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("trainer", "did you mean 'TRAINER'"),
        ("PSEVER", "did you mean 'PSERVER'"),
        ("Trainners", "did you mean 'TRAINER'"),
        ("worker", "expected TRAINER or PSERVER, got 'worker'$"),
    ],
)
@pytest.mark.parametrize("variable", ["TRAINING_ROLE", "PADDLE_TRAINING_ROLE"])
def test_misspelt_roles_get_the_nearest_one(variable: str, text: str, says: str) -> None:
    with pytest.raises(PaddleError, match=f"environment variable {variable}: .*{says}"):
        JobEnvironment.read({variable: text})


@pytest.mark.parametrize(
    ("feeds", "targets", "says"),
    [
        (
            ["fc_0.tmp_1"],
            ["x"],
            r"\['x'\] are data layers; \['fc_0.tmp_1'\] are computed: exchange feeded_var_names",
        ),
        (["fc_0.tmp_1", "x"], ["x"], "exchange feeded_var_names and target_vars"),
        (["x"], ["x"], r"\['x'\] are data layers; give predictions"),
        (["xs"], ["fc_0.tmp_1"], "feeded_var_names: no variable .* named 'xs'.*: use x.name"),
        (["x"], ["predict"], "target_vars: no variable .* named 'predict'.*: use x.name"),
    ],
)
def test_wrong_names_of_an_inference_model_are_corrected(
    feeds: list[str], targets: list[str], says: str, tmp_path: Path
) -> None:
    regression([4])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(PaddleError, match=says):
        fluid.io.save_inference_model(str(tmp_path), feeds, targets, exe)
    assert not list(tmp_path.iterdir())
    fluid.io.save_inference_model(str(tmp_path), ["x"], ["fc_0.tmp_1", "x"], exe)


def _loop(a: fluid.framework.Variable, b: fluid.framework.Variable) -> None:
    while fluid.layers.less_than(a, b):
        a = a * 2.0


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (lambda a, b: bool(a > 0.5), "`if` cannot test 'tmp_1'.* no value .* layers.Switch or IfElse "),
        (lambda a, b: 1 if a == b else 2, "`if` cannot test 'tmp_0'"),
        (lambda a, b: not a != b, "cannot test"),  # noqa: SIM202
        (lambda a, b: bool(a == 1), "cannot test"),
        (lambda a, b: 1 if fluid.layers.less_than(a, b) else 2, "`if` cannot test 'less_than_0"),
        (lambda a, b: not fluid.layers.equal(a, b), "cannot test 'equal_0"),
        (
            lambda a, b: fluid.layers.logical_not(fluid.layers.cast(a, "bool")) or b,
            "cannot test 'logical_not_0",
        ),
        (lambda a, b: bool(fluid.layers.is_empty(a)), "cannot test 'is_empty_0"),
        (
            lambda a, b: bool(fluid.layers.less_than(a, b, cond=fluid.layers.create_tensor("bool"))),
            "cannot test",
        ),
        (_loop, "`while` cannot test 'less_than_0.*; in the program, use layers.While "),
    ],
)
def test_python_tests_no_value_of_a_program(test: Callable[[Any, Any], Any], says: str) -> None:
    a, b = fluid.layers.data("a", [1]), fluid.layers.data("b", [1])
    with pytest.raises(TypeError, match=says):
        test(a, b)


def test_lists_find_a_variable_by_identity_and_append_no_operators() -> None:
    a, b = fluid.layers.data("a", [4]), fluid.layers.data("b", [7], dtype="int64")
    out = [each for each in (a, b) if each not in [a]]
    assert out[0] is b
    assert len(out) == 1
    assert [a, b].index(b) == 1
    assert [a, b].count(b) == 1
    assert 3 not in [a, b]
    assert b not in {a: 1}
    assert not fluid.default_main_program().global_block().ops
    assert [a] != [b]


def test_variables_that_may_be_missing_are_tested() -> None:
    a, mask = fluid.layers.data("a", [1]), fluid.layers.data("mask", [1], dtype="bool")
    out = fluid.layers.fc(a, 1)
    assert a
    assert out
    assert mask
    assert out in [a, out]
    assert [mask, a].index(mask) == 0
    assert a == a
    step = fluid.layers.less_than(a, a)
    assert step in (step, a)
