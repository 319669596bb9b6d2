# SPDX-License-Identifier: Apache-2.0
"""Handles on values in scopes: tensors with sequences of other rows, arrays, selected rows and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid
from paddle.fluid import core

fluid: Any = paddle.fluid  # as in scripts, which know no types
layers = fluid.layers
CPU = fluid.CPUPlace()


def rows(numbers: Any, height: int, values: Any) -> Any:
    made = core.SelectedRows(numbers, height)
    made.get_tensor().set(np.array(values, np.float32), CPU)
    return made


def test_rows_with_the_sequences_of_other_rows_are_neither_fed_nor_run_nor_saved(tmp_path: Any) -> None:
    x = layers.data("x", [2], lod_level=1)
    kept = layers.create_global_var([3, 2], 1.0, "float32", persistable=True, name="kept")
    fed, read = layers.scale(x, 2.0), layers.scale(kept, 2.0)
    exe = fluid.Executor(CPU)
    tensor = fluid.create_lod_tensor(np.ones((3, 2), np.float32), [[1, 2]], CPU)
    held = fluid.global_scope().var("kept").get_tensor()
    for each in (tensor, held):
        each.set(np.ones((3, 2), np.float32), CPU)
        each.set_lod([[0, 1, 3]])
        each.set(np.full((5, 2), 3, np.float32), CPU)
    refused = r"\(5, 2\).*\[\[0, 1, 3\]\]"
    with pytest.raises(ValueError, match=refused):
        exe.run(feed={"x": tensor}, fetch_list=[fed])
    with pytest.raises(ValueError, match=refused):
        exe.run(fetch_list=[read])
    with pytest.raises(ValueError, match=refused):
        fluid.io.save_persistables(exe, str(tmp_path))
    with pytest.raises(ValueError, match=refused):
        np.asarray(fluid.global_scope().get("kept"))
    tensor.set_lod([[0, 5]])
    (found,) = exe.run(feed={"x": tensor}, fetch_list=[fed], return_numpy=False)
    assert (found.lod(), np.array(found).tolist()) == ([[0, 5]], [[6.0, 6.0]] * 5)


def test_elements_and_dtypes_change_without_the_sequences() -> None:
    tensor = fluid.create_lod_tensor(np.ones((3, 2), np.float32), [[1, 2]], CPU)
    tensor._set_float_element(3, 7.5)
    tensor._alloc_double(CPU)
    assert np.array(tensor).tolist() == [[1.0, 1.0], [1.0, 7.5], [1.0, 1.0]]
    assert (tensor._dtype(), tensor.lod()) == (np.float64, [[0, 1, 3]])


@pytest.mark.parametrize(
    "act",
    [
        lambda: fluid.LoDTensor().set_lod([[0, 1.5, 3]]),
        lambda: fluid.create_lod_tensor(np.ones((3, 1)), [[1.5, 1.5]], CPU),
        lambda: rows([0, 1.5], 10, [1]),
        lambda: rows([0], 10, [1]).set_rows([1.5]),
    ],
)
def test_offsets_lengths_and_rows_that_are_no_whole_numbers_are_refused(act: Any) -> None:
    with pytest.raises(ValueError, match=r"1\.5"):
        act()


def test_an_array_is_built_in_a_scope_read_by_a_program_and_changed() -> None:
    kind = core.VarDesc.VarType.LOD_TENSOR_ARRAY
    array = (
        fluid.default_main_program()
        .global_block()
        .create_var(name="values", dtype="float32", type=kind, persistable=True)
    )
    index = layers.fill_constant([1], "int64", 1)
    doubled, count = layers.scale(layers.array_read(array, index), 2.0), layers.array_length(array)
    handle = fluid.global_scope().var(array.name).get_lod_tensor_array()
    assert len(handle) == 0
    for value in (1.0, 2.0, 3.0):
        tensor = fluid.LoDTensor()
        tensor.set(np.full((2, 1), value, np.float32), CPU)
        handle.append(tensor)
    exe = fluid.Executor(CPU)

    def run() -> Any:
        found, number = exe.run(fetch_list=[doubled, count])
        return found.ravel().tolist(), number.tolist()

    assert run() == ([4.0, 4.0], [3])
    again = fluid.global_scope().find_var(array.name).get_lod_tensor_array()
    again[1].set(np.full((2, 1), 5.0, np.float32), CPU)
    del again[2]
    assert run() == ([10.0, 10.0], [2])
    again[-1] = again[0]
    assert run() == ([2.0, 2.0], [2])
    assert [np.array(each).ravel().tolist() for each in again] == [[1.0, 1.0]] * 2
    with pytest.raises(IndexError):
        _ = again[2]
    with pytest.raises(TypeError, match="LoDTensor"):
        again.append(np.ones(3))


def test_an_array_that_a_program_wrote_is_read_from_the_scope() -> None:
    array = layers.array_write(
        layers.fill_constant([2], "float32", 4.0), layers.fill_constant([1], "int64", 0)
    )
    array.persistable = True
    exe = fluid.Executor(CPU)
    exe.run()
    found = fluid.global_scope().find_var(array.name).get_lod_tensor_array()
    assert [np.array(each).tolist() for each in found] == [[4.0, 4.0]]
    assert [each.tolist() for each in fluid.executor.as_numpy(found)] == [[4.0, 4.0]]


def test_an_array_of_a_script_is_a_list_of_tensors() -> None:
    first, second = (fluid.create_lod_tensor(np.full((2, 1), at), [[2]], CPU) for at in (1, 2))
    array = fluid.LoDTensorArray([first])
    array.extend([second])
    array.insert(0, second)
    assert [np.array(each)[0, 0] for each in array] == [2, 1, 2]
    assert [each.lod() for each in array[1:]] == [[[0, 2]]] * 2


@pytest.mark.parametrize("name", ["number", "rows", "array", "tensor", "empty"])
def test_a_variable_answers_only_as_what_it_holds(name: str) -> None:
    scope = core.Scope()
    scope.var("number").set_int(3)
    scope.var("rows").get_selected_rows().set_rows([5])
    scope.var("array").get_lod_tensor_array()
    scope.var("tensor").get_tensor().set(np.ones(2), CPU)
    asked: dict[str, Any] = {
        "number": lambda: scope.var(name).get_int(),
        "rows": lambda: scope.var(name).get_selected_rows(),
        "array": lambda: scope.var(name).get_lod_tensor_array(),
        "tensor": lambda: scope.var(name).get_tensor(),
        "float": lambda: scope.var(name).get_float(),
        "set": lambda: scope.var(name).set_float(1.0),
    }
    answered, refusals = [], []
    for kind, ask in asked.items():
        scope.var("empty")._cell.value = None
        try:
            ask()
            answered.append(kind)
        except TypeError as error:
            refusals.append(str(error))
    assert all(repr(name) in refusal for refusal in refusals)
    assert answered == {
        "number": ["number", "set"],
        "empty": ["rows", "array", "tensor", "set"],
    }.get(name, [name])


def test_selected_rows_are_fed_to_a_variable_of_selected_rows_only() -> None:
    block = fluid.default_main_program().global_block()
    grad = block.create_var("grad", [4, 2], "float32", type=core.VarDesc.VarType.SELECTED_ROWS)
    table = layers.create_global_var([4, 2], 1.0, "float32", persistable=True, name="table")
    rate = layers.fill_constant([1], "float32", 0.5)
    block.append_op("sgd", {"Param": table, "Grad": grad, "LearningRate": rate}, {"ParamOut": table})
    plain = layers.scale(layers.data("plain", [2]), 2.0)
    exe = fluid.Executor(CPU)
    exe.run(fluid.default_startup_program())
    given = rows([1, 3, 3], 4, [[1, 2], [3, 4], [5, 6]])
    exe.run(feed={"grad": given}, fetch_list=[])
    expected = np.ones((4, 2), np.float32)
    np.subtract.at(expected, [1, 3, 3], 0.5 * np.array([[1, 2], [3, 4], [5, 6]], np.float32))
    np.testing.assert_array_equal(fluid.global_scope().get("table"), expected)
    with pytest.raises(TypeError, match="'plain'"):
        exe.run(feed={"plain": given}, fetch_list=[plain])
    parallel = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        places=fluid.cpu_places(2)
    )
    with pytest.raises(ValueError, match=r"'grad'.* 2 places"):
        exe.run(parallel, feed={"grad": given})
