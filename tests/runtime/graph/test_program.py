# SPDX-License-Identifier: Apache-2.0
"""Programs, blocks, variables and operators as they are built, copied and pruned; scopes keep values by name."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.graph import Executor, Parameter, Program, Scope, append_backward, unique_name
from paddle.graph.errors import GraphError, NotInitializedError, UnknownVariableError
from paddle.graph.operator import OpRole
from paddle.ops.base.errors import AttrError, OpError, ShapeError, SlotError, UnknownOpError
from tests.runtime.graph.sample_programs import Builder, filled_scope, word_feed, word_program


def test_shapes_are_known_right_after_an_operator_is_appended() -> None:
    build, loss = word_program()
    shapes = {op.type: build.block.var(op.writes[0]).shape for op in build.block.ops}
    assert shapes["lookup_table"] == (-1, 3)
    assert shapes["concat"] == (-1, 12)
    assert shapes["softmax"] == (-1, 30)
    assert loss.shape == (1,)


def test_every_change_counts_the_version_up() -> None:
    program = Program()
    versions = [program.version]
    block = program.global_block()
    block.create_var("x", (2,))
    versions.append(program.version)
    block.append_op("relu", {"X": "x"}, {"Out": "y"})
    versions.append(program.version)
    program.random_seed = 3
    versions.append(program.version)
    assert versions == sorted(set(versions))


def test_reading_a_program_does_not_change_its_version() -> None:
    build, loss = word_program()
    before = build.program.version
    build.program.clone(for_test=True)
    build.program.prune([loss])
    list(build.program.list_vars())
    assert build.program.version == before


def test_a_shared_parameter_is_created_once_and_returned_again() -> None:
    block = Program().global_block()
    first = block.create_parameter("w", (2, 3))
    assert block.create_parameter("w", (2, 3)) is first


def test_a_name_cannot_mean_two_different_variables() -> None:
    block = Program().global_block()
    block.create_parameter("w", (2, 3))
    with pytest.raises(GraphError, match=r"'w' is already used .*\(2, 3\).*\(3, 2\)"):
        block.create_parameter("w", (3, 2))


def test_a_parameter_needs_known_sizes() -> None:
    with pytest.raises(GraphError, match=r"'w'.*\(-1, 3\)"):
        Program().global_block().create_parameter("w", (-1, 3))


def test_a_parameter_that_is_not_trainable_stops_gradients() -> None:
    assert Program().global_block().create_parameter("w", (1,), trainable=False).stop_gradient


def test_variables_without_a_name_get_one_of_their_own() -> None:
    block = Program().global_block()
    assert block.create_var(shape=(1,)).name != block.create_var(shape=(1,)).name


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "error", "text"),
    [
        (
            "matmull",
            {"X": "x"},
            {},
            UnknownOpError,
            "'matmull' has not been registered; did you mean 'matmul'",
        ),
        ("relu", {"Y": "x"}, {}, SlotError, "'relu' has no input slot 'Y': expected X"),
        ("relu", {}, {}, SlotError, "'relu': .*input 'X', got none"),
        ("relu", {"X": ["x", "w"]}, {}, SlotError, "expected one variable, got 2: x, w"),
        ("scale", {"X": "x"}, {"scael": 2.0}, AttrError, "no attribute 'scael'; did you mean 'scale'"),
        ("scale", {"X": "x"}, {"scale": "2"}, AttrError, "'scale': expected float, got '2'"),
        ("clip", {"X": "x"}, {"min": 0.0}, AttrError, "'clip' needs the attribute 'max' .float"),
        ("fill_constant", {}, {"shape": [1], "dtype": "float31"}, AttrError, "'dtype': expected VarType"),
        (
            "mul",
            {"X": "x", "Y": "w"},
            {},
            ShapeError,
            r"4 columns.*5 rows.*x \(3, 4\) float32; w \(5, 2\) float32",
        ),
        (
            "mul",
            {"X": "x", "Y": "ids"},
            {},
            ShapeError,
            r"X \(3, 4\) float32 .* Y \(4, 1\) int64",
        ),
        ("relu", {"X": "nowhere"}, {}, UnknownVariableError, "no variable 'nowhere'"),
    ],
)
def test_a_wrong_operator_is_refused_with_its_names(
    op_type: str, inputs: dict[str, object], attrs: dict[str, object], error: type[Exception], text: str
) -> None:
    block = Program().global_block()
    block.create_var("x", (3, 4))
    block.create_var("w", (5, 2))
    block.create_var("ids", (4, 1), "int64")
    with pytest.raises(error, match=text):
        block.append_op(op_type, inputs, {"Out": "out"}, attrs)  # type: ignore[arg-type]
    assert block.ops == []


def test_an_output_that_exists_must_fit_what_is_inferred() -> None:
    block = Program().global_block()
    block.create_var("x", (3, 4))
    block.create_var("y", (4, 3), "float64")
    with pytest.raises(OpError, match=r"relu.*output 'Out' is \(3, 4\) float32.*y \(4, 3\) float64"):
        block.append_op("relu", {"X": "x"}, {"Out": "y"})


def test_an_output_declared_without_a_shape_takes_the_inferred_one() -> None:
    block = Program().global_block()
    block.create_var("x", (-1, 2), lod_level=1)
    out = block.create_var("y")
    block.append_op("cast", {"X": "x"}, {"Out": out}, {"in_dtype": 5, "out_dtype": "int64"})
    assert (out.shape, out.dtype, out.lod_level) == ((-1, 2), np.dtype("int64"), 1)


def test_attributes_get_their_defaults_and_their_canonical_types() -> None:
    block = Program().global_block()
    block.create_var("x", (1, 2, 4, 4))
    attrs = {"pooling_type": "max", "ksize": [2, np.int64(2)], "strides": np.array([2, 2])}
    op = block.append_op("pool2d", {"X": "x"}, {"Out": "y"}, attrs)
    assert op.attrs["ksize"] == (2, 2)
    assert op.attrs["strides"] == (2, 2)
    assert op.attrs["exclusive"] is True


def test_clone_is_independent_of_the_original() -> None:
    build, loss = word_program()
    copy = build.program.clone()
    operators = len(copy.global_block().ops)
    append_backward(loss)
    assert len(copy.global_block().ops) == operators
    parameter = copy.global_block().var("table")
    assert isinstance(parameter, Parameter)
    assert parameter is not build.block.var("table")


def test_clone_for_test_turns_dropout_off_and_keeps_every_operator() -> None:
    build, loss = word_program(dropout=0.5)
    testing = build.program.clone(for_test=True)
    assert [op.type for op in testing.global_block().ops] == [op.type for op in build.block.ops]
    scope, feed, executor = filled_scope(build.program), word_feed(), Executor()
    trained = executor.run(build.program, feed, [loss], scope)[0]
    tested = [executor.run(testing, feed, [loss.name], scope)[0] for _ in range(2)]
    assert tested[0] == tested[1] != trained


def test_prune_keeps_only_what_the_targets_depend_on() -> None:
    build, loss = word_program()
    append_backward(loss)
    softmax = next(op for op in build.block.ops if op.type == "softmax")
    pruned = build.program.prune([softmax.writes[0]])
    types = [op.type for op in pruned.global_block().ops]
    assert types[-1] == "softmax"
    assert not any(name.endswith("_grad") for name in types)
    assert not pruned.global_block().has_var("label")
    feed = {name: value for name, value in word_feed().items() if name != "label"}
    scope = filled_scope(build.program)
    (value,) = Executor().run(pruned, feed, [softmax.writes[0]], scope)
    np.testing.assert_allclose(value.sum(axis=1), 1.0)


def test_prune_refuses_a_target_that_is_not_there() -> None:
    with pytest.raises(UnknownVariableError, match="'nowhere'"):
        Program().prune(["nowhere"])


def test_random_seed_must_be_a_whole_number() -> None:
    with pytest.raises(GraphError, match="random_seed"):
        Program().random_seed = 1.5  # type: ignore[assignment]


def test_operators_tell_their_role() -> None:
    build = Builder()
    loss = build.op("mean", {"X": build.parameter("w", (2,))})
    append_backward(loss)
    roles = [op.attrs.get("op_role", 0) for op in build.block.ops]
    assert roles == [OpRole.FORWARD | OpRole.LOSS, OpRole.BACKWARD | OpRole.LOSS, OpRole.BACKWARD]
    assert build.block.ops[-1].attrs["op_role_var"] == ("w", "w@GRAD")


def test_a_scope_keeps_the_array_itself() -> None:
    scope, value = Scope(), np.zeros(3)
    scope.set("w", value)
    assert scope.get("w") is value


def test_a_missing_value_is_named() -> None:
    with pytest.raises(NotInitializedError, match="'w' has no value") as caught:
        Scope().get("w")
    assert caught.value.name == "w"


def test_names_are_those_with_values_in_order() -> None:
    scope = Scope()
    scope.cell("empty")
    for name in ("b", "a"):
        scope.set(name, np.zeros(1))
    assert scope.names() == ["b", "a"]
    assert not scope.has("empty")


def test_a_child_sees_its_parents_values_and_hides_them_with_its_own() -> None:
    parent = Scope()
    parent.set("w", 1)
    child = parent.new_scope()
    assert child.has("w")
    child.set("w", 2)
    assert (parent.get("w"), child.get("w"), child.names()) == (1, 2, ["w"])


def test_unique_names_count_per_key_and_start_anew_inside_a_guard() -> None:
    with unique_name.guard():
        assert [unique_name.generate(key) for key in ("fc", "fc", "conv")] == ["fc_0", "fc_1", "conv_0"]
        with unique_name.guard("left_"):
            assert unique_name.generate("fc") == "left_fc_0"
        assert unique_name.generate("fc") == "fc_2"


def test_switching_the_generator_returns_the_old_one() -> None:
    with unique_name.guard():
        unique_name.generate("fc")
        old = unique_name.switch()
        assert unique_name.generate("fc") == "fc_0"
        unique_name.switch(old)
        assert unique_name.generate("fc") == "fc_1"
