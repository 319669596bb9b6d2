# SPDX-License-Identifier: Apache-2.0
"""Files of models and parameters may come from anywhere: readers refuse what is wrong with them, no more."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.errors import ModelFileError
from paddle.fluid.files import tensor_file
from paddle.protobuf import bytes_field, fields, varint_field
from paddle.v2.parameter_format import HEADER, ParameterConfig, read_tar
from tests.runtime import hostile_files

ROUNDS = 150


@pytest.mark.parametrize("name", hostile_files.READERS)
def test_a_damaged_file_is_refused_with_an_error_of_its_reader(name: str) -> None:
    found = [hostile_files.attack(name, seed)[1] for seed in range(ROUNDS)]
    assert [what for what in found if what] == []


@pytest.mark.parametrize("name", hostile_files.READERS)
def test_the_file_that_is_damaged_is_a_good_one(name: str) -> None:
    if name != "persistables":  # nothing lies beside the program there
        hostile_files.READERS[name].read(hostile_files.whole(name))


@pytest.mark.parametrize(
    "name", ["../../victim", "a/../../victim", "{folder}/victim", ".", "..", "a//b", "out/victim"]
)
def test_a_variable_is_always_inside_its_directory(tmp_path: Path, name: str) -> None:
    outside, model = tmp_path / "outside", tmp_path / "deep/er/model"
    outside.mkdir()
    model.mkdir(parents=True)
    (model / "out").symlink_to(outside)
    named = name.format(folder=outside)
    victims = [tmp_path / "deep/victim", tmp_path / "deep/er/victim", outside / "victim"]
    for victim in victims:
        victim.write_bytes(b"precious")
    # as a stranger's program has it: one made by hand cannot be called so

    described = varint_field(1, 7) + bytes_field(3, bytes_field(1, tensor_file.tensor_desc("float32", (1,))))
    variable = bytes_field(1, named.encode()) + bytes_field(2, described) + varint_field(3, 1)
    block = varint_field(1, 0) + varint_field(2, -1) + bytes_field(3, variable)
    program = fluid.Program.parse_from_string(bytes_field(1, block))
    fluid.global_scope().set(named, np.ones(1, np.float32))
    for move in (fluid.io.save_persistables, fluid.io.load_persistables):
        with pytest.raises(ModelFileError, match=r"side .*deep/er"):
            move(None, model, program)
    assert {victim.read_bytes() for victim in victims} == {b"precious"}


def test_a_variable_in_a_folder_of_the_folder_is_saved_and_loaded(tmp_path: Path) -> None:
    fluid.default_main_program().global_block().create_var("a/b", [2], "float32", persistable=True)
    fluid.global_scope().set("a/b", np.array([1, 2], np.float32))
    fluid.io.save_persistables(None, tmp_path)
    fluid.global_scope().set("a/b", np.zeros(2, np.float32))
    fluid.io.load_persistables(None, tmp_path)
    np.testing.assert_array_equal(fluid.global_scope().get("a/b"), [1, 2])


@pytest.mark.parametrize("blocks", [b"\x0a\x00", bytes_field(1, varint_field(1, 0) + varint_field(2, -1))])
def test_a_million_blocks_are_refused_before_they_are_made(blocks: bytes) -> None:
    with pytest.raises(ModelFileError, match="blocks"):
        fluid.Program.parse_from_string(blocks * 1_000_000)


def test_a_block_around_itself_and_a_body_within_itself_are_refused() -> None:
    def block(idx: int, parent: int, *rest: bytes) -> bytes:
        return bytes_field(1, varint_field(1, idx) + varint_field(2, parent) + b"".join(rest))

    for parents in ((0,), (-1, 1), (-1, 2, 1), (-1, -2)):
        with pytest.raises(ModelFileError, match="expected index"):
            fluid.Program.parse_from_string(
                b"".join(block(idx, parent) for idx, parent in enumerate(parents))
            )
    whole = fluid.Program.parse_from_string(hostile_files.whole("program"))
    inner = next(op for op in whole.blocks[0].ops if op.type == "while")
    for body in (0, 1, 2, 7):
        loop = inner.with_attrs(sub_block=body)
        whole.blocks[1].ops = [loop]
        with pytest.raises(ModelFileError, match=r"sub-blocks that do not exist|nested inside itself"):
            fluid.Program.parse_from_string(whole.serialize_to_string())


def test_the_originals_name_of_an_attribute_is_kept_in_files_and_heard(tmp_path: Path) -> None:
    x = fluid.layers.data("x", [3])
    exe = fluid.Executor(fluid.CPUPlace())
    out = fluid.layers.softshrink(x, alpha=0.1)
    fluid.io.save_inference_model(tmp_path, ["x"], [out], exe)
    assert b"lambda" in (tmp_path / "__model__").read_bytes()
    assert b"lambda_" not in (tmp_path / "__model__").read_bytes()
    program, feeds, fetches = fluid.io.load_inference_model(tmp_path, exe)
    (found,) = exe.run(program, feed={feeds[0]: np.array([[0.3, 0.05, -1]], "float32")}, fetch_list=fetches)
    np.testing.assert_allclose(found, [[0.2, 0, -0.9]], rtol=1e-6)


def with_attributes(*attributes: tuple[str, int, bytes]) -> bytes:
    """A program whose softshrink has more attributes: (name, type, field of the value)."""
    program = fluid.Program.parse_from_string(hostile_files.whole("program"))
    plain = program.serialize_to_string()
    more = b"".join(
        bytes_field(4, bytes_field(1, name.encode()) + varint_field(2, kind) + value)
        for name, kind, value in attributes
    )
    block = b"".join(
        bytes_field(number, value + more if number == 4 and b"\x1a\x0asoftshrink" in bytes(value) else value)
        if isinstance(value, bytes)
        else varint_field(number, int(value))
        for number, value in fields(next(_blocks(plain)))
    )
    return b"".join([bytes_field(1, block), *(bytes_field(1, each) for each in list(_blocks(plain))[1:])])


def _blocks(program: bytes):  # type: ignore[no-untyped-def]
    return (value for number, value in fields(program) if number == 1)


def test_an_attribute_that_means_nothing_here_is_named() -> None:
    with pytest.warns(UserWarning, match="no effect .*: threshhold of softshrink"):
        fluid.Program.parse_from_string(with_attributes(("threshhold", 0, varint_field(3, 3))))


def test_switches_of_kernels_that_are_off_or_idle_are_no_news() -> None:
    off = varint_field(10, 0)
    idle = (
        ("fuse_relu", 6, off),
        ("use_mkldnn", 6, varint_field(10, 1)),
        ("op_callstack", 5, bytes_field(8, b"x")),
    )
    fluid.Program.parse_from_string(with_attributes(*idle))


def test_a_model_that_would_write_files_or_start_servers_is_refused(tmp_path: Path) -> None:
    x = fluid.layers.data("x", [3])
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.io.save_inference_model(tmp_path, ["x"], [fluid.layers.scale(x, 2.0)], exe)
    program = fluid.Program.parse_from_string((tmp_path / "__model__").read_bytes())
    program.global_block().append_op("save", {"X": "x"}, {}, {"file_path": str(tmp_path / "victim")})
    (tmp_path / "__model__").write_bytes(program.serialize_to_string())
    with pytest.raises(ModelFileError, match="operator 'save'"):
        fluid.io.load_inference_model(tmp_path, exe)


def test_holes_in_a_tar_file_take_no_memory() -> None:
    size = 1 << 30
    config = ParameterConfig("w", size // 4, dims=(size // 4,))
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        told = tarfile.TarInfo("w.protobuf")
        told.size = len(config.encode())
        tar.addfile(told, io.BytesIO(config.encode()))
        hole = tarfile.TarInfo("w")
        hole.type = tarfile.GNUTYPE_SPARSE
        header = bytearray(hole.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % (HEADER.size + size)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    whole = stream.getvalue()[: 2 * 512] + bytes(header) + bytes(1024)
    with pytest.raises(ModelFileError, match="not a regular file"):
        list(read_tar(io.BytesIO(whole)))


def test_a_configuration_with_a_million_dimensions_is_refused_at_once() -> None:
    message = bytes_field(1, b"w") + varint_field(2, 1) + varint_field(9, 1) * 500_000
    with pytest.raises(ModelFileError, match="more than"):
        ParameterConfig.decode(message)
