# SPDX-License-Identifier: Apache-2.0
"""save, load, save_combine and load_combine in programs: the files of fluid.io, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.graph.errors import ExecutionError


def block() -> Any:
    return fluid.default_main_program().global_block()


def ran(feed: dict[str, Any] | None = None, fetches: list[Any] | None = None) -> list[Any]:
    found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetches, return_numpy=False)
    return list(found or [])


def test_a_variable_that_an_operator_saved_is_loaded_with_its_sequences(tmp_path: Path) -> None:
    path = str(tmp_path / "deeper" / "rows")
    rows = layers.data("rows", [2], lod_level=1)
    block().append_op(type="save", inputs={"X": rows}, outputs={}, attrs={"file_path": path})
    value = fluid.create_lod_tensor(np.arange(6, dtype="float32").reshape(3, 2), [[1, 2]], fluid.CPUPlace())
    ran({"rows": value})
    with fluid.program_guard(fluid.Program()):
        out = layers.create_tensor("float32")
        layers.load(out, path)
        (found,) = ran(fetches=[out])
        half = layers.create_tensor("float16")
        layers.load(half, path, load_as_fp16=True)
        (as_half,) = ran(fetches=[half])
    assert found.lod() == [[0, 1, 3]]
    np.testing.assert_array_equal(np.array(found), np.array(value))
    assert np.array(as_half).dtype == np.float16


def test_what_save_vars_wrote_an_operator_loads(tmp_path: Path) -> None:
    w = layers.create_parameter([2, 3], "float32", name="w")
    b = layers.create_parameter([3], "float32", name="b")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_params(exe, str(tmp_path))
    fluid.io.save_params(exe, str(tmp_path), filename="all")
    scope: Any = fluid.global_scope()
    expected = [np.array(scope.find_var(name).get_tensor()) for name in ("b", "w")]
    with fluid.program_guard(fluid.Program()):
        outs = [layers.create_tensor("float32") for _ in range(3)]
        layers.load(outs[0], str(tmp_path / "w"))
        attrs = {"file_path": str(tmp_path / "all")}
        block().append_op(type="load_combine", inputs={}, outputs={"Out": outs[1:]}, attrs=attrs)
        found = [np.array(each) for each in ran(fetches=outs)]
        few = layers.create_tensor("float32")
        block().append_op(type="load_combine", inputs={}, outputs={"Out": [few]}, attrs=attrs)
        with pytest.raises(ExecutionError, match="has data after the last variable"):
            ran(fetches=[few])
    for value, wanted in zip(found, [expected[1], *expected], strict=True):
        np.testing.assert_array_equal(value, wanted)
    assert (w.name, b.name) == ("w", "b")


def test_several_variables_go_to_one_file_as_half_numbers_if_so(tmp_path: Path) -> None:
    path = str(tmp_path / "both")
    x, ids = layers.data("x", [2]), layers.data("ids", [1], dtype="int64")
    attrs = {"file_path": path, "save_as_fp16": True, "overwrite": False}
    block().append_op(type="save_combine", inputs={"X": [x, ids]}, outputs={}, attrs=attrs)
    feed = {"x": np.full((1, 2), 0.1, "float32"), "ids": np.array([[1 << 40]])}
    ran(feed)
    with pytest.raises(ExecutionError, match="both already exists"):
        ran(feed)
    with fluid.program_guard(fluid.Program()):
        outs = [layers.create_tensor(dtype) for dtype in ("float16", "int64")]
        block().append_op(type="load_combine", inputs={}, outputs={"Out": outs}, attrs={"file_path": path})
        half, numbers = (np.array(each) for each in ran(fetches=outs))
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, np.full((1, 2), 0.1, np.float16))
    assert numbers.tolist() == [[1 << 40]]


@pytest.mark.parametrize(("place", "names"), [("absent", "absent:"), ("gone/absent", "absent: .*gone ")])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, place: str, names: str) -> None:
    out = layers.create_tensor("float32")
    layers.load(out, str(tmp_path / place))
    with pytest.raises(ExecutionError, match=f"cannot read .*{names}"):
        ran(fetches=[out])
