# SPDX-License-Identifier: Apache-2.0
"""Programs that read recordio files themselves: opened, shuffled, batched, preprocessed, to the end and again."""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.errors import RunError
from paddle.reader import batch
from paddle.reader.recordio import Compressor, RecordFileError, Writer

FIELDS: dict[str, Any] = {"shapes": [[-1, 2], [-1, 1]], "lod_levels": [0, 1], "dtypes": ["float32", "int64"]}
Batch = tuple[list[list[float]], list[int], list[list[int]]]


def samples(count: int) -> Iterator[tuple[list[float], list[int]]]:
    for number in range(count):
        yield [number, -number], [number] * (1 + number % 3)


def feeder() -> fluid.DataFeeder:
    with fluid.program_guard(fluid.Program()):
        x = fluid.layers.data("x", [2])
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        return fluid.DataFeeder([x, ids], fluid.CPUPlace())


def write(path: Path, count: int, size: int = 2, **how: Any) -> str:
    """Write minibatches of `size` samples to a file."""
    reader = batch(lambda: samples(count), size)
    assert fluid.recordio_writer.convert_reader_to_recordio_file(str(path), reader, feeder(), **how) == -(
        -count // size
    )
    return str(path)


def read_file(reader: Any) -> Any:
    return fluid.layers.read_file(reader)


def started() -> fluid.Executor:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


def one_pass(exe: fluid.Executor, fetches: list[Any], limit: int = 100) -> list[Batch]:
    """Run until the end of the data: rows, ids and lengths of each batch."""
    found: list[Batch] = []
    for _ in range(limit):
        try:
            x, ids = exe.run(fetch_list=fetches, return_numpy=False)
        except core.EOFException:
            return found
        found.append((np.array(x).tolist(), np.array(ids)[:, 0].tolist(), ids.recursive_sequence_lengths()))
    raise AssertionError("the reader has no end")


def firsts(found: list[Batch]) -> list[list[float]]:
    return [[row[0] for row in batch[0]] for batch in found]


@pytest.mark.parametrize("compressor", [Compressor.Snappy, core.RecordIOWriter.Compressor.NoCompress])
def test_a_program_reads_a_file_to_its_end_and_again_after_a_reset(
    tmp_path: Path, compressor: Compressor
) -> None:
    path = write(tmp_path / "x.recordio", 5, compressor=compressor, max_num_records=2)
    reader = fluid.layers.open_recordio_file(path, **FIELDS)
    fetches = read_file(reader)
    exe = started()
    wanted = [
        ([[0, 0], [1, -1]], [0, 1, 1], [[1, 2]]),
        ([[2, -2], [3, -3]], [2, 2, 2, 3], [[3, 1]]),
        ([[4, -4]], [4, 4], [[2]]),
    ]
    assert one_pass(exe, fetches) == wanted
    with pytest.raises(core.EOFException):
        exe.run(fetch_list=fetches, return_numpy=False)
    reader.reset()
    assert one_pass(exe, fetches) == wanted


def test_a_file_has_the_chunks_and_tensors_of_the_original(tmp_path: Path) -> None:
    path = write(tmp_path / "x.recordio", 1, 1, compressor=Compressor.NoCompress)
    x = struct.pack("<IQIi", 0, 0, 0, 6) + b"\x08\x05\x10\x01\x10\x02" + struct.pack("<2f", 0, 0)
    ids = struct.pack("<IQQ2QIi", 0, 1, 16, 0, 1, 0, 6) + b"\x08\x03\x10\x01\x10\x01" + struct.pack("<q", 0)
    record = struct.pack("<I", 2) + x + ids
    payload = struct.pack("<I", len(record)) + record
    header = struct.pack("<5I", 0x01020304, 1, zlib.crc32(payload), 0, len(payload))
    assert Path(path).read_bytes() == header + payload


def test_files_are_split_without_losing_the_last_batches(tmp_path: Path) -> None:
    count = fluid.recordio_writer.convert_reader_to_recordio_files(
        str(tmp_path / "part.recordio"),
        2,
        batch(lambda: samples(9), 2),
        feeder(),
        feed_order=["ids", "x"],
    )
    assert count == 5
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == [
        "part-00000.recordio",
        "part-00001.recordio",
        "part-00002.recordio",
    ]
    fields = {name: values[::-1] for name, values in FIELDS.items()}
    ids, x = read_file(fluid.layers.open_files([str(path) for path in paths], **fields))
    assert firsts(one_pass(started(), [x, ids])) == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    with pytest.raises(ValueError, match=r".recordio"):
        fluid.recordio_writer.convert_reader_to_recordio_files("part", 2, list, feeder())


def test_batches_are_joined_with_their_sequences_and_leftovers_are_dropped(tmp_path: Path) -> None:
    path = write(tmp_path / "x.recordio", 7, 1)
    reader = fluid.layers.double_buffer(fluid.layers.batch(fluid.layers.open_files([path], **FIELDS), 3))
    fetches = read_file(reader)
    exe = started()
    found = one_pass(exe, fetches)
    assert firsts(found) == [[0, 1, 2], [3, 4, 5]]
    assert found[1][1:] == ([3, 4, 4, 5, 5, 5], [[1, 2, 3]])
    reader.reset()
    assert one_pass(exe, fetches) == found


def test_several_passes_count_as_one_and_shuffles_are_repeatable(tmp_path: Path) -> None:
    path = write(tmp_path / "x.recordio", 6, 1)
    reader = fluid.layers.shuffle(fluid.layers.open_files([path], **FIELDS, pass_num=2), buffer_size=6)
    fetches = read_file(reader)
    exe = started()
    random.seed(3)
    found = firsts(one_pass(exe, fetches))
    assert found != sorted(found)
    assert sorted(itertools.chain(*found[:6])) == sorted(itertools.chain(*found[6:])) == [0, 1, 2, 3, 4, 5]
    reader.reset()
    random.seed(3)
    assert firsts(one_pass(exe, fetches)) == found


def test_a_preprocessor_runs_its_layers_on_each_batch(tmp_path: Path) -> None:
    path = write(tmp_path / "x.recordio", 4)
    made = fluid.layers.open_files([path], **FIELDS)
    preprocessor = fluid.layers.Preprocessor(made)
    with preprocessor.block():
        x, ids = preprocessor.inputs()
        preprocessor.outputs(x * 10.0 + 1.0, ids)
    reader = fluid.layers.double_buffer(preprocessor())
    x, ids = read_file(reader)
    total = fluid.layers.reduce_sum(x)
    exe = started()
    found = one_pass(exe, [x, ids])
    wanted: Batch = ([[1, 1], [11, -9]], [0, 1, 1], [[1, 2]])
    assert found[0] == wanted
    reader.reset()
    assert [float(exe.run(fetch_list=[total])[0]) for _ in range(2)] == [4.0, 4.0]
    empty = fluid.layers.Preprocessor(made)
    with pytest.raises(ValueError, match=r"call inputs\(\) and outputs\(\) inside"):
        fill(empty)
    with pytest.raises(ValueError, match="call it inside"):
        empty.inputs()


def fill(preprocessor: fluid.layers.Preprocessor) -> None:
    with preprocessor.block():
        """Nothing."""


def test_random_data_feeds_a_net_without_end() -> None:
    reader = fluid.layers.random_data_generator(-2.0, 3.0, shapes=[[4, 2], [4, 1]], lod_levels=[0, 0])
    x, y = read_file(fluid.layers.double_buffer(reader))
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.01).minimize(loss)
    exe = started()
    values = [exe.run(fetch_list=[x, y, loss]) for _ in range(20)]
    drawn = np.array([value[0] for value in values])
    assert drawn.shape == (20, 4, 2)
    assert -2 <= drawn.min() < -1.5
    assert 2.5 < drawn.max() <= 3
    reader.reset()
    with pytest.raises(ValueError, match="random_data_generator: shapes"):
        fluid.layers.random_data_generator(0.0, 1.0, [[-1, 2]], [0])


def test_training_from_files_is_training_by_feeding(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal(2).astype("float32"), [float(number % 2)]) for number in range(24)]

    def net(x: Any, y: Any) -> Any:
        w = fluid.ParamAttr("w", fluid.initializer.Constant(0.5))
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr=w), y))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x, y = fluid.layers.data("x", [2]), fluid.layers.data("y", [1])
        feed = fluid.DataFeeder([x, y], fluid.CPUPlace())
        path = str(tmp_path / "x.recordio")
        fluid.recordio_writer.convert_reader_to_recordio_file(path, batch(lambda: iter(rows), 4), feed)
        loss = net(x, y)
        exe = started()
        fed = [
            exe.run(feed=feed.feed(rows[at : at + 4]), fetch_list=[loss])[0].item() for at in range(0, 24, 4)
        ] * 1
    reader = fluid.layers.open_files([path], [[-1, 2], [-1, 1]], [0, 0], ["float32", "float32"])
    loss = net(*read_file(reader))
    exe = started()
    read = [exe.run(fetch_list=[loss])[0].item() for _ in range(6)]
    assert read == fed
    assert read[-1] != read[0]


def test_each_scope_whose_startup_program_ran_has_a_reader_of_its_own(tmp_path: Path) -> None:
    reader = fluid.layers.open_files([write(tmp_path / "x.recordio", 4)], **FIELDS)
    fetches = read_file(reader)
    with pytest.raises(RunError, match="run the startup program first"):
        reader.reset()
    exe = started()
    exe.run(fetch_list=fetches, return_numpy=False)
    with fluid.scope_guard(fluid.Scope()):
        with pytest.raises(core.EnforceNotMet, match="run the startup program"):
            exe.run(fetch_list=fetches, return_numpy=False)
        exe.run(fluid.default_startup_program())
        assert firsts(one_pass(exe, fetches)) == [[0, 1], [2, 3]]
    assert firsts(one_pass(exe, fetches)) == [[2, 3]]
    copy = fluid.Program.parse_from_string(fluid.default_main_program().serialize_to_string())
    reader.reset()
    (x,) = exe.run(copy, fetch_list=[fetches[0].name])
    assert x.tolist() == [[0, 0], [1, -1]]


def fails(path: Path, **fields: Any) -> core.EnforceNotMet:
    """Read a file in programs of its own; return the error."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        fetches = read_file(fluid.layers.open_recordio_file(str(path), **{**FIELDS, **fields}))
        with pytest.raises(core.EnforceNotMet) as caught:
            started().run(fetch_list=fetches, return_numpy=False)
    return caught.value


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "x.recordio", 4))
    wrong = fails(path, dtypes=["float32", "float32"])
    assert (
        "x.recordio: record 0 has dtypes float32, int64, but the reader was opened with float32, float32"
        in str(wrong)
    )
    with Writer(tmp_path / "text") as writer:
        writer.write(b"\x01\0\0\0no tensor at all")
    assert "text: record 0" in str(fails(tmp_path / "text"))
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-1])
    cut = fails(tmp_path / "cut")
    assert "truncated or damaged" in str(cut)
    assert isinstance(cut.__cause__, RecordFileError)
    with pytest.raises(ValueError, match="2 shapes, 1 lod_levels and 2 dtypes"):
        fluid.layers.open_files([str(path)], [[1], [2]], [0], ["float32", "int64"])
    py_reader: Any = fluid.layers.py_reader(4, [[-1, 1]], ["float32"])
    with pytest.raises(ValueError, match=r"paddle\.reader\.shuffle and paddle\.batch"):
        fluid.layers.shuffle(py_reader, 8)


def test_a_model_for_inference_that_opens_files_is_refused(tmp_path: Path) -> None:
    x = fluid.layers.data("x", [2])
    fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [x * 2.0], started())
    program = fluid.Program.parse_from_string((tmp_path / "model/__model__").read_bytes())
    with fluid.program_guard(fluid.Program(), program):
        fluid.layers.open_recordio_file(write(tmp_path / "x.recordio", 4), **FIELDS)
    (tmp_path / "model/__model__").write_bytes(program.serialize_to_string())
    with pytest.raises(core.EnforceNotMet, match="'create_recordio_file_reader' has side effects"):
        fluid.io.load_inference_model(str(tmp_path / "model"), started())


@pytest.mark.parametrize("for_test", [False, True])
def test_a_model_of_a_network_with_a_reader_is_fed(tmp_path: Path, for_test: bool) -> None:
    reader: Any = fluid.layers.py_reader(4, [[-1, 2], [-1, 1]], ["float32", "int64"])
    x, label = fluid.layers.read_file(reader)
    out = x * 2.0
    cost = fluid.layers.square_error_cost(out, fluid.layers.cast(label, "float32"))
    program = fluid.default_main_program().clone(for_test)
    fluid.io.save_inference_model(str(tmp_path / "model"), [x.name], [out], started(), program)
    loaded, feeds, targets = fluid.io.load_inference_model(str(tmp_path / "model"), started())
    (doubled,) = started().run(loaded, {feeds[0]: np.ones((3, 2), "float32")}, targets)
    assert (feeds, doubled.tolist()) == ([x.name], [[2.0] * 2] * 3)
    with pytest.raises(core.EnforceNotMet, match=f"the targets depend on '{label.name}', which is not one"):
        fluid.io.save_inference_model(str(tmp_path / "cost"), [x.name], [cost], started(), program)
