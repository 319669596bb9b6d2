# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.errors import ModelFileError


def trained() -> tuple[fluid.Executor, fluid.framework.Variable]:
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1])
    out = fluid.layers.fc(fluid.layers.dropout(x, 0.2), 1, param_attr="w", bias_attr="b")
    fluid.optimizer.Adam(0.01).minimize(fluid.layers.mean(fluid.layers.square_error_cost(out, y)))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    exe.run(feed={"x": np.ones((4, 3), "float32"), "y": np.ones((4, 1), "float32")})
    return exe, out


def values() -> dict[str, np.ndarray]:
    return {name: np.array(fluid.global_scope().get(name)) for name in fluid.global_scope().names()}


@pytest.mark.parametrize("filename", [None, "all"])
def test_what_was_saved_is_loaded(tmp_path: Path, filename: str | None) -> None:
    exe, _ = trained()
    before = values()
    fluid.io.save_persistables(exe, tmp_path / "model", filename=filename)
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(exe, tmp_path / "model", filename=filename)
        after = values()
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_a_file_has_the_bytes_of_the_original_format(tmp_path: Path) -> None:
    exe, _ = trained()
    value = np.array([[1], [2], [3]], "float32")
    fluid.global_scope().set("w", value)
    fluid.io.save_params(exe, tmp_path)
    description = bytes([8, 5, 16, 3, 16, 1])  # data_type 1: FP32; dims 2: 3, 1
    assert (tmp_path / "w").read_bytes() == (
        struct.pack("<IQ", 0, 0) + struct.pack("<Ii", 0, 6) + description + value.tobytes()
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "w"]


def test_a_model_is_saved_after_minimize_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exe, out = trained()
    fluid.io.save_inference_model(tmp_path, ["x"], [out], exe)
    fluid.io.get_inference_program([out])
    assert not caplog.text


def test_a_model_for_inference_gives_the_same_numbers(tmp_path: Path) -> None:
    exe, out = trained()
    program = fluid.default_main_program()
    before = len(program.global_block().ops)
    names = fluid.io.save_inference_model(tmp_path, ["x"], [out], exe)
    assert len(program.global_block().ops) == before
    assert names == ["save_infer_model/scale_0"]
    xs = np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
    expected = xs @ fluid.global_scope().get("w") + fluid.global_scope().get("b")
    with fluid.scope_guard(fluid.Scope()):
        loaded, feeds, fetches = fluid.io.load_inference_model(tmp_path, exe)
        (got,) = exe.run(loaded, feed={feeds[0]: xs * 1}, fetch_list=fetches)
    np.testing.assert_allclose(got, 0.8 * xs @ values()["w"] + values()["b"], rtol=1e-5)
    assert not np.allclose(got, expected)  # dropout scales what it keeps in tests


def test_a_target_that_needs_more_than_is_fed_is_refused(tmp_path: Path) -> None:
    exe, out = trained()
    with pytest.raises(ValueError, match="depend on 'x'"):
        fluid.io.save_inference_model(tmp_path, [], [out], exe)


def test_damaged_files_are_told_and_change_nothing(tmp_path: Path) -> None:
    exe, _ = trained()
    fluid.io.save_persistables(exe, tmp_path)
    before = values()
    whole = (tmp_path / "w").read_bytes()
    for damaged in (
        whole[:-1],
        whole + b"x",
        b"",
        b"\xff" * len(whole),
        whole[:4] + b"\xff" * 8 + whole[12:],
    ):
        (tmp_path / "w").write_bytes(damaged)
        with pytest.raises(ModelFileError):
            fluid.io.load_persistables(exe, tmp_path)
    (tmp_path / "w").unlink()
    with pytest.raises(ModelFileError, match="cannot read"):
        fluid.io.load_persistables(exe, tmp_path)
    after = values()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_a_value_of_another_shape_is_refused(tmp_path: Path) -> None:
    exe, _ = trained()
    fluid.global_scope().set("w", np.zeros((5, 1), "float32"))
    fluid.io.save_params(exe, tmp_path)
    with pytest.raises(ModelFileError, match=r"holds \(5, 1\) float32, but the program expects \(3, 1\)"):
        fluid.io.load_params(exe, tmp_path)


def test_constants_that_float32_lacks_survive_in_the_bytes_of_a_program() -> None:
    arrays = [np.array([1 / 3, 1e300, 1e-50, 2.0]), np.array([2**24 + 1, -(2**40) - 1])]
    constants = [("int64", 2**24 + 1), ("int32", 2**31 - 1), ("float64", 1 / 3), ("float64", 1e300)]
    fetched = [fluid.layers.assign(each) for each in arrays]
    fetched += [fluid.layers.fill_constant([1], dtype, value) for dtype, value in constants]
    read = fluid.Program.parse_from_string(fluid.default_main_program().desc.serialize_to_string())
    got = fluid.Executor(fluid.CPUPlace()).run(read, fetch_list=[each.name for each in fetched])
    expected = [*arrays, *(np.array([value], dtype) for dtype, value in constants)]
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)
