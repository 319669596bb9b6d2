# SPDX-License-Identifier: Apache-2.0
"""What is fed or asked for wrongly is told with its name, what was expected, what came and what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import FluidTypeError, RunError
from paddle.fluid.run.feeds import entering
from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import AttrError

X = np.ones((2, 4), np.float32)
Y = np.array([[0], [2]])


def variable(name: str) -> fluid.framework.Variable:
    return fluid.default_main_program().global_block().var(name)


def classifier() -> fluid.framework.Variable:
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [1], dtype="int64")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(x, 3, act="softmax"), y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


@pytest.mark.parametrize(
    ("feed", "told"),
    [
        (
            {"x": X.astype("float64"), "y": Y},
            r"'x' fed: .* float32, got .* float64: pass it as .astype\('float32'\)",
        ),
        (
            {"x": X, "y": Y.astype("float32")},
            r"'y' fed: .* int64, got .* float32: pass it as .astype\('int64'\)",
        ),
        (
            {"x": X, "y": np.array([[0], [1], [1]])},
            r"one label per row of X \(2, 3\), got labels \(3, 1\)",
        ),
        ({"x": "abc", "y": Y}, "'x' was fed a value that is not an array of float32"),
        ({"x": None, "y": Y}, "'x' was fed None"),
    ],
)
def test_a_feed_that_does_not_fit_is_told_with_the_next_step(feed: dict[str, Any], told: str) -> None:
    loss = classifier()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises((ValueError, ExecutionError), match=told):
        exe.run(feed=feed, fetch_list=[loss])


def test_a_scope_without_first_values_asks_for_the_startup_program() -> None:
    loss = classifier()
    with pytest.raises(ValueError, match="run the startup program"):
        fluid.Executor(fluid.CPUPlace()).run(feed={"x": X, "y": Y}, fetch_list=[loss])


def test_a_name_that_the_program_lacks_is_told_apart_from_one_not_computed() -> None:
    classifier()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(
        ValueError, match=r"'nope', read by fetch_list.*the program has no variable of that name"
    ):
        exe.run(feed={"x": X, "y": Y}, fetch_list=["nope"])


def test_samples_without_a_list_for_their_sequence_or_with_text_are_told_by_name() -> None:
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    x = fluid.layers.data("x", [2])
    feeder = fluid.DataFeeder([words, x], fluid.CPUPlace())
    with pytest.raises(ValueError, match=r"'words' has 1 levels .* expected a list in each sample, got 3"):
        feeder.feed([(3, [1.0, 2.0])])
    with pytest.raises(ValueError, match=r"for x .*'a'"):
        feeder.feed([([3], ["a", "b"])])
    ragged = np.array([[1, 2], [3]], object)
    with pytest.raises(RunError, match=r"'words' has lod_level=1.*concatenate\(sequences\).reshape\(-1, 1\)"):
        fluid.Executor().run(feed={"words": ragged}, fetch_list=[words])


def test_whole_numbers_are_refused_by_fc() -> None:
    with pytest.raises(TypeError, match=r"got ids .* int64: use layers.cast, or layers.embedding"):
        fluid.layers.fc(fluid.layers.data("ids", [3], dtype="int64"), 2)


def test_what_fails_in_the_body_of_a_loop_is_told_by_its_operator() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    at = fluid.layers.fill_constant([1], "int64", 0)
    end = fluid.layers.fill_constant([1], "int64", 3)
    more = fluid.layers.less_than(at, end)
    with fluid.layers.While(more).block():
        fluid.layers.embedding(ids, [5, 2])
        fluid.layers.increment(at)
        fluid.layers.less_than(at, end, cond=more)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(
        ExecutionError, match=r"while, in its body: operator 0 .*lookup_table.*id 7 .*Ids=ids \(1, 1\)"
    ):
        exe.run(feed={"ids": np.array([[7]])}, fetch_list=[at])


def test_a_trainer_that_is_none_of_the_trainers_is_refused() -> None:
    t = fluid.DistributeTranspiler()
    with pytest.raises(ValueError, match="call transpile"):
        t.get_trainer_program()
    classifier()
    t.transpile(5, pservers="127.0.0.1:6174", trainers=2)
    with pytest.raises(ValueError, match="expected 0 to 1 for 2 trainers, got 5"):
        t.get_trainer_program()


def test_another_number_of_trainers_than_that_of_the_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier()
    monkeypatch.setenv("PADDLE_JOB_ID", "JOB1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    with pytest.raises(ValueError, match=r"trainers: got 3, but the job has 2.*PADDLE_TRAINERS_NUM"):
        fluid.DistributeTranspiler().transpile(0, pservers="127.0.0.1:6174", trainers=3)
    fluid.DistributeTranspiler().transpile(0, pservers="127.0.0.1:6174", trainers=2)


IMAGES: Any = {"name": "images", "shape": [4, 4, 4]}


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda x: fluid.layers.group_norm(x, 2, data_layout="NHWC"), "NHWC"),
        (lambda x: fluid.layers.batch_norm(x, bias_attr=False), "bias_attr"),
        (lambda x: fluid.layers.batch_norm(x, param_attr=False), "param_attr"),
        (lambda x: fluid.layers.prelu(x, "chanel"), "chanel"),
    ],
)
def test_an_argument_of_a_layer_that_would_change_nothing_is_refused(build: Any, told: str) -> None:
    x = fluid.layers.data(**IMAGES)
    with pytest.raises(ValueError, match=told):
        build(x)


def test_an_activation_that_only_another_backend_fuses_is_warned_about(caplog: Any) -> None:
    fluid.layers.batch_norm(fluid.layers.data(**IMAGES), fuse_with_relu=True)
    assert "fuse_with_relu" in caplog.text


@pytest.mark.parametrize("is_distributed", [False, True])
def test_only_a_distributed_embedding_cannot_be_read_from_servers(
    tmp_path: Any, is_distributed: bool
) -> None:
    executor = fluid.Executor(fluid.CPUPlace())
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(
        ids, [9, 3], is_sparse=True, is_distributed=is_distributed, param_attr="table"
    )
    executor.run(fluid.default_startup_program())
    fluid.io.save_inference_model(tmp_path, ["ids"], [rows], executor)
    load = partial(fluid.io.load_inference_model, tmp_path, executor)
    load()
    if is_distributed:
        with pytest.raises(ValueError, match=r"'table'.*pserver_endpoints"):
            load(pserver_endpoints=["127.0.0.1:6174"])
    else:
        load(pserver_endpoints=["127.0.0.1:6174"])


def test_a_variable_among_the_names_of_fed_variables_is_refused_with_its_name(tmp_path: Any) -> None:
    x: Any = fluid.layers.data("x", [3])
    with pytest.raises(TypeError, match=r"feeded_var_names: expected names, such as \[x.name\].*'x'"):
        fluid.io.save_inference_model(tmp_path, [x], [fluid.layers.fc(x, 1)], fluid.Executor())


def test_all_but_the_last_dimension_of_a_fully_connected_layer_are_kept_with_minus_one() -> None:
    x = fluid.layers.data("x", [3, 4])
    kept = fluid.layers.fc(x, 2, num_flatten_dims=-1, param_attr="w", bias_attr=False)
    same = fluid.layers.fc(x, 2, num_flatten_dims=2, param_attr="w", bias_attr=False)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    given = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    one, two = exe.run(feed={"x": given}, fetch_list=[kept, same])
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one, given @ np.array(fluid.global_scope().get("w")), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fluid.Executor("cpu"), "CPUPlace.*'cpu'"),  # type: ignore[arg-type]
        (lambda: fluid.ParallelExecutor(False, loss_name="mean_9"), "loss_name.*'mean_9'.* mean_0"),
        (lambda: fluid.CompiledProgram(fluid.Program()).with_data_parallel(loss_name="l"), "loss_name.*'l'"),
        (lambda: fluid.layers.fc(fluid.layers.data("z", [2]), 2, act="rleu"), "'rleu'.*'relu'"),
        (lambda: fluid.default_main_program().global_block().var("xx"), "'xx'.*program_guard.* x, y, fc_0"),
        (lambda: fluid.DistributeTranspiler().transpile("0"), "trainer_id.*'0'"),  # type: ignore[arg-type]
        (lambda: fluid.optimizer.SGD("0.1"), r"learning_rate.*'0.1'.*float\("),
        (lambda: fluid.optimizer.SGD(-0.1), r"learning_rate.*-0.1.*minimize"),
        (lambda: fluid.optimizer.SGD(0.1, grad_clip=None), r"grad_clip.*minimize\(loss, grad_clip=...\)"),
        (lambda: fluid.Executor().run(feed=["x", "y"]), "feed: .*{'x': x}.*DataFeeder"),  # type: ignore[list-item]
        (lambda: fluid.Executor().run(fluid.Program(), feed={"z": X}), "'z' was fed.*remove it"),
        (lambda: fluid.optimizer.SGD(0.1).minimize("loss"), "minimize: the loss must be a Variable"),
        (lambda: fluid.optimizer.SGD(0.1, regularization=0.1), "regularization: .*L2Decay"),
        (
            lambda: setattr(fluid.optimizer.SGD(0.1), "learning_rate", 1),
            "learning_rate .* no effect.*schedule",
        ),
        (
            lambda: fluid.layers.fc(variable("x"), 3, act=fluid.layers.relu),  # type: ignore[arg-type]
            "expected the name of an activation",
        ),
        (lambda: bool(variable("x") > 0.5), "`if` cannot test .* no value while the program is built.*fetch"),
        (lambda: np.mean(variable("x")), "'x' is not an array: .*fetch"),
        (lambda: float(variable("x")), "'x' is not a number: .*fetch"),
        (lambda: fluid.Executor().run(feed={"x": [[1, None, 2, 3]], "y": Y}), "'x' was fed .* contains None"),
        (lambda: fluid.layers.fill_constant([1], "int64", 2**53 + 1), "would be rounded.*layers.assign"),
        (
            lambda: setattr(fluid.DistributeTranspilerConfig(), "geo_sgd_mode", True),
            "supports only its default, False",
        ),
        (
            lambda: fluid.io.save_inference_model("m", ["x"], [variable("mean_0.tmp_0")], fluid.Executor()),
            "depend on 'y'.*instead of the cost",
        ),
        (
            lambda: fluid.Executor().run((fluid.Program(), ["x"], [])),  # type: ignore[arg-type]
            "CompiledProgram .*three values: program, feed_names, targets = ",
        ),
        (
            lambda: fluid.layers.cross_entropy(variable("fc_0.tmp_2"), fluid.layers.data("z", [3])),
            "got float32 .*for one-hot labels, pass soft_label=True",
        ),
        (
            lambda: fluid.layers.cross_entropy(variable("fc_0.tmp_2"), fluid.layers.data("z", [1])),
            "got float32 .*declare them as int64",
        ),
        (
            lambda: fluid.layers.square_error_cost(variable("fc_0.tmp_2"), fluid.layers.data("z", [8, 3])),
            r"batch to the shape of 'z': .*such as \[3\]",
        ),
        (lambda: fluid.layers.dynamic_lstm(variable("x"), 8), r"\(-1, 4\).*size=8"),
        (
            lambda: fluid.DataFeeder([variable("y"), variable("x")]).feed([([1.0, 2.0, 3.0, 4.0], 0)]),
            r"feed_list \(y, x\) has the order",
        ),
        (
            lambda: fluid.layers.array_write(variable("x"), i=0),  # type: ignore[arg-type]
            "I: expected a Variable, got 0; .*fill_constant",
        ),
        (lambda: fluid.layers.embedding(variable("y"), 100), r"size: expected \[rows, width\].* got 100"),  # type: ignore[arg-type]
        (lambda: fluid.layers.embedding(variable("x"), [9, 2]), "dtype='int64'"),
        (lambda: fluid.ParamAttr(regularizer=0.1), "regularizer: expected .*L2Decay"),  # type: ignore[arg-type]
        (lambda: fluid.layers.DynamicRNN().step_input(variable("x")), "inside its block: `with rnn.block"),
        (
            lambda: fluid.Executor().run({"x": X}),  # type: ignore[arg-type]
            r"as the first argument, got a dict; pass run\(program, feed=",
        ),
        (lambda: fluid.DataFeeder([variable("x")]).feed([(X[0], 1)]), "wrap it in paddle.batch"),
        (lambda: fluid.regularizer.L2(0.1), "did you mean 'L2Decay'"),
        (lambda: fluid.io.load_inference_model("nowhere", None), "directory nowhere"),  # type: ignore[arg-type]
        (lambda: fluid.io.save_params(None, "/proc/nope"), "/proc/nope"),
    ],
)
def test_an_argument_that_does_not_fit_the_program_is_refused(call: Callable[[], Any], words: str) -> None:
    classifier()
    with pytest.raises((TypeError, ValueError, LookupError, RuntimeError, AttributeError), match=words):
        call()


def test_a_new_learning_rate_is_refused_for_a_program_that_has_one_and_used_for_the_next() -> None:
    optimizer = fluid.optimizer.SGD(0.1)
    optimizer.minimize(fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1)))
    with pytest.raises(ValueError, match="no effect"):
        optimizer._learning_rate = 0.5
    startup = fluid.Program()
    with fluid.program_guard(fluid.Program(), startup):
        optimizer._learning_rate = 0.5
        optimizer.minimize(fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1)))
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    assert [scope.get(name).tolist() for name in scope.names() if "learning_rate" in name] == [[0.5]]


def test_fed_numbers_beyond_the_dtype_are_refused_and_arrays_are_not_copied() -> None:
    program = fluid.default_main_program()
    fluid.layers.data("i", [1], dtype="int32")
    fluid.layers.data("x", [1])
    with pytest.raises(FluidTypeError, match="'i' was fed a value that is not an array of int32"):
        entering([[2**40]], program.global_block(), "i")
    numbers = memoryview(np.ones((2, 1), np.float32))  # type: ignore[arg-type]
    assert np.shares_memory(entering(numbers, program.global_block(), "x"), np.asarray(numbers))


def test_arrays_of_objects_may_have_variables() -> None:
    variables = [fluid.layers.data(name, [1]) for name in "ab"]
    for held in (np.array(variables, object), np.asarray(variables, dtype=object)):
        assert [held[at] is variables[at] for at in range(2)] == [True, True]


def test_a_float_that_holds_no_such_number_is_filled_with_the_nearest() -> None:
    largest = fluid.layers.fill_constant([1], "float32", 2**63 - 1)
    assert fluid.Executor().run(fetch_list=[largest])[0] == 2.0**63


def test_a_run_of_a_test_program_that_trains_is_warned_of() -> None:
    program = fluid.default_main_program()
    exe = fluid.Executor(fluid.CPUPlace())
    exe_feed = {"x": X, "y": Y}
    classifier()
    exe.run(fluid.default_startup_program())
    copy = program.clone(for_test=True)
    with pytest.warns(UserWarning, match="trains on the test data") as caught:
        exe.run(copy, feed=exe_feed)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exe.run(copy, feed=exe_feed)  # only once
        exe.run(program, feed=exe_feed)


def test_a_label_beyond_the_classes_names_both_remedies() -> None:
    loss = classifier()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    with pytest.raises(
        ExecutionError, match=r"label 3 is not in \[0, 3\).*larger size.*from 0.*test_fluid_refusals"
    ):
        exe.run(feed={"x": X, "y": Y + 1}, fetch_list=[loss])


def test_a_second_minimize_of_the_same_loss_is_warned_of() -> None:
    loss = classifier()
    with pytest.warns(UserWarning, match=r"'mean_0.tmp_0' .* twice"):
        fluid.optimizer.Adam(0.1).minimize(loss)


def test_a_startup_program_that_overwrites_what_was_loaded_is_warned_of(tmp_path: Path) -> None:
    classifier()
    exe, startup = fluid.Executor(fluid.CPUPlace()), fluid.default_startup_program()
    exe.run(startup)
    fluid.io.save_params(exe, str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exe.run(startup)
        fluid.io.load_params(exe, str(tmp_path))
        exe.run(feed={"x": X, "y": Y})
        exe.run(startup)
        for _ in range(20):  # a new scope may have the address of a deleted one
            with fluid.scope_guard(fluid.Scope()):
                fluid.io.load_params(exe, str(tmp_path))
            exe.run(startup, scope=fluid.Scope())
        fluid.io.load_params(exe, str(tmp_path))
    with pytest.warns(UserWarning, match="overwrites values that were just loaded, such as 'fc_0"):
        exe.run(startup)


def test_options_of_newer_versions_accept_their_defaults_and_numpy_leaves_operators_to_variables() -> None:
    fluid.DistributeTranspilerConfig().geo_sgd_mode = False
    fluid.BuildStrategy().fuse_bn_act_ops = False
    classifier()
    assert isinstance(np.float32(2) * variable("x"), fluid.framework.Variable)
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup):
        image = fluid.layers.data("image", [1, 8, 8])
    before = len(program.global_block().ops)
    fluid.nets.simple_img_conv_pool(image, 2, 3, 2, 2, main_program=program, startup_program=startup)
    assert len(program.global_block().ops) > before


@pytest.mark.parametrize("other", [0.5, np.float32(2.5), float("inf")])
def test_a_number_that_would_lose_its_fraction_beside_integers_is_refused(other: float) -> None:
    x = fluid.layers.data("ids", [2], dtype="int64")
    combinations: list[Callable[[], Any]] = [
        lambda: x * other,
        lambda: other - x,
        lambda: x == other,
        lambda: x / other,
    ]
    for combine in combinations:
        with pytest.raises(FluidTypeError, match=r"ids .*int64 contains integers, .*layers.cast"):
            combine()
    for change in (fluid.layers.scale, fluid.layers.increment):
        with pytest.raises(AttrError, match=r"X is int64, which cannot represent .*: cast X"):
            change(x, other)
    doubled = x * 2.0
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"ids": np.array([[1, 3]])}, fetch_list=[doubled])
    assert found[0].tolist() == [[2, 6]]
